"""The PAC-Bayes bound: as the AttentionDrop paper prints it, and a valid one.

The valid one is McAllester's in Maurer's form: for a prior P fixed before the data, losses in
[0, 1] and N examples, with probability 1 - delta over the data, for every posterior Q

    R(Q) <= R^(Q) + sqrt((KL(Q || P) + ln(2 sqrt(N) / delta)) / (2 N)).

Here P = N(w_0, s^2 I) and Q = N(w, s^2 I) over the weights, so KL = |w - w_0|^2 / (2 s^2), and w_0
are the initial weights, which do not depend on the data. R^(Q) is an expectation that can only be
sampled: its Monte Carlo estimate gets a confidence of its own (Hoeffding over the draws).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from attndrop_repro.config.errors import UsageError


@dataclass(frozen=True)
class Bound:
    """A bound on the risk.

    Attributes:
        value: The right-hand side; NaN where its root is of a negative number.
        kl: The divergence that went in, in nats.
        root_of: What the square root is taken of.
    """

    value: float
    kl: float
    root_of: float

    @property
    def vacuous(self) -> bool:
        """Whether it says nothing: a risk never exceeds 1."""
        return not self.value < 1

    @property
    def fails(self) -> bool:
        """Whether it is not even a number."""
        return math.isnan(self.value)


def mcallester(empirical_risk: float, kl: float, n: int, delta: float = 0.05) -> Bound:
    """The valid bound (McAllester 1999, Maurer 2004).

    Args:
        empirical_risk: Risk of the posterior on the n examples, in [0, 1].
        kl: KL(Q || P) in nats, >= 0.
        n: Examples.
        delta: Probability that the bound fails, in (0, 1).

    Raises:
        UsageError: A value is out of its range.
    """
    _check(empirical_risk, n, delta)
    if not kl >= 0:
        raise UsageError(f"kl = {kl}: a divergence is at least 0")
    root_of = (kl + math.log(2 * math.sqrt(n) / delta)) / (2 * n)
    return Bound(empirical_risk + math.sqrt(root_of), kl, root_of)


def as_printed(
    sigma: float,
    empirical_risk: float = 0.05,
    n_examples: int = 50_000,
    delta: float = 0.05,
    heads: int = 12,
    tokens: int = 197,
) -> Bound:
    """The paper's theorem 1 with its "KL" of a Gaussian to a point mass (section 4.1; E7, E12).

    Args:
        sigma: Standard deviation of the noise that it takes the logits to have.
        empirical_risk: In [0, 1].
        n_examples: N.
        delta: Probability that the bound fails.
        heads: H.
        tokens: n.
    """
    _check(empirical_risk, n_examples, delta)
    if not sigma > 0 or math.isinf(sigma):
        raise UsageError(f"sigma = {sigma}: must be positive and finite")
    kl = heads * tokens**2 * (-math.log(sigma) - 0.5 * math.log(2 * math.pi * math.e))
    root_of = (kl + math.log(2 * math.sqrt(n_examples) / delta)) / (2 * n_examples - 1)
    value = empirical_risk + math.sqrt(root_of) if root_of >= 0 else math.nan
    return Bound(value, kl, root_of)


def printed_limits(
    empirical_risk: float = 0.05,
    n_examples: int = 50_000,
    delta: float = 0.05,
    heads: int = 12,
    tokens: int = 197,
) -> tuple[float, float]:
    """(sigma below which the printed bound exceeds 1, sigma above which it is not a number)."""
    size = heads * tokens**2
    constant = -0.5 * math.log(2 * math.pi * math.e)
    confidence = math.log(2 * math.sqrt(n_examples) / delta)
    at_one = (1 - empirical_risk) ** 2 * (2 * n_examples - 1) - confidence
    return math.exp(constant - at_one / size), math.exp(constant + confidence / size)


def gaussian_kl(squared_distance: float, s: float) -> float:
    """KL(N(w, s^2 I) || N(w_0, s^2 I)) from |w - w_0|^2, in nats."""
    if not s > 0:
        raise UsageError(f"s = {s}: must be positive")
    return squared_distance / (2 * s**2)


def monte_carlo_risk(mean: float, draws: int, delta: float) -> float:
    """An upper limit for the posterior's empirical risk from sampled weights.

    Args:
        mean: Mean 0-1 loss over draws, each over the whole sample.
        draws: Independent draws from Q.
        delta: Probability that the limit fails (Hoeffding).
    """
    return min(1.0, mean + math.sqrt(math.log(1 / delta) / (2 * draws)))


def _check(empirical_risk: float, n: int, delta: float) -> None:
    if not 0 <= empirical_risk <= 1:
        raise UsageError(f"empirical risk {empirical_risk}: must lie in [0, 1]")
    if n < 1:
        raise UsageError(f"N = {n}: at least one example is needed")
    if not 0 < delta < 1:
        raise UsageError(f"delta = {delta}: must lie in (0, 1)")
