"""`attndrop compare`: two runs on the same examples."""

from __future__ import annotations

from typing import Annotated

import typer

from attndrop_repro.cli.options import Json
from attndrop_repro.cli.session import session

EXAMPLE = "Example: attndrop compare digits-vit--none--s0 digits-vit--dropkey--s0"

Run = Annotated[str, typer.Argument(metavar="RUN", help="An id or a beginning of one.")]


def command(
    context: typer.Context,
    first: Run,
    second: Run,
    split: Annotated[str, typer.Option(metavar="SPLIT", help="Judged on.")] = "test",
    as_json: Json = False,
) -> None:
    """Compare two runs example by example: McNemar's test, paired bootstrap, what changed."""
    from attndrop_repro.cli.output import Column, emit_fields, emit_json, emit_table
    from attndrop_repro.evaluation.compare import compare
    from attndrop_repro.experiments.runs import stored_logits

    store = session(context).known_store()
    folders = [store.find_run(name) for name in (first, second)]
    found = compare(*(stored_logits(folder, split) for folder in folders))
    if as_json:
        emit_json({"first": folders[0].run_id, "second": folders[1].run_id, **found.to_json()})
        return
    emit_fields(
        [("first", folders[0].run_id),
         ("second", folders[1].run_id),
         ("examples", f"{found.n}: {found.both_right} both right, {found.both_wrong} both wrong, "
          f"{len(found.only_first)} only the first, {len(found.only_second)} only the second"),
         ("agreement", f"{found.agreement:.1%}"),
         ("McNemar p", f"{found.mcnemar_p:.4g}"),
         ("only the first", _some(found.only_first)),
         ("only the second", _some(found.only_second))]
    )  # fmt: skip
    print()
    emit_table(
        [Column("metric"), Column("first", right=True), Column("second", right=True),
         Column("second - first", right=True), Column("95 % interval", right=True)],
        [(name, f"{one.first:.4f}", f"{one.second:.4f}", f"{one.difference:+.4f}",
          f"{one.low:+.4f} to {one.high:+.4f}") for name, one in found.metrics.items()],
    )  # fmt: skip


def _some(ids: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, ids[:20])) + (", ..." if len(ids) > 20 else "")
    return shown or "none"
