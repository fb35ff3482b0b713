"""`attndrop calibrate`: calibration errors, and the temperature that mends them."""

from __future__ import annotations

from attndrop_repro.cli.eval import judging

EXAMPLE = "Example: attndrop calibrate --run last --bins 10"

command = judging(
    "calibrate",
    "Measure calibration errors, and a temperature fitted on validation, judged elsewhere.",
)
