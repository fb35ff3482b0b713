"""`attndrop eval`: accuracy, NLL, Brier score and calibration error."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, cast

import typer

from attndrop_repro.cli import options as opt
from attndrop_repro.cli.measuring import Target, measure
from attndrop_repro.cli.session import session

if TYPE_CHECKING:
    from attndrop_repro.config.spec import RunSpec
    from attndrop_repro.evaluation.options import EvalOptions

EXAMPLE = "Example: attndrop eval --run last --split validation"

Corruption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Of the images: noise, blur, contrast, brightness, jpeg."),
]
Severity = Annotated[
    int | None, typer.Option(min=1, max=5, metavar="1..5", help="Of the corruption; default: 3.")
]
Bins = Annotated[int | None, typer.Option(min=1, metavar="N", help="Of the calibration error.")]
FromLogits = Annotated[
    bool, typer.Option("--from-logits", help="Compute anew from stored logits, without a model.")
]


def command(
    context: typer.Context,
    run: opt.Run = None,
    recipe: opt.Recipe = None,
    split: opt.Split = None,
    corruption: Corruption = None,
    severity: Severity = None,
    bins: Bins = None,
    from_logits: FromLogits = False,
    force: opt.Force = False,
    data_dir: opt.DataDir = None,
    download: opt.Download = False,
    device: opt.Device = "auto",
    checkpoint: opt.Checkpoint = None,
    model: opt.Model = None,
    dataset: opt.Dataset = None,
    image_size: opt.ImageSize = None,
    resample_positions: opt.ResamplePositions = False,
    as_json: opt.Json = False,
) -> None:
    """Measure accuracy, NLL, Brier score and calibration error; keep the logits."""
    target = Target(
        run, recipe, force, data_dir, download, device,
        {"checkpoint": checkpoint, "model": model, "dataset": dataset, "image_size": image_size,
         "resample_positions": resample_positions},
        from_logits,
    )  # fmt: skip

    def options(spec: RunSpec | None) -> EvalOptions:
        return judged("eval", spec, split, corruption, severity, bins)

    measure(session(context), "eval", target, options, lambda spec: (None,), as_json=as_json)


def judged(
    kind: str,
    spec: RunSpec | None,
    split: str | None,
    corruption: str | None,
    severity: int | None,
    bins: int | None,
) -> EvalOptions:
    """Options of `eval` and `calibrate`: the recipe's, but for what was said.

    Raises:
        UsageError: A severity without a corruption.
    """
    from attndrop_repro.config.errors import UsageError
    from attndrop_repro.evaluation.options import default_options

    if severity is not None and corruption is None:
        raise UsageError("--severity is of a corruption: give --corruption NAME as well")
    known = cast("EvalOptions", default_options(kind, spec.recipe if spec else None))
    return replace(
        known,
        split=split or known.split,
        bins=bins or known.bins,
        corruption=None if corruption is None else (corruption, severity or 3),
    )
