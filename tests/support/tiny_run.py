"""A tiny run: 96 digits, one block of width 16, 6 steps an epoch."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attndrop_repro.config.recipe import Recipe
from attndrop_repro.config.spec import RunSpec
from attndrop_repro.methods import canonical, resolve
from attndrop_repro.store import Store
from attndrop_repro.training import train
from attndrop_repro.training.keeping import Learned, final_weights, load_learned

TINY: dict[str, Any] = {
    "name": "tiny",
    "data": {"name": "digits", "test": 0.25, "validation": 0.1, "train_images": 96},
    "model": {
        "name": "vit_tiny_patch16_224",
        "args": {"patch_size": 4, "embed_dim": 16, "depth": 2, "num_heads": 2, "mlp_ratio": 2},
    },
    "training": {"epochs": 3, "batch_size": 16, "lr": 0.01, "warmup_epochs": 1},
}


def spec_of(
    method: str = "none",
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    **sections: Mapping[str, Any],
) -> RunSpec:
    """The tiny run with other values in its sections: ``training={"epochs": 2}``."""
    content = {**TINY, **{k: {**TINY.get(k, {}), **v} for k, v in sections.items()}}
    resolved = resolve(method, settings or {})
    return RunSpec(
        recipe=Recipe.model_validate(content),
        method=canonical(method),
        settings={part: value.model_dump(mode="json") for part, value in resolved.items()},
        seed=seed,
    )


@dataclass
class Steps:
    """What every step was: an observer."""

    losses: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    rows: list[list[int]] = field(default_factory=list)
    pixels: list[str] = field(default_factory=list)
    stop_after: int | None = None

    def __call__(self, batch: Any, loss: Tensor, rate: float) -> None:
        self.losses.append(float(loss))
        self.rates.append(rate)
        self.rows.append(batch.rows.tolist())
        self.pixels.append(hashlib.sha256(batch.x.cpu().numpy().tobytes()).hexdigest())
        if self.stop_after is not None and len(self.losses) == self.stop_after:
            raise Stopped


class Stopped(BaseException):
    """Stands for a kill in the middle of a training."""


@dataclass
class Ended:
    """How a run ended."""

    learned: Learned
    history: list[dict[str, Any]]
    status: dict[str, Any]
    steps: Steps

    @property
    def weights(self) -> dict[str, Tensor]:
        """By the network's own names."""
        return self.learned.weights

    def same_as(self, other: Ended) -> bool:
        """Whether weights, what the method has learned, and history agree bit by bit."""
        mine, theirs = self.learned.tensors, other.learned.tensors
        return (
            self.history == other.history
            and self.learned.method == other.learned.method
            and mine.keys() == theirs.keys()
            and all(torch.equal(mine[name], theirs[name]) for name in mine)
        )


def trained(root: Path, spec: RunSpec, **options: Any) -> Ended:
    """Trains and reads back what is on disk."""
    steps = Steps()
    store = Store(root)
    train(spec, store, device="cpu", observe=steps, **options)
    return ended(store, spec, steps)


def ended(store: Store, spec: RunSpec, steps: Steps | None = None) -> Ended:
    """What a finished run left on disk."""
    run = store.run_dir(spec.run_id)
    return Ended(load_learned(final_weights(run))[0], run.history(), run.status(), steps or Steps())


class Said:
    """Keeps what is said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def update(self, done: float, total: float, **fields: object) -> None:
        """Progress is not kept."""

    def say(self, message: str) -> None:
        """Keeps a line."""
        self.lines.append(message)
