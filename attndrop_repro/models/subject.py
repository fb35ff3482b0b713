"""What evaluation measures: a model with its data, wherever it was trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from attndrop_repro.adapters import Handle
from attndrop_repro.config.spec import RunSpec
from attndrop_repro.data import Splits
from attndrop_repro.models.pixel import PixelModel


@dataclass
class Subject:
    """A trained model, ready to be measured.

    Attributes:
        model: In eval mode, on its device, without a method in it.
        spec: What it was trained with; None for a model from elsewhere.
        columns: Columns of the results store that are known of it.
        splits: Its data.
        make_handle: Puts the method that it was trained with into the model; the caller removes it.
        epoch: The epoch whose weights these are.
        notes: What a result should say about it, as in a resampled position embedding.
    """

    model: PixelModel
    spec: RunSpec | None
    columns: dict[str, Any]
    splits: Splits
    make_handle: Callable[[], Handle]
    epoch: int | None = None
    notes: dict[str, Any] = field(default_factory=dict)
