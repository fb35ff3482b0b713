"""Kullback-Leibler divergence between two outputs of one model, from their logits.

Shapes: B examples, T tokens (any number of such dimensions, also none), C classes.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Reduction = Literal["mean", "sum", "total"]
Direction = Literal["equation", "appendix", "symmetric"]


def kl_divergence(
    first: Tensor, second: Tensor, *, real: Tensor | None = None, reduction: Reduction = "mean"
) -> Tensor:
    """KL(softmax(first) || softmax(second)) in nats; gradients go to both.

    Takes logits, never probabilities, and sums over the classes, so that classes of negligible
    probability change nothing. Computed in float32 at least: bf16 and fp16 logits are safe.

    Args:
        first: Logits of the distribution that weighs the log-ratio, (B, ..., C). A logit of -inf
            rules a class out; then `second` may rule it out too.
        second: Logits of the other distribution, of the same shape.
        real: Boolean (B, ...): False where a position is padding, whose logits then do not matter
            at all, NaN included. None: all positions count.
        reduction: "mean": over real positions (A13's default). "sum": over the real positions of an
            example, then the mean over the examples (A13's other value; torch's "batchmean").
            "total": over everything, so that it grows with the batch (R-Drop's published code).

    Returns:
        A scalar, at least 0 but for rounding; 0 when no position is real.

    Raises:
        ValueError: The shapes do not fit each other, or the reduction is not one of the three.
    """
    per_position = _per_position(first, second, real)
    total = per_position.sum()
    if reduction == "total":
        return total
    if reduction == "sum":
        return total / max(first.shape[0], 1)
    if reduction == "mean":
        if real is None:
            return total / max(per_position.numel(), 1)
        return total / real.sum().clamp(min=1)
    raise ValueError(f"reduction is mean, sum or total, not {reduction!r}")


def directed_divergence(
    first: Tensor,
    second: Tensor,
    direction: Direction,
    *,
    real: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """The divergence of two passes in one of the directions that the paper prints (A3).

    Args:
        first: Logits of the first pass, (B, ..., C).
        second: Logits of the second pass.
        direction: "equation": KL(1 || 2), as in AttentionDrop's equation; "appendix": KL(2 || 1),
            which its listing computes (E4); "symmetric": half the sum of both.
        real: As in `kl_divergence`.
        reduction: As in `kl_divergence`.

    Raises:
        ValueError: The direction is not one of the three.
    """
    if direction == "equation":
        return kl_divergence(first, second, real=real, reduction=reduction)
    if direction == "appendix":
        return kl_divergence(second, first, real=real, reduction=reduction)
    if direction == "symmetric":
        return (
            kl_divergence(first, second, real=real, reduction=reduction)
            + kl_divergence(second, first, real=real, reduction=reduction)
        ) / 2
    raise ValueError(f"direction is equation, appendix or symmetric, not {direction!r}")


def _per_position(first: Tensor, second: Tensor, real: Tensor | None) -> Tensor:
    """KL of every position, (B, ...); 0 where it is not real."""
    if first.shape != second.shape or first.ndim < 1:
        raise ValueError(f"two outputs of different shapes: {first.shape} and {second.shape}")
    if real is not None:
        if real.shape != first.shape[:-1]:
            raise ValueError(f"real has shape {real.shape}, the outputs {first.shape}")
        # before the softmax, so that neither the value nor the gradient ever sees padding
        first, second = (logits.masked_fill(~real[..., None], 0) for logits in (first, second))
    log_first, log_second = (torch.log_softmax(_wide(logits), dim=-1) for logits in (first, second))
    weight = log_first.exp()
    nothing = weight == 0  # 0 log 0 = 0, also where the other output rules the class out
    ratio = log_first.masked_fill(nothing, 0) - log_second.masked_fill(nothing, 0)
    return (weight * ratio).sum(-1)


def _wide(logits: Tensor) -> Tensor:
    """At least float32: a divergence is a small difference of large terms."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
