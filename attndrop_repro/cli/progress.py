"""Progress on stderr: bars on a terminal, now and then a plain line everywhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.cells import cell_len
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from attndrop_repro.cli.output import stderr
from attndrop_repro.config.progress import Progress as Reporter
from attndrop_repro.config.progress import Silent

EVERY_SECONDS = 5.0
BAR_CELLS, TIME_CELLS = 8, 7
_FIRST = ("loss", "accuracy")  # what is seen where there is little room


@contextmanager
def show(label: str, *, quiet: bool) -> Iterator[Reporter]:
    """Shows one piece of work while the block runs.

    Args:
        label: What is being done.
        quiet: Show nothing.
    """
    if quiet:
        yield Silent()
    elif sys.stderr.isatty():
        with bars() as live:
            yield Bar(live, live.add_task(label, total=None, fields=""))
    else:
        yield Lines(label)


def bars() -> Progress:
    """Rich's live display with the columns that all our bars have; see `fitting`."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=BAR_CELLS),
        TextColumn("{task.fields[fields]}", markup=False),
        TimeRemainingColumn(compact=True),
        console=stderr(),
        transient=True,
    )


def fitting(live: Progress, fields: Mapping[str, object]) -> str:
    """As much of `words` as fits beside the names, the bars and the time left."""
    names = max((cell_len(task.description) for task in live.tasks), default=0)
    room = live.console.width - names - BAR_CELLS - TIME_CELLS - 3
    text = ""
    for part in _parts(fields):
        longer = f"{text}  {part}" if text else part
        if len(longer) > room:
            break
        text = longer
    return text


class Bar:
    """One bar of a live display."""

    def __init__(self, live: Progress, task: TaskID) -> None:
        self._live, self._task = live, task

    def update(self, done: float, total: float, **fields: object) -> None:
        """Moves the bar."""
        self._live.update(
            self._task, completed=done, total=total, fields=fitting(self._live, fields)
        )

    def say(self, message: str) -> None:
        """A line above the bars."""
        self._live.console.print(message)


class Lines:
    """Plain lines: one every few seconds, and the last.

    Args:
        label: What is being done.
        every: Seconds between lines.
        wait: Seconds before the first.
    """

    def __init__(self, label: str, every: float = EVERY_SECONDS, wait: float = 0.0) -> None:
        self._label, self._every = label, every
        self._next = time.monotonic() + wait
        self._first: tuple[float, float] | None = None  # when, and how much was done by then

    def update(self, done: float, total: float, **fields: object) -> None:
        """Writes a line if it is time for one."""
        now = time.monotonic()
        since, before = self._first = self._first or (now, done)
        if now < self._next and done < total:
            return
        self._next = now + self._every
        parts = [f"{self._label}: {number(done)}/{number(total)}", words(fields)]
        if before < done < total:
            parts.append(f"{duration((now - since) * (total - done) / (done - before))} left")
        self.say("  ".join(part for part in parts if part))

    def say(self, message: str) -> None:
        """Writes the line."""
        print(message, file=sys.stderr, flush=True)


def words(fields: Mapping[str, object]) -> str:
    """``loss 0.41  accuracy 0.93  epoch 3/40  1500 images/s``: what a report carries beside it."""
    return "  ".join(_parts(fields))


def _parts(fields: Mapping[str, object]) -> list[str]:
    left = dict(fields)
    parts = [f"{name} {number(left.pop(name))}" for name in _FIRST if name in left]
    if "epoch" in left and "epochs" in left:
        parts.append(f"epoch {number(left.pop('epoch'))}/{number(left.pop('epochs'))}")
    rate = left.pop("images_per_second", None)
    parts += [f"{name.replace('_', ' ')} {number(value)}" for name, value in left.items()]
    return parts if rate is None else [*parts, f"{number(rate)} images/s"]


def number(value: object) -> str:
    """Four significant digits for numbers, from 10,000 whole ones; anything else as it is."""
    if isinstance(value, float):
        if 9999.5 <= abs(value) < 1e15:
            return f"{value:,.0f}"
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.4g}"
    return str(value)


def duration(seconds: float) -> str:
    """``7 s``, ``3 min 20 s``, ``5 h 10 min``: two units at most."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
