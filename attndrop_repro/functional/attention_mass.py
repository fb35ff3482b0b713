"""How much attention every key gets, squared: the diagonal of A^T A, some queries at a time.

Shapes: B batch, H heads, Q queries, K keys, D features of a head.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from attndrop_repro.functional.attention_by_rows import possible
from attndrop_repro.functional.masked_softmax import masked_softmax
from attndrop_repro.functional.squares import squares_by_column

# Elements of attention weights at a time, and keys, in D, up to which all are kept: as rows of
# attention, so that no matrix (Q, K) is there where plain attention makes none.
_AT_A_TIME = 2**20
_KEPT_UP_TO = 8


def attention_mass(
    q: Tensor,
    k: Tensor,
    *,
    scale: float,
    bias: Tensor | None = None,
    allowed: Tensor | None = None,
    causal: bool = False,
    real: Tensor | None = None,
) -> Tensor:
    """sum_q A_qk^2 over real queries, (B, H, K), with A = softmax(scale q k^T + bias).

    Soft-max and sums are in float32 at least.

    Args:
        q: Queries, (B, H, Q, D).
        k: Keys, (B, H, K, D).
        scale: Factor on q k^T.
        bias: Additive, broadcastable to (B, H, Q, K), or None.
        allowed: Boolean, broadcastable to (B, H, Q, K); None: all.
        causal: Whether query i may see key j for j <= i only.
        real: Boolean (B, Q): False at padding, whose queries count nowhere. None: all count.
    """
    batch, heads, queries, width = q.shape
    keys = k.shape[-2]
    rows = max(_AT_A_TIME // max(batch * heads * keys, 1), 1)
    kept = keys <= _KEPT_UP_TO * width or not possible()

    def mass(start: int, stop: int) -> Tensor:
        logits = (q[:, :, start:stop] * scale) @ k.mT
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if bias is not None:
            logits = logits + _rows(bias, start, stop)
        visible = None if allowed is None else _rows(allowed, start, stop)
        if causal:
            past = torch.arange(start, stop, device=q.device)[:, None] >= torch.arange(
                keys, device=q.device
            )
            visible = past if visible is None else past & visible
        weights = masked_softmax(logits, visible)
        if real is not None:
            weights = weights * real[:, None, start:stop, None]
        return squares_by_column(weights)

    if kept or rows >= queries:
        return mass(0, queries)
    total = q.new_zeros((), dtype=torch.promote_types(q.dtype, torch.float32))
    for start in range(0, queries, rows):
        total = total + checkpoint(
            mass, start, min(start + rows, queries), use_reentrant=False, preserve_rng_state=False
        )
    return total


def _rows(x: Tensor, start: int, stop: int) -> Tensor:
    """Those queries' part of anything broadcastable to (B, H, Q, K)."""
    return x[..., start:stop, :] if x.dim() > 1 and x.shape[-2] > 1 else x
