"""`attndrop report`: tables, figures and page from what the store has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attndrop_repro.cli.session import session
from attndrop_repro.config.errors import AttndropError, UsageError

EXAMPLE = "Example: attndrop report --suite digits"

Suite = Annotated[str, typer.Option(metavar="NAME|FILE", help="Which suite.")]
Out = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Where to; default: reports/SUITE in the results store."),
]


def command(
    context: typer.Context,
    suite: Suite = "digits",
    out: Out = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only say whether the report is what it would be now.")
    ] = False,
) -> None:
    """Rebuild a suite's report from the results store; its path is printed."""
    from attndrop_repro.config.suite import load_suite
    from attndrop_repro.experiments.reproduce import report, report_folder
    from attndrop_repro.report.check import check_report

    here = session(context)
    wanted = load_suite(suite)
    if not here.results.is_dir():
        raise UsageError(
            f"{here.results} is not there: attndrop reproduce --suite {suite} makes the results"
        )
    if not check:
        print(report(wanted, here.results, out))
        return
    folder = report_folder(wanted, here.results, out)
    stale = check_report(here.results, wanted, folder)
    for line in stale:
        print(line)
    if stale:
        raise AttndropError(f"{folder} is stale: attndrop report --suite {suite} rebuilds it")
    here.say(f"{folder} is up to date")
