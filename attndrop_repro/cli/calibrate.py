"""`attndrop calibrate`: calibration errors, and the temperature that mends them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import typer

from attndrop_repro.cli import options as opt
from attndrop_repro.cli.eval import Bins, Corruption, CorruptionDir, FromLogits, Severity, judged
from attndrop_repro.cli.measuring import Target, measure
from attndrop_repro.cli.session import session

if TYPE_CHECKING:
    from attndrop_repro.config.spec import RunSpec
    from attndrop_repro.evaluation.options import CalibrateOptions

EXAMPLE = "Example: attndrop calibrate --run last --bins 10"


def command(
    context: typer.Context,
    run: opt.Run = None,
    recipe: opt.Recipe = None,
    split: opt.Split = None,
    corruption: Corruption = None,
    severity: Severity = None,
    corruption_dir: CorruptionDir = None,
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
    """Measure calibration errors, and a temperature fitted on validation, judged elsewhere."""
    target = Target(
        run, recipe, force, data_dir, download, device,
        {"checkpoint": checkpoint, "model": model, "dataset": dataset, "image_size": image_size,
         "resample_positions": resample_positions},
        from_logits,
    )  # fmt: skip

    def options(spec: RunSpec | None) -> CalibrateOptions:
        found = judged("calibrate", spec, split, (corruption, severity, corruption_dir), bins)
        return cast("CalibrateOptions", found)

    measure(session(context), "calibrate", target, options, lambda spec: (None,), as_json=as_json)
