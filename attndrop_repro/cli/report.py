"""`attndrop report`: tables, figures and page from what the store has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attndrop_repro.cli.session import session

EXAMPLE = "Example: attndrop report --suite digits"

Suite = Annotated[str, typer.Option(metavar="NAME|FILE", help="Which suite.")]
Out = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Where to; default: reports/SUITE in the results store."),
]


def command(context: typer.Context, suite: Suite = "digits", out: Out = None) -> None:
    """Rebuild a suite's report from the results store; its path is printed."""
    from attndrop_repro.config.suite import load_suite
    from attndrop_repro.experiments.reproduce import report

    here = session(context)
    print(report(load_suite(suite), here.results, out))
