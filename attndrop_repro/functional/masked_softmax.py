"""Soft-max over the keys that may be attended, finite also where there are none.

Shapes: B batch, H heads, Q queries, K keys.
"""

from __future__ import annotations

import torch
from torch import Tensor


def floor(logits: Tensor) -> float:
    """What stands for minus infinity: soft-max makes it exactly 0, and its gradient has no NaN."""
    return torch.finfo(logits.dtype).min


def forbid(logits_bhqk: Tensor, allowed: Tensor | None) -> Tensor:
    """Puts the logits of forbidden keys at `floor`; ``allowed`` broadcasts, None: all."""
    if allowed is None:
        return logits_bhqk
    return logits_bhqk.masked_fill(~allowed, floor(logits_bhqk))


def masked_softmax(logits_bhqk: Tensor, allowed: Tensor | None = None) -> Tensor:
    """Attention weights (B, H, Q, K): 0 for forbidden keys, and 0 all along a row without keys.

    Args:
        logits_bhqk: Logits (B, H, Q, K).
        allowed: Boolean, broadcastable to the logits; None: all.
    """
    weights = forbid(logits_bhqk, allowed).softmax(-1)
    return weights if allowed is None else weights * allowed.any(-1, keepdim=True)
