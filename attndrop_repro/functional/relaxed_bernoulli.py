"""A keep mask that is differentiable in its probability, for strengths that are learned."""

from __future__ import annotations

import torch
from torch import Tensor


def relaxed_log_keep(u: Tensor, p: Tensor | float, temperature: float = 0.1) -> Tensor:
    """Logarithm of a relaxed Bernoulli(1 - p) mask (concrete distribution).

    The mask is above 1/2 where ``u > p``, and tends to that indicator with the temperature.

    Args:
        u: Uniform draws in [0, 1), any shape.
        p: Probability of dropping, inside (0, 1), broadcastable to `u`.
        temperature: How far from a 0-1 mask.

    Returns:
        Finite values <= 0 of the shape of `u`.

    Source: Maddison, Mnih and Teh 2017, eq. 12; Gal, Hron and Kendall 2017, eq. 5.
    """
    tiny = 1e-6
    p = torch.as_tensor(p, dtype=u.dtype, device=u.device)
    score = torch.logit(u, eps=tiny) - torch.logit(p, eps=tiny)
    return torch.nn.functional.logsigmoid(score / temperature)
