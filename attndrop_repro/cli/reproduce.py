"""`attndrop reproduce`: a suite from nothing to its report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from attndrop_repro.cli.options import DataDir, Device, Download, Json
from attndrop_repro.cli.report import Out
from attndrop_repro.cli.session import session

if TYPE_CHECKING:
    from attndrop_repro.experiments.jobs import Plan

EXAMPLE = "Example: attndrop reproduce --suite digits --plan"


def command(
    context: typer.Context,
    suite: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="What to train and measure.")
    ] = "digits",
    plan: Annotated[
        bool, typer.Option("--plan", help="Say what is done and what is missing; do nothing.")
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Processes at a time; default: one a core."),
    ] = None,
    data_dir: DataDir = None,
    download: Download = False,
    device: Device = "auto",
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Train all methods x seeds of a suite, measure everything, and build the report.

    Safe to run again, after any kill too: it does only what is missing. The last line of stdout is
    the path of the HTML report.
    """
    from attndrop_repro.cli.board import board
    from attndrop_repro.config.suite import load_suite
    from attndrop_repro.experiments import jobs as planning
    from attndrop_repro.experiments import reproduce
    from attndrop_repro.experiments.where import Where

    here = session(context)
    wanted = load_suite(suite)
    planned = planning.plan(wanted, here.store())
    if plan:
        _show(planned, as_json)
        return
    where = Where(here.results, data_dir, device, download)
    if planned.missing:
        here.say(f"{wanted.name}: {planning.counts(planned.missing)} to do")
    else:
        here.say(f"{wanted.name}: all {sum(planned.wanted.values())} jobs are done")
    outcome = reproduce.run_jobs(
        planned,
        where,
        workers=jobs,
        board=lambda total: board(total, quiet=here.quiet),
    )
    page = reproduce.report(wanted, here.results, out)
    for line in reproduce.told(outcome.failures, len(outcome.blocked)):
        here.error(line)
    print(page)
    if outcome.failures:
        raise typer.Exit(1)


def _show(planned: Plan, as_json: bool) -> None:
    from attndrop_repro.cli.output import Column, emit_json, emit_table

    rows = planned.rows()
    if as_json:
        missing = [{"job": job.kind, "run": job.spec.run_id} for job in planned.missing]
        emit_json({"methods": rows, "missing": missing})
        return
    kinds = list(planned.wanted)
    numbers = [Column(kind, right=True) for kind in ("runs", *kinds)]
    emit_table(
        [Column("recipe"), Column("method"), *numbers],
        [tuple(row[name] for name in ("recipe", "method", "runs", *kinds)) for row in rows],
    )
