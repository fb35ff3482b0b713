"""The engine for one machine: warm worker processes, one job each at a time.

A job that fails stops nothing but the jobs that need it. A worker that dies (out of memory,
SIGKILL) fails its job and is replaced. When the parent is interrupted it ends its workers, which
write checkpoints first, and nothing is left running.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from attndrop_repro.config.progress import Progress
from attndrop_repro.experiments import worker
from attndrop_repro.experiments.worker import Message

GRACE_SECONDS = 30.0


class Job(Protocol):
    """What the engine must know of a job."""

    @property
    def key(self) -> str:
        """Unique among the jobs."""

    @property
    def after(self) -> tuple[str, ...]:
        """Keys of jobs that must have succeeded before, where they are among the jobs."""

    @property
    def cost(self) -> float:
        """How long it takes, in any unit; long ones start first."""


J = TypeVar("J", bound=Job)
J_contra = TypeVar("J_contra", contravariant=True)


class Observer(Protocol[J_contra]):
    """Who watches; called in the parent."""

    def started(self, job: J_contra) -> None:
        """A worker has taken the job."""

    def progress(self, job: J_contra, done: float, total: float, fields: dict[str, object]) -> None:
        """So much of it is done."""

    def said(self, job: J_contra, message: str) -> None:
        """A line for people."""

    def finished(self, job: J_contra, seconds: float) -> None:
        """It succeeded."""

    def failed(self, job: J_contra, error: str, log: Path) -> None:
        """It failed."""


@dataclass(frozen=True)
class Failure(Generic[J]):
    """A job that failed.

    Attributes:
        job: The job.
        error: Why, in one line.
        log: Its output, with the traceback.
    """

    job: J
    error: str
    log: Path


@dataclass(frozen=True)
class Outcome(Generic[J]):
    """What became of the jobs.

    Attributes:
        done: Those that succeeded.
        failures: Those that failed.
        blocked: Those never started because one that they need failed.
    """

    done: tuple[J, ...]
    failures: tuple[Failure[J], ...]
    blocked: tuple[J, ...]


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run(
    jobs: Sequence[J],
    perform: Callable[[J, Progress], None],
    *,
    workers: int,
    log: Callable[[J], Path],
    observer: Observer[J],
) -> Outcome[J]:
    """Does the jobs.

    Args:
        jobs: What is to be done; keys are unique.
        perform: Does one job, in a worker; a function that pickle finds by name, or its partial.
        workers: How many processes at most; none is started without a job for it.
        log: Where a job's output goes.
        observer: Who watches.

    Returns:
        What became of them.
    """
    engine = _Engine(jobs, perform, log, observer)
    try:
        engine.run(workers)
    finally:
        engine.stop()
    return engine.outcome()


class _Worker(Generic[J]):
    """One process with its pipe and the job that it has."""

    def __init__(self, perform: Callable[[J, Progress], None]) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=worker.main, args=(theirs, perform))
        self.process.start()
        theirs.close()  # so that the pipe closes when the worker dies
        self.job: J | None = None
        self.since = 0.0

    def give(self, job: J, log: Path) -> None:
        self.job, self.since = job, time.monotonic()
        try:
            self.pipe.send((job, log))
        except BrokenPipeError:
            return  # it died: the loop sees the closed pipe and fails the job


class _Engine(Generic[J]):
    def __init__(
        self,
        jobs: Sequence[J],
        perform: Callable[[J, Progress], None],
        log: Callable[[J], Path],
        observer: Observer[J],
    ) -> None:
        self._perform, self._log, self._observer = perform, log, observer
        self._waiting = sorted(jobs, key=lambda job: -job.cost)  # stable: equal ones stay in order
        self._open = {job.key for job in jobs}  # neither done nor failed
        self._lost: set[str] = set()
        self._workers: list[_Worker[J]] = []
        self._done: list[J] = []
        self._failures: list[Failure[J]] = []
        self._blocked: list[J] = []

    def outcome(self) -> Outcome[J]:
        return Outcome(tuple(self._done), tuple(self._failures), tuple(self._blocked))

    def run(self, workers: int) -> None:
        while True:
            self._hand_out(max(1, workers))
            busy = {w.pipe: w for w in self._workers if w.job is not None}
            if not busy:
                break
            for pipe in connection.wait(list(busy)):
                self._listen(busy[pipe])  # type: ignore[index]

    def _hand_out(self, workers: int) -> None:
        while (job := self._ready()) is not None:
            idle = next((w for w in self._workers if w.job is None), None)
            if idle is None:
                if len(self._workers) >= workers:
                    return
                idle = _Worker(self._perform)
                self._workers.append(idle)
            self._waiting.remove(job)
            self._observer.started(job)
            idle.give(job, self._log(job))

    def _ready(self) -> J | None:
        for job in [job for job in self._waiting if self._lost.intersection(job.after)]:
            self._waiting.remove(job)
            self._blocked.append(job)
            self._lost.add(job.key)
            self._open.discard(job.key)
        return next((job for job in self._waiting if not self._open.intersection(job.after)), None)

    def _listen(self, worker: _Worker[J]) -> None:
        job = worker.job
        assert job is not None  # only busy workers are waited for
        try:
            message: Message = worker.pipe.recv()
        except (EOFError, ConnectionResetError):
            self._bury(worker, job)
            return
        if message.kind == "progress":
            self._observer.progress(job, message.done, message.total, message.fields)
        elif message.kind == "say":
            self._observer.said(job, message.text)
        else:
            worker.job = None
            self._open.discard(job.key)
            if message.kind == "done":
                self._done.append(job)
                self._observer.finished(job, time.monotonic() - worker.since)
            else:
                self._fail(job, message.text)

    def _fail(self, job: J, error: str) -> None:
        failure = Failure(job, error, self._log(job))
        self._failures.append(failure)
        self._lost.add(job.key)
        self._open.discard(job.key)
        self._observer.failed(job, error, failure.log)

    def _bury(self, worker: _Worker[J], job: J) -> None:
        worker.process.join()
        worker.pipe.close()
        self._workers.remove(worker)
        code = worker.process.exitcode or 0
        if code == -signal.SIGKILL:
            how = "killed (SIGKILL), perhaps for want of memory: try fewer jobs at a time"
        elif code < 0:
            how = f"ended by {signal.Signals(-code).name}"
        else:
            how = f"gone with exit status {code}"
        self._fail(job, f"its worker process was {how}")

    def stop(self) -> None:
        """Ends all workers: idle ones at once, busy ones after their checkpoint."""
        for each in self._workers:
            if each.job is not None:
                each.process.terminate()
            each.pipe.close()
        until = time.monotonic() + GRACE_SECONDS
        for each in self._workers:
            each.process.join(max(0.0, until - time.monotonic()))
            if each.process.is_alive():
                each.process.kill()
                each.process.join()
        self._workers.clear()
