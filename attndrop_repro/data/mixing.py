"""Mixup and CutMix by timm, with draws that depend on (seed, step) only."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from attndrop_repro.config.recipe import Augmentation
from attndrop_repro.randomness import light_stream


class Mixing:
    """Mixes every image with that at the other end of the batch; labels become probabilities.

    Args:
        augmentation: The recipe's section; at least one of mixup and CutMix is on.
        classes: Number of classes.
        label_smoothing: Goes into the mixed labels.
        seed: The run's seed.
    """

    def __init__(
        self, augmentation: Augmentation, classes: int, label_smoothing: float, seed: int
    ) -> None:
        from timm.data.mixup import Mixup

        self.seed = seed
        self.mixup: Any = Mixup(
            mixup_alpha=augmentation.mixup,
            cutmix_alpha=augmentation.cutmix,
            prob=augmentation.mix_probability,
            switch_prob=augmentation.switch_probability,
            label_smoothing=label_smoothing,
            num_classes=classes,
        )

    def __call__(self, pixels: Tensor, labels: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """Mixes a batch in place.

        Args:
            pixels: Floats (B, C, H, W); B is even.
            labels: int64 (B,).
            step: The optimiser step.

        Returns:
            Pixels, and probabilities (B, classes).
        """
        with light_stream(self.seed, "mixing", step):
            mixed, targets = self.mixup(pixels, labels)
        return mixed, targets.to(pixels.dtype)


def wanted(augmentation: Augmentation) -> bool:
    """Whether batches are mixed at all."""
    return augmentation.mixup > 0 or augmentation.cutmix > 0
