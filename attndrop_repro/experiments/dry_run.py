"""What a training would come to: its recipe in full, steps, parameters, and a measured estimate."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from attndrop_repro.config.load import dump_recipe
from attndrop_repro.config.spec import RunSpec
from attndrop_repro.randomness import seed_regulariser

_MOST_STEPS, _MOST_SECONDS = 10, 10.0


@dataclass(frozen=True)
class Estimate:
    """The size of a run.

    Attributes:
        steps: Optimiser steps.
        steps_per_epoch: Likewise, an epoch.
        parameters: Of the model that are trained.
        seconds_per_step: Median of the steps tried.
        tried: How many steps that were.
        device: Where.
    """

    steps: int
    steps_per_epoch: int
    parameters: int
    seconds_per_step: float
    tried: int
    device: str

    @property
    def seconds(self) -> float:
        """Of all training steps; validation and checkpoints come on top."""
        return self.steps * self.seconds_per_step


def estimate(
    spec: RunSpec, *, data_dir: Path | None = None, device: str = "auto", download: bool = False
) -> Estimate:
    """Trains for a few steps and throws the result away; nothing is written.

    Args:
        spec: The run.
        data_dir: Folder with the data set's files.
        device: As for training.
        download: Whether missing data may be fetched.
    """
    import torch

    from attndrop_repro import data, models
    from attndrop_repro.adapters import apply
    from attndrop_repro.data.batches import TrainingBatches
    from attndrop_repro.training.machine import Machine, numerics
    from attndrop_repro.training.trainer import Trainer

    recipe = spec.recipe
    with numerics(recipe.runtime):
        machine = Machine(recipe.runtime, device)
        torch.set_num_threads(recipe.runtime.threads)
        splits = data.load(recipe.data, data_dir=data_dir, download=download)
        batches = TrainingBatches(
            splits, recipe.training.augmentation, batch_size=recipe.training.batch_size,
            seed=spec.seed, label_smoothing=recipe.training.label_smoothing,
            device=machine.device, dtype=machine.dtype,
        )  # fmt: skip
        model = models.build(
            recipe.model, classes=splits.classes, image_size=splits.image_size,
            channels=splits.channels, mean=splits.mean, std=splits.std, seed=spec.seed,
        ).to(machine.device, machine.dtype)  # fmt: skip
        handle = apply(model, spec.method, spec.settings)
        trainer = Trainer(model, handle, recipe.training, machine, batches.steps_per_epoch)
        seed_regulariser(spec.seed)
        times: list[float] = []
        started = before = time.perf_counter()
        for batch in batches.iterate(0, min(_MOST_STEPS + 1, trainer.total)):
            loss, _ = trainer.step(batch)
            loss.item()  # waits for the device
            now = time.perf_counter()
            times.append(now - before)
            if now - started > _MOST_SECONDS:
                break
            before = now
        handle.remove()
    warm = times[1:] or times  # the first step pays for what is set up once
    return Estimate(
        steps=trainer.total,
        steps_per_epoch=batches.steps_per_epoch,
        parameters=sum(p.numel() for p in trainer.parameters),
        seconds_per_step=statistics.median(warm),
        tried=len(warm),
        device=machine.device.type,
    )


def described(spec: RunSpec, size: Estimate, duration: str) -> str:
    """The resolved recipe as YAML, headed by what it comes to; it can be used as a recipe file.

    Args:
        spec: The run.
        size: Its estimate.
        duration: `size.seconds` in words.
    """
    threads = spec.recipe.runtime.threads
    where = size.device + (f", {threads} threads" if threads > 1 else ", 1 thread")
    head = [
        f"run:        {spec.run_id}",
        f"steps:      {size.steps} ({spec.recipe.training.epochs} epochs of "
        f"{size.steps_per_epoch})",
        f"parameters: {size.parameters:,}",
        f"time:       about {duration} a run ({where}; measured on {size.tried} steps)",
    ]
    lines = "".join(f"# {line}\n" for line in head)
    return lines + dump_recipe(spec.resolved_recipe)
