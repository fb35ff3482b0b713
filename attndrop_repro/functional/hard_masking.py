"""Hard attention masking: the largest logits of each query are masked at random.

Shapes: B batch, H heads, Q queries, K keys, S selected keys of a query, min(k, K).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from attndrop_repro.functional.masked_softmax import floor, forbid

Mode = Literal["zero", "drop"]


def hard_masking(
    logits_bhqk: Tensor,
    keep_bhqs: Tensor,
    k: int,
    *,
    allowed: Tensor | None = None,
    mode: Mode = "zero",
    selectable: Tensor | None = None,
) -> Tensor:
    """Masks some of the k largest logits of every query.

    Exactly min(k, allowed keys of the row) are selected; which of tied ones is unspecified but
    repeatable (A9). With ``drop`` a row that would lose its last key keeps its best (A1).

    Args:
        logits_bhqk: Logits (B, H, Q, K).
        keep_bhqs: The draws M, (B, H, Q, S), from the largest selected logit down; boolean, or the
            logarithm of a relaxed mask (`relaxed_log_keep`).
        k: How many logits of a row are selected.
        allowed: Boolean, broadcastable to the logits: other keys are never selected and get no
            weight. None: all.
        mode: ``zero`` multiplies a masked logit by 0, as the equation says; ``drop`` excludes its
            key.
        selectable: Boolean, broadcastable to the logits: keys that may be selected. None: all.

    Returns:
        Logits L' (B, H, Q, K), forbidden and dropped ones at `masked_softmax.floor`.

    Source: AttentionDrop, section 3.1: L'_ij = M_ij L_ij for j in S_i, L_ij elsewhere.
    """
    low = floor(logits_bhqk)
    logits = forbid(logits_bhqk, allowed)
    ranked = logits.detach()
    if selectable is not None:
        ranked = ranked.masked_fill(~selectable, low)
    keys = ranked.shape[-1]
    values, order = ranked.topk(min(k, keys), dim=-1)
    real = values > low  # a row with fewer keys than k has none left to select
    relaxed = keep_bhqs.dtype != torch.bool
    keep = keep_bhqs.to(logits.dtype) if relaxed else keep_bhqs
    # a relaxed mask only lowers logits, and of more keys than are selected some are left
    if (
        mode == "drop"
        and not relaxed
        and (keys <= k or allowed is not None or selectable is not None)
    ):
        count: int | Tensor = keys
        if allowed is not None:
            count = allowed.expand(*allowed.shape[:-1], keys).sum(-1, keepdim=True)
        keep = keep_best(keep, real, count)
    if relaxed:
        log_mask = torch.zeros_like(ranked).scatter(-1, order, torch.where(real, keep, 0.0))
        return logits * log_mask.exp() if mode == "zero" else (logits + log_mask).clamp(min=low)
    masked = torch.zeros_like(ranked, dtype=torch.bool).scatter(-1, order, real & ~keep)
    return logits.masked_fill(masked, 0.0 if mode == "zero" else low)


def keep_best(keep: Tensor, real: Tensor, keys: int | Tensor) -> Tensor:
    """Keeps the best key of each row whose keys are all selected and all dropped.

    Args:
        keep: Boolean (..., S), from the largest selected logit down.
        real: Boolean (..., S): False where a row has no such key to select.
        keys: Keys that may be attended, of all rows or (..., 1).
    """
    others = keys > real.sum(-1, keepdim=True)
    lost = ~(others | (keep & real).any(-1, keepdim=True))
    return torch.cat([keep[..., :1] | lost, keep[..., 1:]], -1)
