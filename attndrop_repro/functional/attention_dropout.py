"""Ordinary dropout on attention weights."""

from __future__ import annotations

import torch
from torch import Tensor


def attention_dropout(weights_bhqk: Tensor, keep_bhqk: Tensor, p: float | Tensor) -> Tensor:
    """Weights dropped and scaled by 1 / (1 - p); rows no longer sum to 1.

    Args:
        weights_bhqk: Attention weights (B, H, Q, K).
        keep_bhqk: Boolean mask, or the logarithm of a relaxed one (`relaxed_log_keep`).
        p: Probability of dropping, below 1, broadcastable.

    Source: Vaswani et al. 2017, section 5.4, as implemented: inverted scaling.
    """
    keep = keep_bhqk if keep_bhqk.dtype == torch.bool else keep_bhqk.exp()
    return weights_bhqk * keep / (1 - p)
