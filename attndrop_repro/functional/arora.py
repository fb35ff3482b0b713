"""Dropout's explicit regulariser of a linear layer (Arora et al., ICML 2021).

As Agrawal et al. adapt it to Transformers (their eqs 103 and 104): whole features drop, and what is
kept is scaled by 1 / (1 - p).
"""

from __future__ import annotations

from torch import Tensor

from attndrop_repro.functional.explicit_dropout import wide


def arora_penalty(
    x: Tensor, weight: Tensor, p: float | Tensor, *, real: Tensor | None = None
) -> Tensor:
    """The penalty p / (1 - p) sum_j ||W_:,j||^2 mean_r X_rj^2.

    Args:
        x: What enters the layer, (..., C).
        weight: (D, C).
        p: Probability to drop, below 1.
        real: Boolean (...): False at padding, which does not enter the mean; None: all rows do.

    Returns:
        A scalar, in float32 at least; 0 when no row is real.
    """
    x, weight = wide(x), wide(weight)
    if real is not None:
        x = x.masked_fill(~real[..., None], 0)
    energy = x.square().flatten(0, -2).sum(0)
    rows = max(x[..., 0].numel(), 1) if real is None else real.sum().clamp(min=1)
    return p / (1 - p) * (weight.square().sum(0) @ (energy / rows))
