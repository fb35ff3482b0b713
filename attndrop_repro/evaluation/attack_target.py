"""What an attack library gets to see: a function of pixels behind a module of its own.

torchattacks switches its model to eval and back, loses mixed modes, and leaves eval mode behind
after an exception. Here it can switch nothing: the real model is no submodule of what it holds.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class Target(nn.Module):
    """Stands for the model in an attack.

    Attributes:
        start: Where the next forward takes place instead of where the attack is: its own iterate is
            overwritten once. So starts can be drawn for fixed chunks of a data set, and an attack
            can go on from where it was.
        real: How many of the images, from the first on, are real; the rest only fill up.
        logits: Of the last forward, those of the real images, (B, classes).
        flat: Examples whose input gradient was all 0, of those watched.
        watched: Examples whose input gradient was looked at.
    """

    start: Tensor | None
    logits: Tensor

    def __init__(self, call: Callable[[Tensor], Tensor], device: torch.device) -> None:
        super().__init__()
        self._place = nn.Parameter(torch.empty(0, device=device), requires_grad=False)
        self._call = call
        self.start = None
        self.real: int | None = None
        self.watch = False
        self.flat = self.watched = 0

    def forward(self, pixels: Tensor) -> Tensor:
        """Logits of pixels, (B, classes)."""
        if self.start is not None:
            with torch.no_grad():
                pixels[: len(self.start)] = self.start
            self.start = None
        if self.watch and pixels.requires_grad:
            pixels.register_hook(self._look)  # type: ignore[no-untyped-call]
            self.watch = False
        logits = self._call(pixels[: self.real])
        self.logits = logits.detach()
        rest = len(pixels) - len(logits)
        return torch.cat([logits, logits.new_zeros(rest, logits.shape[1])]) if rest else logits

    def _look(self, gradient: Tensor) -> None:
        gradient = gradient[: self.real].flatten(1)
        self.watched += len(gradient)
        self.flat += int((gradient == 0).all(1).sum())


def filled(images: Tensor) -> Tensor:
    """Images or labels (B, ...) filled up with the last one to the next power of two.

    The library's loss is a mean over the batch. Divided by a power of two, gradients are exactly
    what they are alone; divided by another number, their rounding, and so the sign of one near 0,
    would depend on how many examples happen to be attacked together.
    """
    missing = (1 << (len(images) - 1).bit_length()) - len(images)
    return torch.cat([images, images[-1:].expand(missing, *images.shape[1:])])
