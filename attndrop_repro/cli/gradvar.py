"""`attndrop gradvar`: the variance of the gradient, with and without the regulariser."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from attndrop_repro.cli import options as opt
from attndrop_repro.cli.measuring import Target, measure
from attndrop_repro.cli.session import session

if TYPE_CHECKING:
    from attndrop_repro.config.spec import RunSpec
    from attndrop_repro.evaluation.options import GradvarOptions
    from attndrop_repro.experiments.measuring import Epochs

EXAMPLE = "Example: attndrop gradvar --run last --epoch 0 --epoch 25 --draws 8"

PerWhat = Literal["sample", "batch"]


def command(
    context: typer.Context,
    epoch: Annotated[
        list[int] | None,
        typer.Option(
            min=0, metavar="N", help="Of kept weights; repeat it; default: the recipe's epochs."
        ),
    ] = None,
    examples: Annotated[
        int | None, typer.Option(min=2, metavar="N", help="How many; default: the recipe's.")
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Perturbations of each; default: the recipe's."),
    ] = None,
    per: Annotated[
        PerWhat, typer.Option(help="Gradients of single examples or of batches (A15).")
    ] = "sample",
    perturbation: Annotated[
        PerWhat, typer.Option(help="A draw for each example, or one for a batch (A15).")
    ] = "sample",
    layers: Annotated[bool, typer.Option("--layers", help="Keep every layer's share too.")] = False,
    run: opt.Run = None,
    recipe: opt.Recipe = None,
    split: opt.Split = None,
    force: opt.Force = False,
    data_dir: opt.DataDir = None,
    download: opt.Download = False,
    device: opt.Device = "auto",
    checkpoint: opt.Checkpoint = None,
    model: opt.Model = None,
    dataset: opt.Dataset = None,
    image_size: opt.ImageSize = None,
    resample_positions: opt.ResamplePositions = False,
    method: opt.Method = None,
    as_json: opt.Json = False,
) -> None:
    """Measure the gradient's variance in training mode, and the terms of the paper's lemma 1."""
    from attndrop_repro.evaluation.options import default_options
    from attndrop_repro.evaluation.wanted import measured_epochs

    target = Target(
        run, recipe, force, data_dir, download, device,
        {"checkpoint": checkpoint, "model": model, "dataset": dataset, "image_size": image_size,
         "resample_positions": resample_positions, "method": method},
    )  # fmt: skip

    def options(spec: RunSpec | None) -> GradvarOptions:
        known = cast("GradvarOptions", default_options("gradvar", spec.recipe if spec else None))
        return replace(
            known,
            split=split or known.split,
            examples=examples or known.examples,
            draws=draws or known.draws,
            per=per,
            perturbation=perturbation,
            layers=layers,
        )

    def epochs(spec: RunSpec) -> Epochs:
        return tuple(epoch) if epoch else measured_epochs("gradvar", spec.recipe)

    measure(session(context), "gradvar", target, options, epochs, as_json=as_json)
