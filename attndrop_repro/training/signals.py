"""SIGTERM and Ctrl-C: the loop finishes its step, writes a checkpoint and then gives way."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from attndrop_repro.config.errors import AttndropError

_HANDLED = (signal.SIGINT, signal.SIGTERM)


class Interrupted(AttndropError):
    """A signal ended the training after a checkpoint.

    Attributes:
        signal: Its number.
        exit_code: What a shell expects: 128 and the number, so 130 or 143.
    """

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.signal = number
        self.exit_code = 128 + number


class Watch:
    """What has been received.

    Attributes:
        received: The number of the first signal, or None.
    """

    received: int | None = None


@contextmanager
def watching() -> Iterator[Watch]:
    """Notes signals instead of dying of them; a second Ctrl-C interrupts at once.

    Outside the main thread nothing can be handled, and the watch stays empty.
    """
    watch = Watch()
    if threading.current_thread() is not threading.main_thread():
        yield watch
        return

    def note(number: int, frame: FrameType | None) -> None:
        if watch.received is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        watch.received = watch.received or number

    before = {number: signal.signal(number, note) for number in _HANDLED}
    try:
        yield watch
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
