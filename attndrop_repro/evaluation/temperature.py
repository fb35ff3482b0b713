"""Temperature scaling: one positive number that divides all logits (Guo et al. 2017, eq. 9)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from attndrop_repro.evaluation.probabilities import (
    Floats,
    Ints,
    checked_labels,
    checked_logits,
    softmax,
)
from attndrop_repro.evaluation.scores import nll

BOUNDS = (1e-2, 1e2)


@dataclass(frozen=True)
class Temperature:
    """What was fitted.

    Attributes:
        value: T, positive; 1 when the fit did not converge.
        converged: Whether T is a minimum inside the bounds.
        reason: Why it is not, or "".
        nll_before: Of the logits fitted on, in nats.
        nll_after: The same at T; never more.
        n: Examples fitted on.
    """

    value: float
    converged: bool
    reason: str
    nll_before: float
    nll_after: float
    n: int

    def scale(self, logits: ArrayLike) -> Floats:
        """Logits divided by T, in float64; their order, and so every prediction, stays."""
        return checked_logits(logits) / self.value


def fit(logits: ArrayLike, labels: ArrayLike, bounds: tuple[float, float] = BOUNDS) -> Temperature:
    """The T that minimises the NLL of logits / T; give it validation data only.

    The NLL is convex in 1/T, so its slope in log T changes sign once at most: a sign change inside
    the bounds is the minimum, and no sign change means that the best T is 0, infinite or any, which
    is reported instead of returned.

    Args:
        logits: (n, c), finite.
        labels: (n,) integers.
        bounds: Smallest and largest T to believe.

    Raises:
        AttndropError: Logits that are not finite, labels outside the classes.
    """
    table = checked_logits(logits)
    truth = checked_labels(labels, *table.shape)
    before = nll(table, truth)
    low, high = (math.log(bound) for bound in bounds)
    at_low, at_high = (_slope(end, table, truth) for end in (low, high))
    reason = ""
    value = 1.0
    if at_low == 0 and at_high == 0:
        reason = "the NLL does not depend on T"
    elif at_low >= 0:
        reason = f"the NLL still falls at T = {bounds[0]:g}: the examples are separable"
    elif at_high <= 0:
        reason = f"the NLL still falls at T = {bounds[1]:g}: a constant would do better"
    else:
        value = math.exp(brentq(_slope, low, high, args=(table, truth), xtol=1e-12))
    after = nll(table / value, truth)
    if after > before + 1e-12:
        value, after, reason = 1.0, before, "no T is better than 1"
    return Temperature(value, not reason, reason, before, min(after, before), len(table))


def _slope(log_t: float, logits: Floats, labels: Ints) -> float:
    """Derivative of the mean NLL of logits / T by log T: (z_y - E_p[z]) / T, averaged."""
    beta = math.exp(-log_t)
    shifted = logits - logits.max(axis=1, keepdims=True)
    expected = (softmax(shifted * beta) * shifted).sum(axis=1)
    own = shifted[np.arange(len(labels)), labels]
    return float((own - expected).mean() * beta)
