"""A suite from nothing to its report: only what is missing is done, so it is safe to run again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from attndrop_repro.experiments.engine_local import Failure, Observer, Outcome, cores, run
from attndrop_repro.experiments.jobs import Job, Plan
from attndrop_repro.experiments.where import Where

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from attndrop_repro.config.suite import Suite


def run_jobs(
    plan: Plan,
    where: Where,
    *,
    workers: int | None,
    board: Callable[[int], AbstractContextManager[Observer[Job]]],
) -> Outcome[Job]:
    """Does what a plan says is missing; starts no process where nothing is.

    Args:
        plan: What is missing.
        where: Store, data, device.
        workers: Processes at a time; None: one a core, counting each recipe's threads.
        board: Shows so many jobs.
    """
    from attndrop_repro.experiments.work import perform

    with board(len(plan.missing)) as observer:
        return run(
            plan.missing,
            partial(perform, where=where),
            workers=workers or default_workers(plan),
            log=partial(log_file, where.results),
            observer=observer,
        )


def default_workers(plan: Plan) -> int:
    """One process for as many cores as a recipe has threads, at least one."""
    threads = max((job.spec.recipe.runtime.threads for job in plan.missing), default=1)
    return max(1, min(cores() // threads, len(plan.missing)))


def log_file(results: Path, job: Job) -> Path:
    """Where a job's output goes; kept when there is any."""
    return results / "logs" / f"{job.spec.run_id}.{job.kind}.log"


def report(suite: Suite, results: Path, out: Path | None = None) -> Path:
    """Builds a suite's report from what the store has.

    Args:
        suite: Which suite.
        results: Folder of the results store.
        out: Where to; None: ``reports/SUITE`` in the store's folder.

    Returns:
        The HTML page.
    """
    from attndrop_repro.report.build import build_report

    return build_report(results, suite, report_folder(suite, results, out)).html.absolute()


def report_folder(suite: Suite, results: Path, out: Path | None = None) -> Path:
    """Where a suite's report is: where the user says, else in the results store."""
    return out or results / "reports" / suite.name


def told(failures: tuple[Failure[Job], ...], blocked: int) -> list[str]:
    """What went wrong, one line each, for the end of a run."""
    lines = [f"{one.job.label} failed: {one.error} (log: {one.log})" for one in failures]
    if blocked:
        were = "1 measurement was" if blocked == 1 else f"{blocked} measurements were"
        lines.append(f"{were} not made: the training failed")
    return lines
