"""What a data set is to the rest of the product: three splits of images with labels.

Shapes: N images, C channels, H and W pixels; pixels reach models as floats in [0, 1].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor


class Lazy(Protocol):
    """Images that stay on disk until they are asked for."""

    def __len__(self) -> int:
        """How many there are."""

    def subset(self, rows: Sequence[int]) -> Lazy:
        """Some of them, in this order."""

    def open(self, row: int) -> Image.Image:
        """One image in its own size, RGB; fails as `decode` does."""

    def decode(self, row: int) -> Tensor:
        """One image as the model sees it in evaluation, uint8 (3, H, W): resized, centre cropped.

        Raises:
            AttndropError: The file is damaged; the message names it.
        """


@dataclass(frozen=True)
class ImageSplit:
    """One split of a data set.

    Attributes:
        name: "train", "validation" or "test".
        images: uint8 (N, C, H, W), or images that stay on disk.
        labels: int64 (N,).
        ids: int64 (N,), positions in the source's own training or test set.
        classes: Names of the classes, in the order of the labels.
        levels: The value that means 1.0: 255, or 16 for the digits.
        image_size: Pixels a side that the model sees.
    """

    name: str
    images: Tensor | Lazy
    labels: Tensor
    ids: Tensor
    classes: tuple[str, ...]
    levels: int = 255
    image_size: int = 0

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def in_memory(self) -> bool:
        """Whether all pixels are in one tensor."""
        return isinstance(self.images, Tensor)

    def raw(self, rows: Tensor) -> Tensor:
        """Stored images of some rows, uint8 (B, C, H, W), before any resizing of in-memory sets."""
        if isinstance(self.images, Tensor):
            return self.images.index_select(0, rows.to(self.images.device))
        return torch.stack([self.images.decode(int(row)) for row in rows])

    def pixels(
        self,
        rows: Tensor | Sequence[int] | slice,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """What a model sees of some rows in evaluation.

        Args:
            rows: Positions in this split.
            device: Where to put them.
            dtype: A floating point type.

        Returns:
            Pixels in [0, 1], (B, C, image_size, image_size).
        """
        if isinstance(rows, slice):
            rows = range(*rows.indices(len(self)))
        index = rows if isinstance(rows, Tensor) else torch.as_tensor(list(rows), dtype=torch.long)
        return resized(
            to_float(self.raw(index).to(device), self.levels, dtype), self.image_size or None
        )

    def take(self, rows: Sequence[int] | Tensor, name: str | None = None) -> ImageSplit:
        """Some rows as a split of their own."""
        index = torch.as_tensor(rows, dtype=torch.long)
        images = self.images
        return ImageSplit(
            name or self.name,
            images[index] if isinstance(images, Tensor) else images.subset(index.tolist()),
            self.labels[index], self.ids[index], self.classes, self.levels, self.image_size,
        )  # fmt: skip


def to_float(images: Tensor, levels: int, dtype: torch.dtype) -> Tensor:
    """uint8 images as floats in [0, 1]: divided, so that full intensity is 1 exactly."""
    return images.to(dtype) / levels


def resized(pixels: Tensor, size: int | None) -> Tensor:
    """Pixels (B, C, H, W) at (B, C, size, size); as they are when they have that size already."""
    if size is None or tuple(pixels.shape[-2:]) == (size, size):
        return pixels
    return F.interpolate(
        pixels, (size, size), mode="bicubic", antialias=True, align_corners=False
    ).clamp(0, 1)


@dataclass(frozen=True)
class Splits:
    """A data set, split: validation always comes from the training data, test is never trained on.

    Attributes:
        train: Training images.
        validation: Held out of the training images.
        test: Test images.
        mean: Of the training pixels, one a channel.
        std: Likewise.
        checksum: sha256 over what was read, so that a result says which data it stands on.
        classes: Names of the classes.
        image_size: Pixels a side that the model sees.
        channels: 1 or 3.
    """

    train: ImageSplit
    validation: ImageSplit
    test: ImageSplit
    mean: tuple[float, ...]
    std: tuple[float, ...]
    checksum: str
    classes: tuple[str, ...]
    image_size: int
    channels: int

    def named(self, name: str) -> ImageSplit:
        """The split of a name.

        Raises:
            UsageError: There is no such split.
        """
        from attndrop_repro.config.errors import unknown

        splits = {"train": self.train, "validation": self.validation, "test": self.test}
        if name not in splits:
            raise unknown("split", name, splits)
        return splits[name]
