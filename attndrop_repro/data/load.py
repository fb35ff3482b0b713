"""`load`: from a recipe's data section to train, validation and test."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from attndrop_repro.config.errors import UsageError
from attndrop_repro.config.recipe import Data
from attndrop_repro.data import registry
from attndrop_repro.data.base import ImageSplit, Splits
from attndrop_repro.data.registry import Raw, Request, Source
from attndrop_repro.data.splitting import mislabelled, stratified, stratified_count


def load(data: Data, *, data_dir: Path | str | None = None, download: bool = False) -> Splits:
    """Reads a data set and splits it as the recipe says.

    Args:
        data: The recipe's data section.
        data_dir: Folder with the data set's files; digits need none.
        download: Gets what is missing, where the data set can be had that way.

    Returns:
        Train, validation and test. Validation is a stratified share of the training data; the
        test set is the published one, or a share that is split off first where none is published.

    Raises:
        UsageError: The data set is unknown, the folder is not there, or the recipe asks for what
            the data cannot give.
        AttndropError: Files are absent or damaged.
    """
    entry = registry.get(data.name)
    folder = Path(data_dir) if data_dir else None
    if folder is not None and not folder.is_dir() and not (download and entry.downloads):
        what = "no folder" if folder.exists() else "not there"
        raise UsageError(
            f"--data-dir {folder} is {what}: name the folder with the data set's files"
        )
    source = entry.read(Request(data, folder, download))
    train, test = _train_and_test(data, source)
    rest, held_out = stratified(
        train.labels.numpy(), data.validation, data.split_seed, "validation-split"
    )
    _none_empty(data, {"train": len(rest), "validation": len(held_out), "test": len(test)})
    validation = train.take(torch.from_numpy(held_out), "validation")
    train = train.take(torch.from_numpy(rest))
    train = _noisy(data, _chosen(data, train))
    mean, std = source.mean, source.std
    if mean is None or std is None:
        mean, std = statistics(train)
    return Splits(
        train, validation, test, mean, std, source.checksum, source.classes,
        data.image_size or source.image_size, source.channels,
    )  # fmt: skip


def _train_and_test(data: Data, source: Source) -> tuple[ImageSplit, ImageSplit]:
    size = data.image_size or source.image_size

    def whole(raw: Raw, name: str) -> ImageSplit:
        ids = torch.arange(len(raw.labels))
        return ImageSplit(name, raw.images, raw.labels, ids, source.classes, source.levels, size)

    train = whole(source.train, "train")
    if source.test is not None:
        if data.test is not None:
            raise UsageError(
                f"data.test is for data sets without a test set; {data.name} has one: leave it out"
            )
        return train, whole(source.test, "test")
    if data.test is None:
        raise UsageError(f"{data.name} has no test set of its own: set data.test, as in 0.25")
    rest, held_out = stratified(train.labels.numpy(), data.test, data.split_seed, "test-split")
    return train.take(torch.from_numpy(rest)), train.take(torch.from_numpy(held_out), "test")


def _chosen(data: Data, train: ImageSplit) -> ImageSplit:
    if data.train_images is None:
        return train
    if data.train_images > len(train):
        raise UsageError(
            f"data.train_images is {data.train_images}, but {data.name} has {len(train)} training "
            "images after the validation split"
        )
    _, rows = stratified_count(
        train.labels.numpy(), data.train_images, data.split_seed, "train-images"
    )
    return train.take(torch.from_numpy(rows))


def _noisy(data: Data, train: ImageSplit) -> ImageSplit:
    # validation and test labels stay right: they are what the methods are judged on
    if data.label_noise == 0:
        return train
    if len(train.classes) < 2:
        raise UsageError("data.label_noise needs at least two classes")
    labels = mislabelled(
        train.labels.numpy(), len(train.classes), data.label_noise, data.split_seed
    )
    return ImageSplit(
        train.name, train.images, torch.from_numpy(labels), train.ids, train.classes,
        train.levels, train.image_size,
    )  # fmt: skip


def _none_empty(data: Data, sizes: dict[str, int]) -> None:
    empty = [name for name, size in sizes.items() if size == 0]
    if empty:
        raise UsageError(
            f"{data.name} is too small for these shares: no image is left for {', '.join(empty)}"
        )


def statistics(split: ImageSplit) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of all pixels of an in-memory split, per channel, in float64."""
    images = split.images
    assert isinstance(images, Tensor), "sources that stay on disk bring their own statistics"
    by_channel = images.movedim(1, 0).flatten(1).numpy()
    # sums of small integers are exact in any order, so the figures are the same everywhere
    count = by_channel.shape[1]
    total = by_channel.sum(axis=1, dtype=np.int64)
    squares = np.array([int(np.square(row, dtype=np.int64).sum()) for row in by_channel])
    mean = total / count / split.levels
    variance = squares / count / split.levels**2 - mean**2
    std = np.sqrt(np.maximum(variance, 0.0))
    std[std == 0] = 1.0  # constant images: centred, not scaled
    return tuple(float(m) for m in mean), tuple(float(s) for s in std)
