"""What was said before the command, and what every command has: store, messages, progress."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from attndrop_repro.config.progress import Progress
    from attndrop_repro.store import Store


def default_results() -> Path:
    """$ATTNDROP_RESULTS, else ./results."""
    return Path(os.environ.get("ATTNDROP_RESULTS") or "results")


@dataclass
class Session:
    """One run of the program.

    Attributes:
        results: The results store's folder.
        quiet: No progress and no messages; errors only.
        debug: Errors with their traceback.
        goes_on: Whether the command, run again after it was stopped, goes on where it was.
    """

    results: Path = field(default_factory=default_results)
    quiet: bool = False
    debug: bool = False
    goes_on: bool = True

    def store(self) -> Store:
        """The results store; it need not exist yet."""
        from attndrop_repro.store import Store

        return Store(self.results)

    def known_store(self) -> Store:
        """The results store of a command that only reads: a place without one is a mistake.

        Raises:
            UsageError: There is no store at that place.
        """
        from attndrop_repro.config.errors import UsageError

        store = self.store()
        if not store.exists():
            raise UsageError(
                f"there is no results store at {self.results}: attndrop train makes one, "
                "--results DIR before the command says where one is"
            )
        return store

    def say(self, message: str) -> None:
        """A line for people, on stderr."""
        if not self.quiet:
            print(visible(message), file=sys.stderr, flush=True)

    def error(self, message: str, kind: str = "error") -> None:
        """An error, on stderr, in one line; said also when all else is quiet."""
        print(f"attndrop: {kind}: {visible(message)}", file=sys.stderr, flush=True)

    @contextmanager
    def progress(self, label: str) -> Iterator[Progress]:
        """Something to report one long piece of work to: a bar on a terminal, else plain lines."""
        from attndrop_repro.cli.progress import show

        with show(label, quiet=self.quiet) as progress:
            yield progress


def session(context: typer.Context) -> Session:
    """The session of a running command."""
    found = context.find_object(Session)
    assert found is not None  # `main` puts it there
    return found


def visible(text: str) -> str:
    """Text for a terminal: what is no letter or sign, as in names from outside, is spelt out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
