"""Sums of squares by one pass over the numbers in each direction; autograd's own take two.

Sums are in float32 at least.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attndrop_repro.functional.attention_by_rows import possible


def squares_by_example(x: Tensor) -> Tensor:
    """||x_b||^2 of every example, (B,), from (B, ...)."""
    return _summed(x.flatten(1), -1)


def squares_by_column(x: Tensor) -> Tensor:
    """sum_n x_nc^2 of every column, (..., C), from (..., N, C)."""
    return _summed(x, -2)


def _summed(x: Tensor, dim: int) -> Tensor:
    if not possible():
        return x.square().sum(dim, dtype=_exact(x))
    summed: Tensor = _Squares.apply(x, dim)
    return summed


class _Squares(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int) -> Tensor:
        ctx.save_for_backward(x)
        ctx.dim = dim
        if dim == -1:  # along memory torch squares and adds in one go
            norm: Tensor = torch.linalg.vector_norm(x, dim=-1, dtype=_exact(x))
            return norm.square()
        return x.square().sum(dim, dtype=_exact(x))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return (x * (2 * grad).unsqueeze(ctx.dim)).to(x.dtype), None


def _exact(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)
