"""A lock that dies with its holder: one process at a time, on a file that says which.

It is a record lock of the system (fcntl), not flock and not a file that is merely there: the kernel
drops it when its process ends, however it ends, so nothing stale ever blocks; children do not
inherit it, so a loader's worker that outlives a killed trainer does not hold it either; and NFS
keeps it between machines. Two that start together cannot both get it.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from attndrop_repro.store.atomic import disk_errors

_HELD = frozenset({errno.EACCES, errno.EAGAIN})
_mine: set[Path] = set()  # the system asks which process, never which of its threads


class Held(Exception):
    """Another process has the lock; the text says which, as in "process 7 on host n1"."""


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Holds a lock while the block runs.

    Args:
        path: The lock's file; it is made, with its folder, and removed again.

    Yields:
        Whether there are locks here: not every file system has them.

    Raises:
        Held: It is taken.
        AttndropError: The file cannot be made.
    """
    place = path.absolute()
    if place in _mine:
        raise Held(f"process {os.getpid()}")
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _taken(path)
    if descriptor is None:
        yield False
        return
    _mine.add(place)
    try:
        holder = json.dumps({"host": socket.gethostname(), "pid": os.getpid()})
        with suppress(OSError):  # a full disk: the lock holds without a name too
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, holder.encode(), 0)
        yield True
    finally:
        with suppress(OSError):
            if _is(path, descriptor):
                path.unlink()  # before it is let go, while the name is still ours
        os.close(descriptor)
        _mine.discard(place)


def _taken(path: Path) -> int | None:
    """A descriptor that holds the lock, or None where there are none."""
    if sys.platform == "win32":
        return None
    import fcntl

    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is(path, descriptor):
                return descriptor
            os.close(descriptor)  # its last holder has just removed it: the name is another file
        except OSError as error:
            holder = _holder(descriptor)
            os.close(descriptor)
            if error.errno in _HELD:
                raise Held(holder) from None
            return None


def _is(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _holder(descriptor: int) -> str:
    try:
        content = json.loads(os.pread(descriptor, 4096, 0))
        host, pid = str(content["host"]), int(content["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
    return f"process {pid}" + ("" if host == socket.gethostname() else f" on {host}")
