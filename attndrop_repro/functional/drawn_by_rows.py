"""Dropping keys or weights by draws that are made some rows at a time, and again in backward.

On a CPU alone: there any number of draws in a row are the same as all of them at once, so that
these agree with the masks that other code draws as a whole. Nothing of the size (Q, K) is kept.

Shapes: B batch, H heads, Q queries, K keys; b, h and q a part of B, H and Q.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attndrop_repro.functional.attention_by_rows import Change, Part
from attndrop_repro.functional.key_dropping import keep_some
from attndrop_repro.functional.masked_softmax import floor

# Uniform draws for rows of a shape (b, h, q, K), broadcastable to it; keywords go to `torch.rand`.
Draw = Callable[..., Tensor]


class DroppedKeys(Change):
    """Keys dropped before the soft-max, `key_dropping.keep_some`.

    Args:
        draw: Makes the draws for some rows.
        p: Probability of dropping, broadcastable to (B, H, Q, K) where it is a tensor.
        free: Boolean, broadcastable to (B, H, Q, K): elements that may be dropped. None: all.
    """

    draws = True

    def __init__(self, draw: Draw, p: float | Tensor, free: Tensor | None) -> None:
        self.draw, self.p, self.free = draw, _four(p), _four(free)
        self._whole: Tensor | None = None

    @property
    def drawn(self) -> bool:
        """Whether somebody has seen the mask as a whole."""
        return self._whole is not None

    def whole(
        self, shape: tuple[int, int, int, int], visible: Tensor | None, device: torch.device
    ) -> Tensor:
        """The mask as a whole, boolean, broadcastable to (B, H, Q, K); drawn once."""
        if self._whole is None:
            u = self.draw(shape, device=device)
            if self.free is not None:
                u = u.masked_fill(~self.free, 1.0)
            self._whole = keep_some(u, self.p, visible)
        return self._whole

    def logits(
        self,
        logits: Tensor,
        part: Part,
        visible: Tensor | None,
        noted: Tensor | None,
        generator: torch.Generator | None,
    ) -> None:
        """Puts dropped keys at `floor`, or below where they were forbidden."""
        u = self.draw(logits.shape, generator=generator)
        if self.free is not None:
            u.masked_fill_(~part.of(self.free), 1.0)
        p = part.of(self.p) if isinstance(self.p, Tensor) else self.p
        best = (u if visible is None else u.masked_fill(~visible, -1.0)).amax(-1, keepdim=True)
        least = best.clamp(max=p) if isinstance(p, float) else torch.minimum(best, p)
        # 0 or `floor`, by arithmetic in place: a boolean mask takes ten times as long
        logits += u.ge_(least).sub_(1.0).mul_(-floor(u)).to(logits.dtype)


class DroppedWeights(Change):
    """Weights dropped after the soft-max and scaled, `attention_dropout.attention_dropout`.

    Args:
        p: Probability of dropping, below 1.
    """

    draws = True

    def __init__(self, p: float) -> None:
        self.p = p

    def factor(self, weights: Tensor, generator: torch.Generator | None) -> Tensor:
        """0 or 1 / (1 - p)."""
        u = torch.rand(weights.shape, generator=generator)
        return u.ge_(self.p).to(weights.dtype).mul_(1 / (1 - self.p))


def _four(x: Any) -> Any:
    """With four dimensions, where it is a tensor."""
    return x.reshape((1,) * (4 - x.dim()) + x.shape) if isinstance(x, Tensor) else x
