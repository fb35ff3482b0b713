"""Inverted dropout of elements, and of whole examples (stochastic depth)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from attndrop_repro.functional.relaxed_bernoulli import relaxed_log_keep


def dropout(x: Tensor, p: float | Tensor) -> Tensor:
    """Each element is 0 with probability p, else divided by 1 - p (Srivastava et al., JMLR 2014).

    Args:
        x: Any shape.
        p: Probability to drop. A number; or, where it is learned, a tensor inside (0, 1) that
            broadcasts to `x`: then masks are relaxed so that it receives gradients.

    Returns:
        The shape and type of `x`; at p = 1 all zeros.
    """
    if isinstance(p, Tensor):
        return _relaxed(x, p, x.shape)
    if 0 < p < 1 and x.device.type == "cpu":
        # torch's own takes twice as long there
        dtype = torch.promote_types(x.dtype, torch.float32)
        factor = torch.rand(x.shape, device=x.device, dtype=dtype).ge_(p).mul_(1 / (1 - p))
        return x * factor.to(x.dtype)
    return F.dropout(x, p, training=True) if p else x


def drop_examples(x: Tensor, p: float | Tensor) -> Tensor:
    """Whole examples are 0 with probability p, else divided by 1 - p (Huang et al., ECCV 2016).

    There the expectation is kept by scaling at inference; here, as in today's libraries, in
    training, so that the plain model needs no change.

    Args:
        x: (B, ...).
        p: Probability to drop; as in `dropout`.

    Returns:
        The shape and type of `x`.
    """
    per_example = (*x.shape[:1], *(1 for _ in x.shape[1:]))
    if isinstance(p, Tensor):
        return _relaxed(x, p, per_example)
    if p == 0:
        return x
    if p == 1:
        return torch.zeros_like(x)
    keep = torch.rand(per_example, device=x.device) >= p
    return torch.where(keep, x / (1 - p), 0)  # not a product: what is dropped may be infinite


def _relaxed(x: Tensor, p: Tensor, shape: tuple[int, ...]) -> Tensor:
    uniform = torch.rand(shape, device=x.device)
    return (x * (relaxed_log_keep(uniform, p).exp() / (1 - p))).to(x.dtype)
