"""The losses of the first steps of every method, kept so that a change of meaning is noticed.

Run ``python tests/support/golden.py`` to write them anew, and say in the commit why they changed.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from support.tiny_run import spec_of, trained

import attndrop_repro as attndrop
from attndrop_repro.methods import get

FILE = Path(__file__).parents[1] / "training" / "golden_losses.json"
COMPOSITIONS = ("attentiondrop-hard+consistency", "attentiondrop-blur+consistency")


def names() -> list[str]:
    """Every method that can stand alone, and the paper's two compositions."""
    alone = [name for name in attndrop.methods() if get(name).passes == 1 or name == "rdrop"]
    return [*alone, *COMPOSITIONS]


def losses(name: str) -> list[float]:
    """Of six steps in float64."""
    with tempfile.TemporaryDirectory() as folder:
        spec = spec_of(name, training={"epochs": 1}, runtime={"precision": "fp64"})
        return trained(Path(folder), spec).steps.losses


if __name__ == "__main__":
    FILE.write_text(json.dumps({name: losses(name) for name in names()}, indent=1) + "\n")
