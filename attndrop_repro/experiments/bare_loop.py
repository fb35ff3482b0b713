"""A training loop as one writes it by hand: what `bench --loop` holds the product's own against."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attndrop_repro import models
from attndrop_repro.adapters import Handle, apply
from attndrop_repro.config.spec import RunSpec
from attndrop_repro.data import Splits
from attndrop_repro.data.base import resized, to_float
from attndrop_repro.data.batches import TrainingBatches, evaluation_batches
from attndrop_repro.evaluation.workload import AUTOCAST
from attndrop_repro.training.optimisation import Averaged, optimizer
from attndrop_repro.training.schedule import Schedule
from attndrop_repro.training.trainer import criterion


class BareLoop:
    """The steps of a run and nothing around them: same weights, batches, optimiser and rates.

    It keeps no history and no checkpoints, checks nothing, and shows nothing; as anybody's loop
    would, it adds the losses up and goes through the validation split once an epoch.

    Args:
        spec: The run.
        splits: Its data.
        device: Where.
        workers: Loader processes, for images that are handled one at a time.
    """

    def __init__(
        self, spec: RunSpec, splits: Splits, device: torch.device, workers: int = 0
    ) -> None:
        recipe, self.splits, self.device = spec.recipe, splits, device
        self.training, self.seed = recipe.training, spec.seed
        precision = recipe.runtime.precision
        self.dtype = torch.float64 if precision == "fp64" else torch.float32
        self.autocast, self.evaluated = AUTOCAST.get(precision), recipe.evaluation.batch_size
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")
        self.batches = TrainingBatches(
            splits, self.training.augmentation, batch_size=self.training.batch_size,
            seed=spec.seed, label_smoothing=self.training.label_smoothing, device=device,
            dtype=self.dtype, workers=workers,
        )  # fmt: skip
        self.model = models.build_for(recipe.model, splits, spec.seed).to(device, self.dtype)
        self.handle: Handle | None = None
        if spec.method != "none":
            self.handle = apply(self.model, spec.method, spec.settings)
        self.optimizer = optimizer(self.model.network, self.training)
        self.schedule = Schedule(self.optimizer, self.training, self.batches.steps_per_epoch)
        self.criterion = criterion(self.training)
        decay = self.training.ema
        self.averaged = None if decay is None else Averaged(self.model.network, decay)
        self.forward: Callable[..., Any] = self.model
        if recipe.runtime.compile:
            self.forward = torch.compile(self.model, options={"fallback_random": True})
        self.losses = torch.zeros((), dtype=self.dtype, device=device)
        self.images: Tensor | None = None
        if isinstance(splits.train.images, Tensor) and not self._augments():
            self.images = splits.train.images.to(device)
            self.labels = splits.train.labels.to(device)

    def _augments(self) -> bool:
        batches = self.batches
        if batches.by_image is not None or batches.mixing is not None:
            return True
        return bool(batches.by_batch.reaches or batches.by_batch.flip)

    def advance(self, start: int, stop: int) -> None:
        """Validates where an epoch has ended at `start`, and makes the steps up to `stop`."""
        if start and start % self.batches.steps_per_epoch == 0:
            self.validate()
        self.model.train()
        parts = self.training.accumulate
        for step, x, y in self._batches(start, stop):
            self.schedule.set(step)
            self.optimizer.zero_grad(set_to_none=True)
            for part, wanted in zip(x.tensor_split(parts), y.tensor_split(parts), strict=True):
                loss = self._loss(step, part, wanted)
                if parts > 1:
                    loss = loss * (len(part) / len(x))
                self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
                self.losses += loss.detach()
            if self.training.clip_grad is not None:
                self.scaler.unscale_(self.optimizer)
                nn.utils.clip_grad_norm_(self.model.parameters(), self.training.clip_grad)
            self.scaler.step(self.optimizer)
            self.scaler.update()
            if self.averaged is not None:
                self.averaged.update()
            if self.handle is not None:
                self.handle.update(x, y, self.criterion)

    def _loss(self, step: int, x: Tensor, y: Tensor) -> Tensor:
        with self._precision():
            if self.handle is None:
                return self.criterion(self.forward(x), y)
            self.handle.at(step, self.training.epochs * self.batches.steps_per_epoch)
            return self.handle.loss(x, y, self.criterion, forward=self.forward)

    def _precision(self) -> torch.autocast:
        return torch.autocast(self.device.type, self.autocast, enabled=self.autocast is not None)

    def _batches(self, start: int, stop: int) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Images in memory are picked by index; where more is done, the batches are the product's.

        So the loop pays for nothing but what it must.
        """
        if self.images is None:
            for batch in self.batches.iterate(start, stop):
                yield batch.step, batch.x, batch.y
            return
        split = self.splits.train
        for step in range(start, stop):
            rows = torch.from_numpy(self.batches.rows(step)).to(self.device)
            x = to_float(self.images[rows], split.levels, self.dtype)
            yield step, resized(x, split.image_size or None), self.labels[rows]

    @torch.no_grad()
    def validate(self) -> tuple[float, float]:
        """Accuracy and mean loss on the validation split."""
        self.model.eval()
        split, correct, loss = self.splits.validation, 0.0, 0.0
        for x, y, _ in evaluation_batches(
            split, self.evaluated, device=self.device, dtype=self.dtype,
            workers=self.batches.workers,
        ):  # fmt: skip
            with self._precision():
                logits = self.model(x)
            correct += (logits.argmax(1) == y).sum().item()
            loss += F.cross_entropy(logits.float(), y, reduction="sum").item()
        return correct / len(split), loss / len(split)
