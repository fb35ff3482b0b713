"""`attndrop results`: the tidy table, stores from other machines, integrity, fewer files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from attndrop_repro.cli.options import Json
from attndrop_repro.cli.session import session

group = typer.Typer(
    help="Export, merge, verify or compact the results store.",
    epilog="Example: attndrop results export --format csv --out results.csv",
    no_args_is_help=False,
)


@group.command(epilog="Example: attndrop results export --format parquet --out all.parquet")
def export(
    context: typer.Context,
    form: Annotated[
        Literal["csv", "parquet"], typer.Option("--format", help="Of the file.")
    ] = "csv",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to; default: stdout.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also rows that a newer one of the same thing replaces.")
    ] = False,
) -> None:
    """The tidy table, one measurement a row."""
    from attndrop_repro.store.export import export as write

    here = session(context)
    count = write(here.known_store(), out or sys.stdout.buffer, form, dedupe=not everything)
    here.say(f"{count} rows" + (f" in {out}" if out else ""))


@group.command(epilog="Example: attndrop results merge other-machine/results")
def merge(
    context: typer.Context,
    folder: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Stores to take from; they stay.")
    ],
) -> None:
    """Add runs and rows of other stores; doing it again adds nothing."""
    from attndrop_repro.store import Store
    from attndrop_repro.store.merge import merge as add

    here = session(context)
    done = add(here.store(), [Store(path) for path in folder])
    for note in done.notes:
        here.say(note)
    here.say(
        f"{done.runs} runs and {done.files} measurement files added, {done.replaced} runs replaced "
        "by ones that got further"
    )


@group.command(epilog="Example: attndrop results verify --json")
def verify(context: typer.Context, as_json: Json = False) -> None:
    """Read every file and name what is damaged, missing or foreign; exit 1 if a result suffers."""
    from attndrop_repro.cli.output import Column, emit_json, emit_table
    from attndrop_repro.store.verify import verify as look

    here = session(context)
    findings = look(here.known_store())
    if as_json:
        emit_json([{**one._asdict(), "harmless": one.harmless} for one in findings])
    elif findings:
        emit_table(
            [Column("kind"), Column("path"), Column("what", prose=True)],
            [tuple(one) for one in findings],
        )
    else:
        here.say(f"{here.results}: all is well")
    if any(not one.harmless for one in findings):
        raise typer.Exit(1)


@group.command(epilog="Example: attndrop results compact")
def compact(context: typer.Context) -> None:
    """Join all measurement files into one, also while others write and read."""
    from attndrop_repro.store.compact import compact as join

    here = session(context)
    count = join(here.known_store())
    here.say(f"{count} files joined into one" if count else "nothing to join")
