"""The numbers that the papers claim, with table, cell and provenance."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import yaml


@cache
def claims() -> dict[str, Any]:
    """`claims.yaml` as nested mappings; accuracies in %, BLEU in points."""
    text = files(__package__).joinpath("claims.yaml").read_text(encoding="utf-8")
    loaded = yaml.safe_load(text)
    assert isinstance(loaded, dict)
    return loaded
