"""`attndrop errata`: where the papers are wrong, each shown by computing both sides."""

from __future__ import annotations

from typing import Annotated

import typer

from attndrop_repro.cli.options import Json

EXAMPLE = "Example: attndrop errata E6"


def command(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]...", help="E1 to E17, X1 to X8; default: all."),
    ] = None,
    as_json: Json = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="The page docs/errata.md, on stdout.")
    ] = False,
) -> None:
    """Compute every erratum of the papers both ways: as printed, and as it is."""
    from attndrop_repro.cli.output import emit_fields, emit_json
    from attndrop_repro.config.errors import AttndropError, UsageError, unknown
    from attndrop_repro.theory import render
    from attndrop_repro.theory.erratum import errata

    if markdown:
        if ids or as_json:
            raise UsageError("--markdown writes the whole page: leave out the ids and --json")
        print(render.markdown(), end="")
        return
    known = {entry.id: entry for entry in errata()}
    for wanted in ids or []:
        if wanted.upper() not in known:
            raise unknown("erratum", wanted, known)
    chosen = [known[wanted.upper()] for wanted in ids] if ids else list(known.values())
    rows = [render.row(entry) for entry in chosen]
    if as_json:
        emit_json(rows)
    else:
        for index, row in enumerate(rows):
            if index:
                print()
            verdict = "confirmed" if row["confirmed"] else "NOT CONFIRMED"
            print(f"{row['id']}  {row['title']}  [{verdict}]")
            emit_fields(
                [("where", row["place"]), ("printed", row["printed"]), ("true", row["true"]),
                 ("here", row["consequence"])]
            )  # fmt: skip
    failed = [row["id"] for row in rows if not row["confirmed"]]
    if failed:
        raise AttndropError(f"the checks do not confirm {', '.join(failed)}")
