"""A worker process: imports torch once, then does one job after another.

It ignores Ctrl-C, which a terminal sends to everybody: the parent decides, and ends it by SIGTERM,
which unwinds the job so that it can write a checkpoint. When the parent itself is gone (SIGKILL),
nobody would tell: a thread waits for that and ends the process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import connection, parent_process
from pathlib import Path
from types import FrameType
from typing import Any

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.config.progress import Progress

PROGRESS_SECONDS = 0.2
TERMINATED = 143
SIGNALLED = 128

Perform = Callable[[Any, Progress], None]


@dataclass(frozen=True)
class Message:
    """What a worker tells its parent.

    Attributes:
        kind: "progress", "say", "done" or "failed".
        text: The line to say, or the error in one line.
        done: Units done.
        total: Units in all.
        fields: What to show beside them.
    """

    kind: str
    text: str = ""
    done: float = 0
    total: float = 0
    fields: dict[str, object] = field(default_factory=dict)


class Terminated(BaseException):
    """SIGTERM: unwinds the job."""


class _Reporter:
    """Progress that travels to the parent, a few times a second at most.

    A parent that has stopped listening must not cut a job's checkpoint short: nothing is raised.
    """

    def __init__(self, pipe: connection.Connection) -> None:
        self._pipe = pipe
        self._next = 0.0

    def update(self, done: float, total: float, **fields: object) -> None:
        now = time.monotonic()
        if now >= self._next or done >= total:
            self._next = now + PROGRESS_SECONDS
            self._send(Message("progress", done=done, total=total, fields=fields))

    def say(self, message: str) -> None:
        self._send(Message("say", message))

    def _send(self, message: Message) -> None:
        with contextlib.suppress(OSError):
            self._pipe.send(message)


def main(pipe: connection.Connection, perform: Perform) -> None:
    """Takes jobs with their log files from the pipe until it closes or brings None.

    Args:
        pipe: Receives (job, log path); sends `Message`.
        perform: Does one job; an exception is the job's failure, not the worker's.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _terminate)
    threading.Thread(target=follow_parent, daemon=True).start()
    try:
        while (item := _next_item(pipe)) is not None:
            job, log = item
            with _Log(log):
                message = _attempt(job, perform, _Reporter(pipe))
            pipe.send(message)
    except (BrokenPipeError, ConnectionResetError):
        return  # the parent is gone
    except Terminated:
        os._exit(TERMINATED)  # no atexit handlers: the parent is waiting for this process


def _next_item(pipe: connection.Connection) -> tuple[Any, Path] | None:
    try:
        item: tuple[Any, Path] | None = pipe.recv()
    except EOFError:
        return None
    return item


def _attempt(job: Any, perform: Perform, reporter: _Reporter) -> Message:
    try:
        perform(job, reporter)
    except KeyboardInterrupt:
        raise Terminated from None
    except Exception as error:
        if getattr(error, "exit_code", 0) > SIGNALLED:  # it saw the signal and saved its state
            raise Terminated from None
        traceback.print_exc()
        known = isinstance(error, AttndropError)
        text = str(error) if known else f"{type(error).__name__}: {error}"
        return Message("failed", " ".join(text.split()))
    return Message("done")


def _terminate(signum: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not cut the checkpoint short
    raise Terminated


def follow_parent() -> None:
    """Waits until the parent is gone, and ends this process then."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(TERMINATED)


class _Log:
    """Everything written to stdout and stderr, by libraries in C too, goes to the job's log."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self._before = os.dup(1), os.dup(2)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        log = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)

    def __exit__(self, *error: object) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        for saved, stream in zip(self._before, (1, 2), strict=True):
            os.dup2(saved, stream)
            os.close(saved)
        if not self._path.stat().st_size:
            self._path.unlink()
