"""`attndrop bench`: what every method costs beside the plain model."""

from __future__ import annotations

from typing import Annotated

import typer

from attndrop_repro.cli.options import Json, Precision
from attndrop_repro.cli.session import session

EXAMPLE = "Example: attndrop bench --recipe digits-vit --rounds 5"


def command(
    context: typer.Context,
    recipe: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help="Whose model; default: digits-vit.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="A timm model, without a recipe.")
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(metavar="METHOD", help="Only these; repeat it; default: every method."),
    ] = None,
    device: Annotated[str, typer.Option(metavar="DEVICE", help="cpu, cuda, cuda:1, mps.")] = "cpu",
    precision: Annotated[
        Precision | None, typer.Option(help="bf16 and fp16 by autocast; default: the recipe's.")
    ] = None,
    compiled: Annotated[
        bool, typer.Option("--compile", help="Time models compiled by torch.compile.")
    ] = False,
    batch_size: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Images a step; default: the recipe's.")
    ] = None,
    image_size: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Pixels a side, with --model.")
    ] = None,
    classes: Annotated[
        int | None, typer.Option(min=2, metavar="N", help="Classes, with --model.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="CPU threads; default: all cores.")
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=3, metavar="N", help="Timed steps of each method.")
    ] = 15,
    memory: Annotated[
        bool, typer.Option("--memory/--no-memory", help="Peak memory, each in its own process.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Time and weigh training steps of every method against the plain model, interleaved."""
    from dataclasses import asdict

    from attndrop_repro.cli.output import Column, emit_json, emit_table
    from attndrop_repro.config.errors import UsageError
    from attndrop_repro.config.load import load_recipe
    from attndrop_repro.experiments import bench

    if recipe is not None and model is not None:
        raise UsageError("--recipe and --model both say what to bench: give one of them")
    if recipe is None and model is None:
        recipe = "digits-vit"  # seconds; a ViT-B/16 takes an hour on a CPU
    here = session(context)
    work = bench.workload(
        None if recipe is None else load_recipe(recipe), model=model, batch_size=batch_size,
        image_size=image_size, classes=classes, device=device, precision=precision,
        compiled=compiled, threads=threads,
    )  # fmt: skip
    chosen = bench.contenders(method or ())
    with here.progress("bench") as progress:
        rows = bench.bench(work, chosen, rounds=rounds, memory=memory, progress=progress)
    store = here.store()
    for row, found in bench.measurements(rows, work):
        store.write_outside(
            {"model": work.model.name, "method": row.method, "recipe": recipe or "",
             "precision": work.precision, "device": work.device, "threads": work.threads},
            found,
        )  # fmt: skip
    if as_json:
        emit_json([asdict(row) for row in rows])
        return
    emit_table(
        [Column("method"), Column("ratio", right=True), Column("quartiles", right=True),
         Column("to unfused", right=True), Column("paper", right=True),
         Column("images/s", right=True), Column("peak MiB", right=True)],
        [(row.label, _number(row.ratio, 3), _span(row.low, row.high), _number(row.unfused_ratio, 3),
          _number(row.paper_ratio, 3), _number(row.images_per_second, 1),
          _number(row.peak_memory_mb, 0)) for row in rows if not row.error],
    )  # fmt: skip
    for row in rows:
        if row.error:
            here.say(f"{row.label}: {row.error}")
    noise = rows[1]
    here.say(
        f"{work.model.name}, {work.batch_size} images of {work.image_size} x {work.image_size}, "
        f"{work.device}, {work.precision}, {work.threads} threads, {rounds} rounds; plain against "
        f"plain: {noise.ratio:.3f} ({noise.low:.3f} to {noise.high:.3f})"
    )


def _number(value: float, digits: int) -> str:
    return "-" if value != value else f"{value:,.{digits}f}"


def _span(low: float, high: float) -> str:
    return "-" if low != low else f"{low:.2f}-{high:.2f}"
