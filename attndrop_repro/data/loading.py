"""Images that are handled one at a time, in loader processes if there are any.

A damaged image comes as a message and is raised by the main process: an exception of a worker would
bring the worker's traceback along.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.data.base import ImageSplit
from attndrop_repro.data.image_augmentation import ImageAugmentation
from attndrop_repro.randomness import torch_stream


class Keys(Protocol):
    """Batches of (epoch, row)."""

    def __len__(self) -> int:
        """How many batches."""

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        """The batches, in order."""


def augmented(
    split: ImageSplit,
    augmentation: ImageAugmentation,
    keys: Keys,
    *,
    workers: int,
    pin: bool,
    seed: int,
) -> Iterator[Tensor]:
    """Training images, batch by batch, uint8 (B, C, H, W).

    Args:
        split: Where they are.
        augmentation: What they go through.
        keys: Which ones, and in which epoch.
        workers: Loader processes; 0: none.
        pin: Whether they go to a GPU next.
        seed: The run's seed.

    Raises:
        AttndropError: An image is damaged; the message names its file.
    """
    return _loaded(_Augmented(split, augmentation), keys, workers, pin, seed)


def decoded(split: ImageSplit, rows: list[list[int]], *, workers: int) -> Iterator[Tensor]:
    """Images as evaluation sees them, batch by batch; fails as `augmented` does."""
    return _loaded(_Decoded(split), rows, workers, False, 0)


def _loaded(
    images: Dataset[Tensor | str], keys: Iterable[Any], workers: int, pin: bool, seed: int
) -> Iterator[Tensor]:
    loader: DataLoader[Any] = DataLoader(
        images,
        batch_sampler=keys,
        num_workers=workers,
        collate_fn=_collated,
        worker_init_fn=_quiet if workers else None,
        pin_memory=pin,
        # without a generator of its own the loader draws its seed from the regulariser's
        generator=torch_stream(seed, "loader"),
    )
    for batch in loader:
        if isinstance(batch, str):
            raise AttndropError(batch)
        yield batch


class _Augmented(Dataset[Tensor | str]):
    def __init__(self, split: ImageSplit, augmentation: ImageAugmentation) -> None:
        self.split, self.augmentation = split, augmentation

    def __getitem__(self, key: tuple[int, int]) -> Tensor | str:
        epoch, row = key
        try:
            images = self.split.images
            if isinstance(images, Tensor):
                return self.augmentation(images[row], row, epoch)
            whole = self.augmentation.crop is not None
            image = images.open(row) if whole else images.decode(row)
            return self.augmentation(image, row, epoch)
        except AttndropError as error:
            return str(error)


class _Decoded(Dataset[Tensor | str]):
    def __init__(self, split: ImageSplit) -> None:
        self.split = split

    def __getitem__(self, row: int) -> Tensor | str:
        try:
            return self.split.raw(torch.tensor([row]))[0]
        except AttndropError as error:
            return str(error)


def _collated(items: list[Tensor | str]) -> Tensor | str:
    images = [item for item in items if isinstance(item, Tensor)]
    message = next((item for item in items if isinstance(item, str)), None)
    return torch.stack(images) if message is None else message


def _quiet(_: int) -> None:
    # the main process decides when to stop; a worker must not run its signal handlers
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # torch's own watch looks at the process that forked it, which may be a fork server that lives
    # as long as its workers do: workers of a killed training would never end
    threading.Thread(
        target=_end_with, args=(multiprocessing.parent_process(),), daemon=True
    ).start()


def _end_with(parent: Any) -> None:
    if parent is not None:
        parent.join()
        os._exit(1)
