"""A classifier that takes pixels: normalisation is inside, so that an attack's eps means pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


class PixelModel(nn.Module):
    """A network with its normalisation in front.

    Attributes:
        network: The classifier; its state dict is what checkpoints hold.
        classes: Names of the classes, in the order of the logits.
        image_size: Pixels a side that it was made for.
        channels: Channels that it was made for.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        network: nn.Module,
        *,
        mean: Sequence[float],
        std: Sequence[float],
        classes: Sequence[str],
        image_size: int,
    ) -> None:
        super().__init__()
        self.network = network
        self.classes, self.image_size, self.channels = tuple(classes), image_size, len(mean)
        for name, values in (("mean", mean), ("std", std)):
            tensor = torch.tensor(values, dtype=torch.float64).view(-1, 1, 1)
            # not in the state dict: a checkpoint holds the network's own keys and no others
            self.register_buffer(name, tensor.float(), persistent=False)
        self._exact = (tuple(mean), tuple(std))

    def _apply(self, fn: Any, recurse: bool = True) -> PixelModel:
        # in float64 the statistics have their full precision, not what float32 left of them
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, values in zip(("mean", "std"), self._exact, strict=True):
            buffer: Tensor = getattr(self, name)
            buffer.copy_(torch.tensor(values, dtype=torch.float64).view(-1, 1, 1))
        return self

    def forward(self, pixels: Tensor) -> Tensor:
        """Logits of pixels.

        Args:
            pixels: In [0, 1], (B, C, H, W).

        Returns:
            Logits, (B, classes).
        """
        logits: Tensor = self.network((pixels - self.mean) / self.std)
        return logits

    @property
    def dtype(self) -> torch.dtype:
        """The type of the pixels that it takes."""
        return self.mean.dtype

    @property
    def num_prefix_tokens(self) -> int:
        """Class and register tokens at the start of the sequence, as timm's models say it."""
        return int(getattr(self.network, "num_prefix_tokens", 0) or 0)
