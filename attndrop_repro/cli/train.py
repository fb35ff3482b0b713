"""`attndrop train`: trains by a recipe, or goes on with what is unfinished."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attndrop_repro.cli.options import DataDir, Device, Download, Precision, Resume
from attndrop_repro.cli.session import session

if TYPE_CHECKING:
    from attndrop_repro.config.spec import RunSpec

EXAMPLE = "Example: attndrop train --recipe digits-vit --method dropkey --seed 0 --seed 1"


def command(
    context: typer.Context,
    recipe: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="What to train; see attndrop recipes.")
    ],
    method: Annotated[
        str | None,
        typer.Option(metavar="METHOD", help="Instead of the recipe's own; a+b combines."),
    ] = None,
    seed: Annotated[
        list[int] | None,
        typer.Option(min=0, metavar="N", help="Of the run; repeat it for more runs; default: 0."),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Changes the recipe, as in training.epochs=3, dropkey.p=0.2 or p=0.2.",
        ),
    ] = None,
    data_dir: DataDir = None,
    download: Download = False,
    device: Device = "auto",
    precision: Annotated[
        Precision | None, typer.Option(help="Short for --set runtime.precision=P.")
    ] = None,
    compiled: Annotated[
        bool, typer.Option("--compile", help="Short for --set runtime.compile=true.")
    ] = False,
    workers: Annotated[
        int, typer.Option(min=0, metavar="N", help="Processes that load images from disk.")
    ] = 0,
    init_from: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Weights to start from, as a timm state dict."),
    ] = None,
    resume: Annotated[
        Resume,
        typer.Option(help="auto: where there is a checkpoint; must: or fail; never: from scratch."),
    ] = "auto",
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Print the whole recipe, steps, parameters and time; train nothing.",
        ),
    ] = False,
) -> None:
    """Train a model; goes on by itself after any kill, and says so when there is nothing to do."""
    from attndrop_repro.config.load import load_recipe
    from attndrop_repro.experiments.specs import make_specs

    here = session(context)
    changes = list(overrides or ())
    if precision is not None:
        changes.append(f"runtime.precision={precision}")
    if compiled:
        changes.append("runtime.compile=true")
    weights = None
    if init_from is not None:
        from attndrop_repro.models.weights import content_hash

        weights = content_hash(init_from)
    specs = make_specs(load_recipe(recipe, changes), method, seed or [0], weights)
    if dry_run:
        _describe(specs[0], data_dir, device, download)
        return
    from attndrop_repro.training import train

    store = here.store()
    for spec in specs:
        with here.progress(spec.run_id) as progress:
            result = train(
                spec,
                store,
                data_dir=data_dir,
                device=device,
                workers=workers,
                resume=resume,
                progress=progress,
                download=download,
                init_from=init_from,
            )
        if os.environ.get("RANK", "0") == "0":  # under torchrun one of the processes talks
            print(result.run_id)


def _describe(spec: RunSpec, data_dir: Path | None, device: str, download: bool) -> None:
    from attndrop_repro.cli.progress import duration
    from attndrop_repro.experiments.dry_run import described, estimate

    size = estimate(spec, data_dir=data_dir, device=device, download=download)
    print(described(spec, size, duration(size.seconds)), end="")
