"""How long work tells what it is doing; the command line shows it, a library call stays silent."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """What long work reports to."""

    def update(self, done: float, total: float, **fields: object) -> None:
        """So much is done.

        Args:
            done: Units done so far.
            total: Units in all.
            fields: What to show beside it: loss, accuracy, images per second, ...
        """

    def say(self, message: str) -> None:
        """One line that people should read."""


class Silent:
    """Reports nothing."""

    def update(self, done: float, total: float, **fields: object) -> None:
        """Nothing."""

    def say(self, message: str) -> None:
        """Nothing."""
