"""Training batches in an order that is a function of (seed, epoch, step), and nothing else.

So the sampler's position is one number: the optimiser step. Images in memory are picked by index on
the device they are trained on; only what must be handled one image at a time goes through workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attndrop_repro.config.errors import UsageError
from attndrop_repro.config.recipe import Augmentation
from attndrop_repro.data import mixing
from attndrop_repro.data.base import ImageSplit, Splits, resized, to_float
from attndrop_repro.data.image_augmentation import ImageAugmentation
from attndrop_repro.data.loading import augmented, decoded
from attndrop_repro.data.tensor_augmentation import TensorAugmentation, vectorised
from attndrop_repro.randomness import numpy_stream


@dataclass(frozen=True)
class Batch:
    """What one process trains on in one optimiser step.

    Attributes:
        step: Optimiser step, from 0, over the whole training.
        rows: Positions in the training split, (B,).
        x: Pixels (B, C, H, W).
        y: Labels (B,), or probabilities (B, classes) where batches are mixed.
    """

    step: int
    rows: NDArray[np.int64]
    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class Share:
    """Which part of every batch this process has: `rank` of `world`."""

    rank: int = 0
    world: int = 1


class TrainingBatches:
    """The batches of a whole training.

    Every epoch is a permutation of its own; the images left over when the data do not divide into
    batches sit out that epoch. A data set smaller than a batch is one batch.

    Args:
        splits: The data.
        augmentation: The recipe's section.
        batch_size: Images an optimiser step, over all processes.
        seed: The run's seed.
        label_smoothing: Goes into mixed labels; unmixed ones stay class numbers.
        device: Where batches are wanted.
        dtype: Of the pixels.
        workers: Loader processes, for images that are handled one at a time.
        share: This process's part.

    Raises:
        UsageError: A batch cannot be shared evenly, or cannot be mixed in pairs.
    """

    def __init__(
        self,
        splits: Splits,
        augmentation: Augmentation,
        *,
        batch_size: int,
        seed: int,
        label_smoothing: float = 0.0,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        workers: int = 0,
        share: Share | None = None,
    ) -> None:
        self.split, self.seed, self.share = splits.train, seed, share or Share()
        self.device, self.dtype, self.workers = torch.device(device), dtype, workers
        self.size = self._size(batch_size, augmentation)
        self.steps_per_epoch = len(self.split) // self.size
        self.mixing = None
        if mixing.wanted(augmentation):
            self.mixing = mixing.Mixing(augmentation, len(splits.classes), label_smoothing, seed)
        self._orders: dict[int, NDArray[np.int64]] = {}
        self.by_image: ImageAugmentation | None = None
        if self.split.in_memory and vectorised(augmentation):
            self.by_batch = TensorAugmentation(augmentation, len(self.split), seed)
        else:
            self.by_image = ImageAugmentation(
                augmentation, seed=seed, size=splits.image_size,
                mean=splits.mean, std=splits.std, levels=self.split.levels,
            )  # fmt: skip

    def _size(self, batch_size: int, augmentation: Augmentation) -> int:
        world = self.share.world
        if batch_size % world:
            raise UsageError(
                f"training.batch_size is {batch_size}, which {world} processes cannot share evenly"
            )
        size = min(batch_size, len(self.split) // world * world)
        if size == 0:
            raise UsageError(f"{len(self.split)} training images cannot feed {world} processes")
        if mixing.wanted(augmentation) and size // world % 2:
            raise UsageError(
                f"mixup and CutMix pair images up, but a process has {size // world} of a batch: "
                "choose an even number"
            )
        return size

    def order(self, epoch: int) -> NDArray[np.int64]:
        """The permutation of the training split in an epoch."""
        if epoch not in self._orders:
            while len(self._orders) > 1:  # workers read ahead into the next epoch
                del self._orders[min(self._orders)]
            generator = numpy_stream(self.seed, "order", epoch)
            self._orders[epoch] = generator.permutation(len(self.split))
        return self._orders[epoch]

    def rows(self, step: int) -> NDArray[np.int64]:
        """The rows of the whole batch of an optimiser step, over all processes."""
        epoch, within = divmod(step, self.steps_per_epoch)
        return self.order(epoch)[within * self.size : (within + 1) * self.size]

    def own_rows(self, step: int) -> NDArray[np.int64]:
        """Those of this process."""
        part = self.size // self.share.world
        return self.rows(step)[self.share.rank * part : (self.share.rank + 1) * part]

    def iterate(self, start: int, stop: int) -> Iterator[Batch]:
        """The batches of the optimiser steps from `start` up to `stop`.

        Raises:
            AttndropError: An image is damaged; the message names its file.
        """
        produce = self._by_index if self.by_image is None else self._one_by_one
        for step, rows, images in produce(start, stop):
            labels = self.labels[torch.from_numpy(rows)].to(self.device, non_blocking=True)
            x = to_float(images, self.split.levels, self.dtype)
            x = resized(x, self.split.image_size or None)
            if self.mixing is not None:
                x, labels = self.mixing(x, labels, step)
            yield Batch(step, rows, x, labels)

    @property
    def labels(self) -> Tensor:
        """Labels of the training split."""
        return self.split.labels

    def _by_index(self, start: int, stop: int) -> Iterator[tuple[int, NDArray[np.int64], Tensor]]:
        assert isinstance(self.split.images, Tensor)
        images = self.split.images.to(self.device)
        for step in range(start, stop):
            rows = self.own_rows(step)
            index = torch.from_numpy(rows)
            batch = images.index_select(0, index.to(self.device))
            yield step, rows, self.by_batch(batch, index, step // self.steps_per_epoch)

    def _one_by_one(self, start: int, stop: int) -> Iterator[tuple[int, NDArray[np.int64], Tensor]]:
        assert self.by_image is not None
        steps = range(start, stop)
        images = augmented(
            self.split, self.by_image, _Keys(self, steps), workers=self.workers,
            pin=self.device.type == "cuda", seed=self.seed,
        )  # fmt: skip
        for step, batch in zip(steps, images, strict=True):
            yield step, self.own_rows(step), batch.to(self.device, non_blocking=True)


class _Keys:
    """Batches of (epoch, row) for the loader: one iteration covers all epochs that are left."""

    def __init__(self, batches: TrainingBatches, steps: range) -> None:
        self.batches, self.steps = batches, steps

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        for step in self.steps:
            epoch = step // self.batches.steps_per_epoch
            yield [(epoch, int(row)) for row in self.batches.own_rows(step)]


class HeldOut:
    """Examples for what learns beside the model, from the validation split; by (seed, step) alone.

    Args:
        split: The validation split.
        size: Examples at a time, or all if there are fewer.
        seed: The run's seed.
    """

    def __init__(self, split: ImageSplit, size: int, seed: int) -> None:
        self.split, self.size, self.seed = split, size, seed

    def __call__(
        self, step: int, *, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
    ) -> tuple[Tensor, Tensor]:
        """Pixels (B, C, H, W) and labels (B,) for an optimiser step."""
        order = numpy_stream(self.seed, "held-out", step).permutation(len(self.split))
        rows = torch.from_numpy(order[: self.size])
        pixels = self.split.pixels(rows, device=device, dtype=dtype)
        return pixels, self.split.labels[rows].to(device)


def evaluation_batches(
    split: ImageSplit,
    batch_size: int,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    workers: int = 0,
    share: Share | None = None,
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """A split in its own order, every image once.

    Args:
        split: What to go through.
        batch_size: At most so many images at a time.
        device: Where they are wanted.
        dtype: Of the pixels.
        workers: Loader processes, for images on disk.
        share: This process's part: every `world`-th image from the `rank`-th on, so that no image
            is seen twice and shares may be uneven.

    Yields:
        Pixels (B, C, H, W), labels (B,), rows (B,).
    """
    share = share or Share()
    rows = torch.arange(len(split))[share.rank :: share.world]
    pieces = [rows[i : i + batch_size] for i in range(0, len(rows), batch_size)]
    if split.in_memory or workers == 0:
        for piece in pieces:
            yield (
                split.pixels(piece, device=device, dtype=dtype),
                split.labels[piece].to(device),
                piece,
            )
        return
    images = decoded(split, [piece.tolist() for piece in pieces], workers=workers)
    for piece, batch in zip(pieces, images, strict=True):
        pixels = to_float(batch.to(device), split.levels, dtype)
        yield resized(pixels, split.image_size or None), split.labels[piece].to(device), piece
