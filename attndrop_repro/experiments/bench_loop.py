"""What the training loop costs beside the steps themselves: the product's against a bare one.

The product's is `train` itself, whole, with validation, history, progress and checkpoints as the
recipe has them. Every few steps it stands still while two bare loops make the same steps: so all
three meet the same machine, and the second bare one against the first is the noise.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attndrop_repro import data
from attndrop_repro.config.progress import Progress, Silent
from attndrop_repro.config.recipe import Recipe
from attndrop_repro.data.batches import Batch
from attndrop_repro.experiments.bare_loop import BareLoop
from attndrop_repro.experiments.benched import columns
from attndrop_repro.experiments.specs import make_specs
from attndrop_repro.store import Store
from attndrop_repro.store.schema import Measurement
from attndrop_repro.training import train
from attndrop_repro.training.machine import chosen_device
from attndrop_repro.training.signals import Interrupted

_TOGETHER = 10  # steps that each loop makes before another has its turn


@dataclass(frozen=True)
class LoopCost:
    """The product's training loop over a bare one.

    Attributes:
        method: What was trained with.
        ratio: Median over rounds of the product's time over the bare loop's.
        low: Lower quartile.
        high: Upper quartile.
        steps_ratio: The same of the steps alone, without what an epoch's end brings: validation,
            history, checkpoints.
        noise: The same of the second bare loop over the first.
        noise_low: Its lower quartile.
        noise_high: Its upper quartile.
        milliseconds: A step of the product's loop, all told, from the median round.
        bare_milliseconds: A step of the bare loop.
        steps: Optimiser steps a round.
        epochs: Epochs a round: so many that its share of checkpoints is the recipe's.
        rounds: How many were timed.
    """

    method: str
    ratio: float
    low: float
    high: float
    steps_ratio: float
    noise: float
    noise_low: float
    noise_high: float
    milliseconds: float
    bare_milliseconds: float
    steps: int
    epochs: int
    rounds: int


def bench_loop(
    recipe: Recipe,
    *,
    method: str | None = None,
    device: str = "cpu",
    data_dir: Path | None = None,
    download: bool = False,
    workers: int = 0,
    rounds: int = 15,
    progress: Progress | None = None,
) -> LoopCost:
    """Trains three times side by side and compares; nothing is kept.

    Args:
        recipe: What is trained; its number of epochs does not matter.
        method: Instead of the recipe's.
        device: "auto", "cpu", "cuda", ...
        data_dir: Folder with the data set's files.
        download: Gets missing data, where that is possible.
        workers: Loader processes, for images that are handled one at a time.
        rounds: How many are timed, after one that is not.
        progress: What to report to.
    """
    # the recipe's share of checkpoints in every round, and of epochs' ends
    epochs = max(1, round(recipe.training.checkpoint_every))
    total = epochs * (rounds + 1)
    training = recipe.training.model_copy(update={"epochs": total, "snapshots": ()})
    (spec,) = make_specs(recipe.model_copy(update={"training": training}), method)
    place = torch.device(chosen_device(device))
    splits = data.load(recipe.data, data_dir=data_dir, download=download)
    lanes = [BareLoop(spec, splits, place, workers) for _ in range(2)]
    turns = _Turns(lanes, epochs * lanes[0].batches.steps_per_epoch, _clock(place))
    display = _Rounds(progress or Silent())
    with tempfile.TemporaryDirectory(prefix="attndrop-bench-") as folder:
        try:
            train(
                spec, Store(folder), data_dir=data_dir, device=device, workers=workers,
                download=download, progress=display, observe=turns,
            )  # fmt: skip
        except Interrupted as stop:
            raise Interrupted("interrupted; nothing of it is kept", stop.signal) from None
    whole, inside = np.asarray(turns.whole[1:-1]).T, np.asarray(turns.inside[1:-1]).T
    ours, bare, again = whole
    steps = turns.steps
    return LoopCost(
        spec.method, *_quartiles(ours / bare), _quartiles(inside[0] / inside[1])[0],
        *_quartiles(again / bare), 1e3 * float(np.median(ours)) / steps,
        1e3 * float(np.median(bare)) / steps, steps, epochs, rounds,
    )  # fmt: skip


def _quartiles(ratios: NDArray[np.float64]) -> tuple[float, float, float]:
    """Median, lower and upper quartile."""
    low, middle, high = np.quantile(ratios, (0.25, 0.5, 0.75))
    return float(middle), float(low), float(high)


def loop_measurements(
    found: LoopCost, recipe: Recipe, device: str
) -> tuple[dict[str, Any], list[Measurement]]:
    """What the store keeps: columns and measurements."""
    told = {"label": "training loop", "epochs": found.epochs, "steps": found.steps}
    known = columns(
        recipe.model.name, told, method=found.method, recipe=recipe.name,
        dataset=recipe.data.name, precision=recipe.runtime.precision, device=device,
        threads=recipe.runtime.threads,
    )  # fmt: skip
    detail = {"label": told["label"], **asdict(found)}
    measured: Measurement = {
        "metric": "loop_time_ratio", "value": found.ratio, "split": "train",
        "n": recipe.training.batch_size, "detail": detail,
    }  # fmt: skip
    return known, [measured]


@dataclass
class _Turns:
    """Called after every step of the product's loop: lets the bare ones catch up, by the clock.

    What the product does at the end of an epoch falls into its next turn; so the first round, in
    which that is missing and everything is cold, does not count.
    """

    lanes: list[BareLoop]
    steps: int
    clock: Callable[[], float]
    whole: list[list[float]] = field(default_factory=list)
    inside: list[list[float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.epoch = self.lanes[0].batches.steps_per_epoch
        self.together = min(_TOGETHER, -(-self.epoch // 2))  # some turn must have steps alone
        self.done, self.turn = 0, 0
        self._begin()
        self.resumed = self.clock()

    def _begin(self) -> None:
        self.whole.append([0.0] * (1 + len(self.lanes)))
        self.inside.append([0.0] * (1 + len(self.lanes)))

    def __call__(self, batch: Batch, loss: Tensor, rate: float) -> None:
        step = batch.step + 1
        if step % self.epoch % self.together:
            return
        taken = [self.clock() - self.resumed] + [0.0] * len(self.lanes)
        # who goes first finds other caches
        self.turn += 1
        for index in range(len(self.lanes)):
            number = (index + self.turn) % len(self.lanes)
            start = self.clock()
            self.lanes[number].advance(self.done, step)
            taken[1 + number] = self.clock() - start
        for lane, seconds in enumerate(taken):
            self.whole[-1][lane] += seconds
            if self.done % self.epoch:
                self.inside[-1][lane] += seconds
        self.done = step
        if step % self.steps == 0:
            self._begin()
        self.resumed = self.clock()


class _Rounds:
    """The training's own reports, as often as it makes them, without what is not true here."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress

    def update(self, done: float, total: float, **fields: object) -> None:
        fields.pop("images_per_second", None)  # the bare loops' time is in it
        self.progress.update(done, total, **fields)

    def say(self, message: str) -> None:
        self.progress.say(message)


def _clock(device: torch.device) -> Callable[[], float]:
    """Seconds, once all that was asked of the device is done."""

    def now() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    return now
