"""Dropping whole heads or embedding dimensions, rescaled by what is kept."""

from __future__ import annotations

import torch
from torch import Tensor


def drop_and_rescale(x: Tensor, keep: Tensor, dim: int) -> Tensor:
    """Zeroes some slices of `x` and multiplies the rest by (number of slices) / (slices kept).

    Args:
        x: Activations, as (B, H, N, D) for heads (``dim=1``) or (B, N, C) for dimensions (``-1``).
        keep: Mask, broadcastable to `x` and as long along `dim`: boolean with at least one True
            along it, or the logarithm of a relaxed one (`relaxed_log_keep`).
        dim: The axis that is dropped from.

    Returns:
        Of the shape and type of `x`.

    Source: Scheduled DropHead (arXiv 2004.13342), section 3.1; DropDim (arXiv 2304.10321).
    """
    kept = keep.float() if keep.dtype == torch.bool else keep.exp()
    share = kept.mean(dim, keepdim=True)
    return x * (kept / share).to(x.dtype)


def span(start: Tensor, length: int, size: int) -> Tensor:
    """Keep mask without one run of neighbours.

    Args:
        start: First index of the run, integers of shape (..., 1).
        length: Its length.
        size: Length of the axis.

    Returns:
        Boolean (..., size).
    """
    index = torch.arange(size, device=start.device)
    return (index < start) | (index >= start + length)
