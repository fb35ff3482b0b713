"""`attndrop runs`: what is in the store, how far it is, and how to go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from attndrop_repro.cli.options import Json
from attndrop_repro.cli.session import session

if TYPE_CHECKING:
    from attndrop_repro.store import RunInfo

group = typer.Typer(
    help="List the runs in the store; show, compare or remove them.",
    epilog="Example: attndrop runs show last",
    invoke_without_command=True,
)

Run = Annotated[
    str, typer.Argument(metavar="RUN", help="An id, a unique beginning of one, or last.")
]
