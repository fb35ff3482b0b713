"""Which iterates of an attack were judged already, so that none is computed twice.

The model is deterministic, and so is a step of PGD: an attack that comes to an iterate which was
judged before can find nothing that was not found from there. Signs make steps of one length, so
that in linf many attacks end in a cycle, and those of several restarts in the same one.

Shapes: n examples of a window, B of them in question, R restarts, S steps.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attndrop_repro.randomness import torch_stream

_PATTERNS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
_MIX = -7046029254386353131  # odd: 2^64 over the golden ratio


class Trail:
    """The iterates of a window's examples so far.

    Kept are 64 bits of each, (n, R, S + 1). Two images with the same ones, of which there is one
    pair in 10^19, would pass for one.

    Args:
        x: Clean pixels, (n, C, H, W).
        restarts: R.
        steps: S.
    """

    def __init__(self, x: Tensor, restarts: int, steps: int) -> None:
        generator = torch_stream(0, "attack", "trail")
        drawn = torch.randint(-(2**63), 2**63 - 1, (x[0].numel() + 1,), generator=generator)
        self._factors = (drawn | 1).to(x.device)
        self._passed = torch.zeros(len(x), restarts, steps + 1, dtype=torch.int64, device=x.device)
        self._ends = torch.zeros(len(x), restarts, dtype=torch.bool, device=x.device)
        self._steps = torch.arange(steps + 1, device=x.device)

    def known(self, rows: Tensor, images: Tensor, restart: int, step: int) -> Tensor:
        """Notes iterates that are about to be judged.

        Args:
            rows: Which examples, (B,).
            images: Theirs, (B, C, H, W).
            restart: Of the attack.
            step: Steps that it has made.

        Returns:
            Which of them are known, with all that the steps left could lead to, (B,).
        """
        own = self._digest(images)
        # From an iterate that was met after no more steps than now, at least as many steps were
        # followed as are left; of an attack that ended in a cycle, everything is known.
        same = self._passed[rows] == own[:, None, None]
        ends = self._ends[rows]
        settled = (same & (ends[:, :, None] | (self._steps <= step))).flatten(1).any(1)
        self._ends[rows, restart] |= same[:, restart].any(1) | (same.any(2) & ends).any(1)
        self._passed[rows, restart, step] = own
        return settled

    def _digest(self, images: Tensor) -> Tensor:
        """64 bits of each image, (B,), never 0, which stands for no image."""
        bits = images.flatten(1).view(_PATTERNS[images.element_size()]).long() * _MIX
        bits ^= bits >> 32  # the high bits of a pattern reach the low ones, whose products tell
        digest = (bits * self._factors[1:]).sum(1) + self._factors[0]
        return digest.where(digest != 0, 1)
