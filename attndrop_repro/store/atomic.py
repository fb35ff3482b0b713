"""Files that are there whole or not at all: written beside, synced, renamed into place.

The crash argument: until the rename, a reader sees the old file or none; the content reaches the
disk before the name does (fsync of the file), and the name before we go on (fsync of the folder).
What a killed writer leaves behind starts with `TEMPORARY` and is ignored by every reader.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from attndrop_repro.config.errors import AttndropError, UsageError

TEMPORARY = ".tmp-"


def write_bytes(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Writes a file whole.

    Args:
        path: The file; its folder is made if needed.
        content: All of it.
        durable: Whether it must survive a power cut (not worth it for a heartbeat).

    Raises:
        AttndropError: The disk is full, or the folder cannot be written; nothing has changed.
    """
    temporary = temporary_name(path)
    with disk_errors(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            temporary.replace(path)
            if durable:
                sync(path.parent)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


def check_target(path: Path) -> None:
    """Refuses to write a file for the user where no folder is, or a folder of that name.

    Raises:
        UsageError: It is so.
    """
    if path.is_dir():
        raise UsageError(f"{path} is a folder: name a file")
    if not path.parent.is_dir():
        raise UsageError(f"{path.parent} is not there: make that folder first, or name another")


def write_json(path: Path, content: Any, *, durable: bool = True) -> None:
    """Writes JSON whole; see `write_bytes`."""
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    write_bytes(path, text.encode(), durable=durable)


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object.

    Raises:
        FileNotFoundError: There is no such file.
        AttndropError: It is not a JSON object; the message names the file.
    """
    try:
        content = json.loads(path.read_bytes())
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise AttndropError(f"{path} is damaged: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise AttndropError(f"{path} is damaged: not a JSON object")
    return content


def temporary_name(path: Path) -> Path:
    """A name beside `path` that no one else uses and that readers ignore."""
    return path.with_name(f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(4)}-{path.name}"[:200])


def writer_lives(path: Path) -> bool:
    """Whether the process that made a temporary name still runs on this machine."""
    pid = path.name.removeprefix(TEMPORARY).partition("-")[0]
    try:
        os.kill(int(pid), 0)
    except (ValueError, ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def sync(path: Path) -> None:
    """Waits until a file or folder has reached the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def move_folder(source: Path, target: Path) -> None:
    """Renames a finished folder into place; one that is there is moved away first and removed."""
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            remove_folder(target)
        source.rename(target)
        sync(target.parent)


def remove_folder(path: Path) -> None:
    """Removes a folder so that a kill half way leaves nothing that looks like a damaged one."""
    if not path.exists():
        return
    trash = temporary_name(path)
    path.rename(trash)
    shutil.rmtree(trash, ignore_errors=True)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turns what the file system says into one line for the user.

    Raises:
        AttndropError: Instead of an `OSError`.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise AttndropError(
            f"cannot write {path}: {reason}; make room or choose another place with --results, "
            "then run the same command again"
        ) from None
