"""`attndrop datasets`: what recipes can name, and where its files come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from attndrop_repro.cli.options import Json

if TYPE_CHECKING:
    from attndrop_repro.data import Entry

group = typer.Typer(
    help="List the data sets, or show what one needs.",
    epilog="Example: attndrop datasets show digits",
    invoke_without_command=True,
)


@group.callback()
def table(context: typer.Context, as_json: Json = False) -> None:
    """All data sets: one line each."""
    if context.invoked_subcommand is not None:
        return
    from attndrop_repro import data
    from attndrop_repro.cli.output import Column, emit_json, emit_table

    found = [data.describe(name) for name in data.names()]
    if as_json:
        emit_json([_described(entry) for entry in found])
        return
    emit_table(
        [Column("dataset"), Column("what it is", prose=True), Column("files", prose=True)],
        [(entry.name, entry.summary, _files(entry)) for entry in found],
    )


@group.command(epilog="Example: attndrop datasets show digits")
def show(
    name: Annotated[str, typer.Argument(metavar="DATASET", help="Its name.")],
    as_json: Json = False,
) -> None:
    """One data set: what it is, and which files it needs where."""
    from attndrop_repro import data
    from attndrop_repro.cli.output import emit_fields, emit_json

    entry = data.describe(name)
    if as_json:
        emit_json(_described(entry))
        return
    emit_fields([("name", entry.name), ("what it is", entry.summary), ("files", _files(entry))])


def _described(entry: Entry) -> dict[str, object]:
    return {
        "name": entry.name,
        "summary": entry.summary,
        "layout": entry.layout,
        "downloads": entry.downloads,
    }


def _files(entry: Entry) -> str:
    layout = entry.layout or "none needed"
    return f"{layout}; or --download" if entry.downloads else layout
