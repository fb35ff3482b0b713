"""Means, paired differences and what so few seeds can show. All by scipy and statsmodels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

CONFIDENCE = 0.95
ALPHA = 0.05
POWER = 0.8


@dataclass(frozen=True)
class Mean:
    """A mean over seeds.

    Attributes:
        n: Seeds.
        mean: Their mean.
        low: Lower end of the 95 % t-interval; None for one seed.
        high: Upper end.
        sd: Sample standard deviation; None for one seed.
    """

    n: int
    mean: float
    low: float | None = None
    high: float | None = None
    sd: float | None = None


@dataclass(frozen=True)
class Difference:
    """A method minus the baseline, or over it, paired by seed.

    Attributes:
        interval: Mean of the differences with its interval, or geometric mean of the ratios.
        p: Two-sided p of the paired t test; None where there is none.
        p_holm: The same after Holm over the table.
        detectable: Smallest true difference that a test of this n and this spread finds with power
            0.8 at alpha 0.05 (before Holm), or ratio (or 1 over it); None where there is none.
        ratio: Whether these are ratios.
    """

    interval: Mean
    p: float | None = None
    p_holm: float | None = None
    detectable: float | None = None
    ratio: bool = False

    @property
    def up(self) -> bool:
        """Whether the method has more than the baseline."""
        return self.interval.mean > (1 if self.ratio else 0)

    @property
    def size(self) -> float:
        """How far the two are apart: grows in both directions."""
        return abs(math.log(self.interval.mean) if self.ratio else self.interval.mean)

    @property
    def stands(self) -> bool:
        """Whether it is significant after Holm."""
        return self.p_holm is not None and self.p_holm < ALPHA


def mean(values: Sequence[float]) -> Mean | None:
    """Mean and Student's t-interval.

    Args:
        values: One a seed, finite.

    Returns:
        None for no values; no interval for one.
    """
    if not values:
        return None
    from scipy import stats

    data = np.asarray(values, dtype=np.float64)
    n = data.size
    middle = float(data.mean())
    if n == 1:
        return Mean(1, middle)
    sd = float(data.std(ddof=1))
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, n - 1)) * sd / math.sqrt(n)
    return Mean(n, middle, middle - half, middle + half, sd)


def geometric_mean(values: Sequence[float]) -> Mean | None:
    """Geometric mean and the t-interval of the logarithms, both back on the values' own scale.

    Args:
        values: One a seed, finite and positive.
    """
    return _exponential(mean([math.log(value) for value in values]))


def _exponential(logs: Mean | None) -> Mean | None:
    if logs is None:
        return None
    low, high = (None if end is None else _exp(end) for end in (logs.low, logs.high))
    return Mean(logs.n, _exp(logs.mean), low, high, logs.sd)


def _exp(value: float) -> float:
    return math.exp(max(-300.0, min(value, 300.0)))  # two seeds' intervals may pass all numbers


def paired_ratio(method: dict[int, float], baseline: dict[int, float]) -> Difference | None:
    """`paired` on logarithms: the geometric mean of the ratios by seed.

    Args:
        method: Positive value by seed.
        baseline: Positive value by seed.
    """
    logs = [{seed: math.log(v) for seed, v in values.items()} for values in (method, baseline)]
    found = paired(logs[0], logs[1])
    if found is None:
        return None
    interval = _exponential(found.interval)
    assert interval is not None
    factor = None if found.detectable is None else _exp(found.detectable)
    return Difference(interval, found.p, None, factor, ratio=True)


def paired(method: dict[int, float], baseline: dict[int, float]) -> Difference | None:
    """The difference of two methods over the seeds that both have.

    Args:
        method: Value by seed.
        baseline: Value by seed.

    Returns:
        None without a common seed. No test for one seed, nor when all differences are equal (their
        spread is 0, and so t is not defined).
    """
    from scipy import stats

    seeds = sorted(method.keys() & baseline.keys())
    differences = [method[seed] - baseline[seed] for seed in seeds]
    interval = mean(differences)
    if interval is None:
        return None
    # Differences of equal numbers may leave a spread of rounding errors, not of seeds.
    size = max(max(abs(method[seed]), abs(baseline[seed])) for seed in seeds)
    if interval.sd is None or interval.sd <= 1e-12 * size:
        return Difference(interval)
    p = float(stats.ttest_1samp(differences, 0.0).pvalue)
    return Difference(interval, p, None, detectable(interval.sd, interval.n))


def holm(differences: Sequence[Difference | None]) -> list[Difference | None]:
    """The same differences with p corrected by Holm over all that have one."""
    from statsmodels.stats.multitest import multipletests

    ps = [d.p for d in differences if d is not None and d.p is not None]
    if not ps:
        return list(differences)
    corrected = iter(multipletests(ps, alpha=ALPHA, method="holm")[1])
    return [
        d if d is None or d.p is None else replace(d, p_holm=float(next(corrected)))
        for d in differences
    ]


def detectable(sd: float, n: int) -> float | None:
    """Smallest true mean difference found with power 0.8 by a two-sided paired t test.

    Args:
        sd: Standard deviation of the differences.
        n: Pairs.
    """
    return sd * _detectable_effect(n) if n > 1 else None


@lru_cache
def _detectable_effect(n: int) -> float:
    """In standard deviations; by the noncentral t distribution."""
    from scipy import optimize, stats

    critical = stats.t.ppf(1 - ALPHA / 2, n - 1)

    def missing(effect: float) -> Any:
        shift = effect * math.sqrt(n)
        # The lower tail as an upper one of the mirrored test: scipy's nct.cdf is NaN in places.
        tails = stats.nct.sf(critical, n - 1, shift) + stats.nct.sf(critical, n - 1, -shift)
        return tails - POWER

    return float(optimize.brentq(missing, 1e-6, 20.0))
