"""Dropping attention elements: DropKey before the soft-max, DropAttention after it.

Shapes: B batch, H heads, Q queries, K keys. Draws u are uniform in [0, 1); an element with
``u >= p`` is kept, so that equal draws with a higher p drop more.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from attndrop_repro.functional.masked_softmax import masked_softmax


def keep_some(u: Tensor, p: float | Tensor, allowed: Tensor | None = None) -> Tensor:
    """Keep mask that leaves every row at least one allowed key: that with the largest draw.

    Args:
        u: Draws, broadcastable to (B, H, Q, K).
        p: Probability of dropping, 0 to 1, broadcastable.
        allowed: Boolean, broadcastable to (B, H, Q, K); None: all.

    Returns:
        Boolean, broadcastable to (B, H, Q, K); what it says of forbidden keys has no meaning.
    """
    if isinstance(p, Tensor):  # it may differ along a row: compare by how far a draw falls short
        u, p = u - p, 0.0
    best = (u if allowed is None else u.masked_fill(~allowed, -2.0)).amax(-1, keepdim=True)
    return u >= best.clamp(max=p)


def in_windows(u: Tensor, w: int) -> Tensor:
    """The smallest draw among the windows that cover each key: below p where one of them drops it.

    Args:
        u: One draw for each possible start of a window, (..., K + w - 1): starts from w - 1 before
            the first key to the last key.
        w: Width of a window.

    Returns:
        (..., K), for `keep_some` with the probability of a start.

    Source: DropAttention (arXiv 1907.11065), section 3.2.
    """
    keys = u.shape[-1] - w + 1
    return functools.reduce(torch.minimum, (u[..., start : start + keys] for start in range(w)))


def start_probability(p: float | Tensor, w: int) -> float | Tensor:
    """The probability of a start for which a key is inside some window of w with probability p."""
    return p if w == 1 else 1 - (1 - p) ** (1 / w)


def dropkey(logits_bhqk: Tensor, keep_bhqk: Tensor, allowed_bhqk: Tensor | None = None) -> Tensor:
    """Attention weights (B, H, Q, K) with keys dropped before the soft-max; no scaling.

    Args:
        logits_bhqk: Logits.
        keep_bhqk: Boolean, broadcastable to the logits.
        allowed_bhqk: Boolean, broadcastable to the logits; None: all.

    Source: DropKey (CVPR 2023): L_ij = -inf with probability p.
    """
    allowed = keep_bhqk if allowed_bhqk is None else keep_bhqk & allowed_bhqk
    return masked_softmax(logits_bhqk, allowed)


def dropattention(weights_bhqk: Tensor, keep_bhqk: Tensor) -> Tensor:
    """Attention weights with elements dropped after the soft-max and rows normalised again.

    Equal to `dropkey` with the same mask, which is how the methods compute it.

    Args:
        weights_bhqk: Attention weights (B, H, Q, K).
        keep_bhqk: Boolean, broadcastable to them; at least one key with weight in each row.

    Source: DropAttention (arXiv 1907.11065), section 3.
    """
    kept = weights_bhqk * keep_bhqk
    return kept / kept.sum(-1, keepdim=True)
