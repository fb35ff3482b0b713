"""Who waits for whom in training: what the loader gives, and what the model takes."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attndrop_repro import data, models
from attndrop_repro.adapters import apply
from attndrop_repro.config.progress import Progress, Silent
from attndrop_repro.config.recipe import Recipe
from attndrop_repro.config.spec import RunSpec
from attndrop_repro.data import Splits
from attndrop_repro.data.batches import Batch, TrainingBatches
from attndrop_repro.evaluation.step_cost import Clock
from attndrop_repro.experiments.benched import columns
from attndrop_repro.experiments.specs import make_specs
from attndrop_repro.store.schema import Measurement
from attndrop_repro.training.machine import Machine, numerics
from attndrop_repro.training.trainer import Trainer

_AHEAD = 2  # batches that every worker has ready: torch's own default


@dataclass(frozen=True)
class DataCost:
    """Rates of the two halves of a training.

    Attributes:
        method: What was trained with.
        loader_images_per_second: The loader alone, with these workers.
        model_images_per_second: Training steps alone, on a batch that is there.
        limit: "loader" or "model": the slower one.
        workers: Loader processes that were used.
        workers_needed: So many would keep up with the model; None where the data never use any.
        cores: Of this machine.
        batch_size: Images a step.
        rounds: Batches and steps that were timed.
    """

    method: str
    loader_images_per_second: float
    model_images_per_second: float
    limit: str
    workers: int
    workers_needed: int | None
    cores: int
    batch_size: int
    rounds: int

    @property
    def ratio(self) -> float:
        """What the loader gives over what the model takes; below 1 the loader is the limit."""
        return self.loader_images_per_second / self.model_images_per_second

    @property
    def verdict(self) -> str:
        """What it comes to, in one line."""
        loader, model = self.loader_images_per_second, self.model_images_per_second
        rates = f"the loader gives {loader:,.0f} images/s, the model takes {model:,.0f}"
        line = f"the {self.limit} is the limit: {rates}"
        if self.workers_needed is None:
            return f"{line}; these data are in memory and use no workers"
        how = _workers(self.workers) if self.workers else "no workers, so they take turns"
        line += f" ({how}); {_workers(self.workers_needed)} would suffice"
        if self.workers_needed > self.cores:
            line += f", but there are {self.cores} cores"
        return line


def _workers(number: int) -> str:
    return f"{number} worker{'' if number == 1 else 's'}"


def bench_data(
    recipe: Recipe,
    *,
    method: str | None = None,
    device: str = "cpu",
    data_dir: Path | None = None,
    download: bool = False,
    workers: int = 0,
    rounds: int = 15,
    progress: Progress | None = None,
) -> DataCost:
    """Times the loader without a model, and the model without a loader.

    Args:
        recipe: Whose data, model and batch.
        method: Instead of the recipe's.
        device: "auto", "cpu", "cuda", ...
        data_dir: Folder with the data set's files.
        download: Gets missing data, where that is possible.
        workers: Loader processes.
        rounds: Batches and steps to be timed.
        progress: What to report to.
    """
    report = progress or Silent()
    (spec,) = make_specs(recipe, method)
    with numerics(recipe.runtime):
        machine = Machine(recipe.runtime, device)
        torch.set_num_threads(recipe.runtime.threads)  # accelerate may have set its own
        splits = data.load(recipe.data, data_dir=data_dir, download=download)
        batches = TrainingBatches(
            splits, recipe.training.augmentation, batch_size=recipe.training.batch_size,
            seed=spec.seed, label_smoothing=recipe.training.label_smoothing,
            device=machine.device, dtype=machine.dtype, workers=workers,
        )  # fmt: skip
        by_image = batches.by_image is not None
        used = workers if by_image else 0
        batch, loader = _loader(batches, used, rounds, machine.device, report)
        model = _model(spec, splits, machine, batch, batches.steps_per_epoch, rounds, report)
    # a process that loads beside the training costs what one that loads alone costs
    needed = math.ceil(model / (loader / max(1, used))) if by_image else None
    return DataCost(
        spec.method, loader, model, "loader" if loader < model else "model", used, needed,
        os.cpu_count() or 1, batches.size, rounds,
    )  # fmt: skip


def data_measurements(
    found: DataCost, recipe: Recipe, device: str
) -> tuple[dict[str, Any], list[Measurement]]:
    """What the store keeps: columns and measurements."""
    told = {"label": "data", "workers": found.workers, "batch_size": found.batch_size}
    known = columns(
        recipe.model.name, told, method=found.method, recipe=recipe.name,
        dataset=recipe.data.name, precision=recipe.runtime.precision, device=device,
        threads=recipe.runtime.threads,
    )  # fmt: skip
    shared: Measurement = {
        "split": "train", "n": found.batch_size, "detail": {**told, **asdict(found)},
    }  # fmt: skip
    values = {
        "loader_images_per_second": found.loader_images_per_second,
        "model_images_per_second": found.model_images_per_second,
    }
    return known, [{**shared, "metric": name, "value": value} for name, value in values.items()]


def _loader(
    batches: TrainingBatches, workers: int, rounds: int, device: torch.device, report: Progress
) -> tuple[Batch, float]:
    """A batch, and images a second once what the workers had ready at the start is gone."""
    ready = 1 + _AHEAD * workers
    total = ready + max(rounds, _AHEAD * workers)
    stream: Iterator[Batch] = batches.iterate(0, total)
    start = 0.0
    for number in range(1, total + 1):
        batch = next(stream)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        report.update(number, total, loader=f"{workers} workers")
        if number == ready:
            start = time.perf_counter()
    return batch, (total - ready) * batches.size / (time.perf_counter() - start)


def _model(
    spec: RunSpec,
    splits: Splits,
    machine: Machine,
    batch: Batch,
    steps_per_epoch: int,
    rounds: int,
    report: Progress,
) -> float:
    """Images a second of whole training steps, from their median."""
    model = models.build_for(spec.recipe.model, splits, spec.seed).to(machine.device, machine.dtype)
    handle = apply(model, spec.method, spec.settings)
    trainer = Trainer(model, handle, spec.recipe.training, machine, steps_per_epoch)
    clock, seconds = Clock(machine.device), []
    for turn in range(-1, rounds):
        taken = clock.time(lambda: trainer.step(batch))
        report.update(turn + 2, rounds + 1, model=spec.recipe.model.name)
        if turn >= 0:
            seconds.append(taken)
    return len(batch.x) / float(np.median(seconds))
