"""Calibration errors: how far confidence is from the frequency of being right.

All take probabilities (never logits: see `probabilities.softmax`) and labels, and give a fraction.
Bins are (lo, hi]; the first also holds 0, so that a confidence of exactly 1 counts in the last bin.

Shapes: n examples, c classes, b bins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erf

from attndrop_repro.config.errors import UsageError
from attndrop_repro.evaluation.probabilities import (
    Floats,
    Ints,
    checked_labels,
    checked_probabilities,
    top_label,
)

SWEEP = (5, 10, 15, 20, 25, 30, 50, 100)


class Bin(TypedDict):
    """One bar of a reliability diagram; an empty bin has no means."""

    lo: float
    hi: float
    count: int
    confidence: float | None
    accuracy: float | None
    accuracy_low: float | None
    accuracy_high: float | None


def bin_of(values: Floats, bins: int) -> Ints:
    """The bin (lo, hi] of each value in [0, 1], from 0; exactly 0 belongs to the first.

    Raises:
        UsageError: Fewer than one bin.
    """
    if bins < 1:
        raise UsageError(f"{bins} bins: there must be at least one")
    edges = np.linspace(0.0, 1.0, bins + 1)
    return np.clip(np.searchsorted(edges, values, side="left") - 1, 0, bins - 1).astype(np.int64)


def ece(probabilities: ArrayLike, labels: ArrayLike, bins: int = 15) -> float:
    """Expected calibration error: mean over examples of |accuracy - confidence| of their bin.

    Args:
        probabilities: (n, c).
        labels: (n,) integers.
        bins: Bins of equal width.

    Returns:
        A fraction in [0, 1] (Naeini et al. 2015; Guo et al. 2017, eq. 3).

    Raises:
        AttndropError: NaN, rows that are no probabilities, labels outside the classes.
    """
    confidence, correct = _top(probabilities, labels)
    return float(np.abs(gaps(confidence, correct, bins)).sum())


def mce(probabilities: ArrayLike, labels: ArrayLike, bins: int = 15) -> float:
    """Maximum calibration error: the largest |accuracy - confidence| of a bin that is not empty."""
    confidence, correct = _top(probabilities, labels)
    count = np.bincount(bin_of(confidence, bins), minlength=bins)
    gap = np.abs(gaps(confidence, correct, bins)) * len(confidence)
    return float((gap[count > 0] / count[count > 0]).max())


def gaps(confidence: Floats, correct: Floats, bins: int) -> Floats:
    """Signed share of the error by bin, (b,): (count / n)(accuracy - confidence)."""
    index = bin_of(confidence, bins)
    summed = np.bincount(index, weights=correct - confidence, minlength=bins)
    return np.asarray(summed / len(confidence), dtype=np.float64)


def adaptive_ece(probabilities: ArrayLike, labels: ArrayLike, bins: int = 15) -> float:
    """ECE over bins of equal count (Nixon et al. 2019), split as `numpy.array_split` does.

    Equal confidences may fall on both sides of an edge; each of them then counts with the mean
    accuracy of all of them, so that the order of the examples changes nothing.
    """
    confidence, correct = _top(probabilities, labels)
    if bins < 1:
        raise UsageError(f"{bins} bins: there must be at least one")
    levels, level, count = np.unique(confidence, return_inverse=True, return_counts=True)
    accuracy = np.bincount(level, weights=correct) / count
    gap = np.repeat(accuracy - levels, count)  # sorted by confidence, ties averaged
    parts = np.array_split(gap, min(bins, len(gap)))
    return float(sum(abs(part.sum()) for part in parts) / len(gap))


def classwise_ece(probabilities: ArrayLike, labels: ArrayLike, bins: int = 15) -> float:
    """Mean over classes of the ECE of "is it this class?" (Kull et al. 2019, eq. 4)."""
    table = checked_probabilities(probabilities)
    truth = checked_labels(labels, *table.shape)
    errors = [
        np.abs(gaps(table[:, label], (truth == label).astype(np.float64), bins)).sum()
        for label in range(table.shape[1])
    ]
    return float(np.mean(errors))


def debiased_ece(probabilities: ArrayLike, labels: ArrayLike, bins: int = 15) -> float:
    """ECE less what chance alone adds to it, at least 0.

    In a bin of m examples the accuracy scatters by s = sqrt(a(1 - a) / m) around its mean, so that
    |accuracy - confidence| is too large on average by E|N(d, s^2)| - |d| (Kumar et al. 2019,
    appendix; here by the mean of the folded normal distribution instead of sampling). The gap d
    is the observed one, so part of the bias stays.
    """
    confidence, correct = _top(probabilities, labels)
    index = bin_of(confidence, bins)
    count = np.bincount(index, minlength=bins)
    used = count > 0
    m = count[used]
    accuracy = np.bincount(index, weights=correct, minlength=bins)[used] / m
    d = np.abs(accuracy - np.bincount(index, weights=confidence, minlength=bins)[used] / m)
    s = np.sqrt(accuracy * (1 - accuracy) / m)
    safe = np.where(s > 0, s, 1.0)
    folded = s * np.sqrt(2 / np.pi) * np.exp(-((d / safe) ** 2) / 2)
    folded += d * erf(d / (safe * np.sqrt(2)))
    bias = np.where(s > 0, folded - d, 0.0)
    return float(max(0.0, ((d - bias) * m).sum() / len(confidence)))


def bin_sweep(
    probabilities: ArrayLike, labels: ArrayLike, counts: Sequence[int] = SWEEP
) -> dict[int, float]:
    """ECE by the number of bins: an ordering of methods that depends on it is none."""
    confidence, correct = _top(probabilities, labels)
    return {bins: float(np.abs(gaps(confidence, correct, bins)).sum()) for bins in counts}


def reliability(
    probabilities: ArrayLike, labels: ArrayLike, bins: int = 15, level: float = 0.95
) -> list[Bin]:
    """The bars of a reliability diagram: counts, means, and Wilson intervals of the accuracy."""
    from scipy.stats import binomtest

    confidence, correct = _top(probabilities, labels)
    index = bin_of(confidence, bins)
    edges = np.linspace(0.0, 1.0, bins + 1)
    bars: list[Bin] = []
    for number in range(bins):
        inside = index == number
        count, right = int(inside.sum()), int(correct[inside].sum())
        bar = Bin(
            lo=float(edges[number]), hi=float(edges[number + 1]), count=count,
            confidence=None, accuracy=None, accuracy_low=None, accuracy_high=None,
        )  # fmt: skip
        if count:
            interval = binomtest(right, count).proportion_ci(level, method="wilson")
            bar["confidence"] = float(confidence[inside].mean())
            bar["accuracy"] = right / count
            bar["accuracy_low"], bar["accuracy_high"] = float(interval.low), float(interval.high)
        bars.append(bar)
    return bars


def _top(probabilities: ArrayLike, labels: ArrayLike) -> tuple[Floats, Floats]:
    table = checked_probabilities(probabilities)
    return top_label(table, checked_labels(labels, *table.shape))
