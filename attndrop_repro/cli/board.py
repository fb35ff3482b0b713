"""Many jobs at once: a bar for all and one for each at work, or a plain line for each event."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from rich.progress import Progress, TaskID

from attndrop_repro.cli.progress import Lines, bars, duration, fitting
from attndrop_repro.experiments.engine_local import Observer

QUIET_SECONDS = 30.0  # a job that is done by then is shown by its end only


class Job(Protocol):
    """What is shown of a job."""

    @property
    def key(self) -> str:
        """Unique among the jobs."""

    @property
    def label(self) -> str:
        """Its name for people."""

    @property
    def short(self) -> str:
        """A shorter one, for beside a bar."""


@contextmanager
def board(total: int, *, quiet: bool) -> Iterator[Observer[Job]]:
    """Shows jobs while the block runs.

    Args:
        total: How many there are.
        quiet: Show nothing but failures.
    """
    if quiet:
        yield Failures()
    elif sys.stderr.isatty():
        with bars() as live:
            yield Live(live, total)
    else:
        yield Log(total)


class Failures:
    """Says nothing of what goes well."""

    def started(self, job: Job) -> None:
        """Nothing."""

    def progress(self, job: Job, done: float, total: float, fields: dict[str, object]) -> None:
        """Nothing."""

    def said(self, job: Job, message: str) -> None:
        """Nothing."""

    def finished(self, job: Job, seconds: float) -> None:
        """Nothing."""

    def failed(self, job: Job, error: str, log: Path) -> None:
        """A line."""
        self.line(f"{job.label} failed: {error}")

    def line(self, text: str) -> None:
        """Writes a line to stderr."""
        print(text, file=sys.stderr, flush=True)


class Log(Failures):
    """A line for every job that is done, and the progress of running ones now and then."""

    def __init__(self, total: int) -> None:
        self._total, self._done = total, 0
        self._lines: dict[str, Lines] = {}

    def started(self, job: Job) -> None:
        """Not worth a line: the end is."""
        self._lines[job.key] = Lines(job.label, every=QUIET_SECONDS, wait=QUIET_SECONDS)

    def progress(self, job: Job, done: float, total: float, fields: dict[str, object]) -> None:
        """A line every half minute of a job that takes longer."""
        if done < total:
            self._lines[job.key].update(done, total, **fields)

    def said(self, job: Job, message: str) -> None:
        """The line."""
        self.line(f"{job.label}: {message}")

    def finished(self, job: Job, seconds: float) -> None:
        """Its place among all."""
        self._done += 1
        self.line(f"[{self._done}/{self._total}] {job.label}: {duration(seconds)}")

    def failed(self, job: Job, error: str, log: Path) -> None:
        """Likewise."""
        self._done += 1
        self.line(f"[{self._done}/{self._total}] {job.label} failed: {error}")


class Live(Failures):
    """Bars: all jobs, and each running one."""

    def __init__(self, live: Progress, total: int) -> None:
        self._live = live
        self._all = live.add_task("all jobs", total=total, fields=f"0/{total}")
        self._total, self._done = total, 0
        self._tasks: dict[str, TaskID] = {}

    def line(self, text: str) -> None:
        """Above the bars."""
        self._live.console.print(text)

    def started(self, job: Job) -> None:
        """A bar more."""
        self._tasks[job.key] = self._live.add_task(job.short, total=None, fields="")

    def progress(self, job: Job, done: float, total: float, fields: dict[str, object]) -> None:
        """Moves its bar."""
        self._live.update(
            self._tasks[job.key], completed=done, total=total, fields=fitting(self._live, fields)
        )

    def said(self, job: Job, message: str) -> None:
        """The line."""
        self.line(f"{job.label}: {message}")

    def finished(self, job: Job, seconds: float) -> None:
        """A bar less."""
        self._ended(job)

    def failed(self, job: Job, error: str, log: Path) -> None:
        """Likewise, with a line."""
        super().failed(job, error, log)
        self._ended(job)

    def _ended(self, job: Job) -> None:
        self._done += 1
        self._live.remove_task(self._tasks.pop(job.key))
        self._live.update(self._all, completed=self._done, fields=f"{self._done}/{self._total}")
