"""`attndrop doctor`: is this machine fit?"""

from __future__ import annotations

import typer

from attndrop_repro.cli.options import Json
from attndrop_repro.cli.session import session

EXAMPLE = "Example: attndrop doctor --json"


def command(context: typer.Context, as_json: Json = False) -> None:
    """Check the installation: versions, disk, results, data sets, GPU; exit 1 on a problem."""
    from attndrop_repro.cli.output import Column, emit_json, emit_table
    from attndrop_repro.experiments import health

    checks = list(health.check(session(context).results))
    if as_json:
        emit_json([check.to_json() for check in checks])
    else:
        emit_table(
            [Column("check"), Column("state"), Column("found", prose=True),
             Column("what to do", prose=True)],
            [(check.name, check.state, check.found, check.remedy) for check in checks],
        )  # fmt: skip
    problems = sum(check.state == "problem" for check in checks)
    if problems:
        raise typer.Exit(1)
