"""Shifts, crops and flips of images in memory, a whole batch at a time.

The draws of an epoch are one table, so that those of image i in epoch e depend on (seed, e, i) and
on nothing else: not on the batch it is in, nor on where a run was resumed.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from attndrop_repro.config.recipe import Augmentation
from attndrop_repro.randomness import numpy_stream


def vectorised(augmentation: Augmentation) -> bool:
    """Whether `TensorAugmentation` can do all that is asked for."""
    return (
        augmentation.auto is None
        and augmentation.random_resized_crop is None
        and augmentation.erasing == 0
    )


class TensorAugmentation:
    """Augmentation of uint8 images (B, C, H, W); freed pixels become black.

    Args:
        augmentation: The recipe's section.
        count: Images in the training split.
        seed: The run's seed.
    """

    def __init__(self, augmentation: Augmentation, count: int, seed: int) -> None:
        # a crop after padding is a translation too: both at once add up
        self.reaches = [r for r in (augmentation.shift, augmentation.crop_padding) if r]
        self.flip = augmentation.flip
        self.count, self.seed = count, seed
        self._epoch = -1
        self._offsets: Tensor | None = None
        self._flips: Tensor | None = None

    def offsets(self, epoch: int) -> NDArray[np.int64]:
        """Down and right shifts of all images in an epoch, (N, 2)."""
        total = np.zeros((self.count, 2), np.int64)
        for number, reach in enumerate(self.reaches):
            generator = numpy_stream(self.seed, "augmentation", epoch, "shift", number)
            total += generator.integers(-reach, reach + 1, (self.count, 2))
        return total

    def flips(self, epoch: int) -> NDArray[np.bool_]:
        """Which images are mirrored in an epoch, (N,)."""
        generator = numpy_stream(self.seed, "augmentation", epoch, "flip")
        return generator.random(self.count) < 0.5

    def __call__(self, images: Tensor, rows: Tensor, epoch: int) -> Tensor:
        """The batch as it is in this epoch.

        Args:
            images: uint8 (B, C, H, W).
            rows: Their positions in the training split, (B,), on the CPU.
            epoch: From 0.
        """
        if epoch != self._epoch:
            self._epoch = epoch
            self._offsets = torch.from_numpy(self.offsets(epoch)) if self.reaches else None
            self._flips = torch.from_numpy(self.flips(epoch)) if self.flip else None
        if self._offsets is not None:
            images = translated(images, self._offsets[rows].to(images.device), sum(self.reaches))
        if self._flips is not None:
            mirrored = self._flips[rows].to(images.device)[:, None, None, None]
            images = torch.where(mirrored, images.flip(-1), images)
        return images


def translated(images: Tensor, offsets: Tensor, reach: int) -> Tensor:
    """Images (B, C, H, W) moved down and right by offsets (B, 2) of at most `reach` pixels."""
    batch, channels, height, width = images.shape
    device = images.device
    padded = F.pad(images, (reach, reach, reach, reach))
    rows = reach - offsets[:, :1] + torch.arange(height, device=device)
    columns = reach - offsets[:, 1:] + torch.arange(width, device=device)
    return padded[
        torch.arange(batch, device=device)[:, None, None, None],
        torch.arange(channels, device=device)[None, :, None, None],
        rows[:, None, :, None],
        columns[:, None, None, :],
    ]
