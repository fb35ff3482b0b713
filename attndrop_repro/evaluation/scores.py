"""Proper scores: negative log likelihood, and the Brier score with its decomposition."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from attndrop_repro.config.errors import UsageError
from attndrop_repro.evaluation.calibration import bin_of
from attndrop_repro.evaluation.probabilities import (
    Floats,
    checked_labels,
    checked_logits,
    checked_probabilities,
)


def nll_each(logits: ArrayLike, labels: ArrayLike) -> Floats:
    """Negative log likelihood of each example, (n,), in nats.

    From logits, so that it stays finite where float probabilities would be 0.

    Args:
        logits: (n, c), finite.
        labels: (n,) integers.
    """
    table = checked_logits(logits)
    truth = checked_labels(labels, *table.shape)
    each: Floats = np.asarray(logsumexp(table, axis=1) - table[np.arange(len(table)), truth])
    each[each < 0] = 0.0  # by rounding
    return each


def nll(logits: ArrayLike, labels: ArrayLike) -> float:
    """Mean negative log likelihood in nats; see `nll_each`."""
    return float(nll_each(logits, labels).mean())


def brier_each(probabilities: ArrayLike, labels: ArrayLike) -> Floats:
    """Squared distance of each row from its one-hot label, (n,), 0 to 2 (Brier 1950)."""
    table = checked_probabilities(probabilities)
    truth = checked_labels(labels, *table.shape)
    each: Floats = np.square(table - np.eye(table.shape[1])[truth]).sum(axis=1)
    return each


def brier(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """Mean Brier score over examples, summed over classes, 0 to 2."""
    return float(brier_each(probabilities, labels).mean())


def top_k(logits: ArrayLike, labels: ArrayLike, k: int) -> Floats:
    """Whether the label is among the k largest logits, (n,) of 0 and 1; the lower class wins ties.

    Raises:
        UsageError: k is not between 1 and the number of classes.
    """
    table = checked_logits(logits)
    truth = checked_labels(labels, *table.shape)
    if not 1 <= k <= table.shape[1]:
        raise UsageError(f"top-{k} accuracy of {table.shape[1]} classes does not exist")
    own = table[np.arange(len(table)), truth][:, None]
    lower = np.arange(table.shape[1])[None, :] < truth[:, None]
    ahead = ((table > own) | ((table == own) & lower)).sum(axis=1)
    inside: Floats = np.asarray(ahead < k, dtype=np.float64)
    return inside


@dataclass(frozen=True)
class BrierParts:
    """Brier = reliability - resolution + uncertainty + variance - covariance, exactly.

    Attributes:
        reliability: Squared distance of forecast from frequency, over bins (0 is calibrated).
        resolution: How far frequencies of bins lie from the base rate (more is better).
        uncertainty: Of the labels alone.
        variance: Of the forecasts inside bins: what binning leaves out.
        covariance: Twice that of forecasts with labels inside bins: likewise.
    """

    reliability: float
    resolution: float
    uncertainty: float
    variance: float
    covariance: float

    @property
    def total(self) -> float:
        """The Brier score that these are parts of."""
        between = self.reliability - self.resolution + self.uncertainty
        return between + self.variance - self.covariance


def brier_decomposition(probabilities: ArrayLike, labels: ArrayLike, bins: int = 15) -> BrierParts:
    """The Brier score in parts (Murphy 1973), summed over classes, each binned by its forecast.

    The three classic parts add up to the score only if all forecasts of a bin are equal; the two
    within-bin terms (Stephenson et al. 2008) are what is left otherwise.
    """
    table = checked_probabilities(probabilities)
    truth = checked_labels(labels, *table.shape)
    n, classes = table.shape
    totals = np.zeros(5)
    for label in range(classes):
        p, y = table[:, label], (truth == label).astype(np.float64)
        index = bin_of(p, bins)
        count = np.bincount(index, minlength=bins)
        used, m = count > 0, count[count > 0]
        p_mean = np.bincount(index, weights=p, minlength=bins)[used] / m
        y_mean = np.bincount(index, weights=y, minlength=bins)[used] / m
        place = np.cumsum(used)[index] - 1  # the example's bin among those that are not empty
        p_rest, y_rest = p - p_mean[place], y - y_mean[place]
        rate = y.mean()
        totals += (
            (m * (p_mean - y_mean) ** 2).sum() / n,
            (m * (y_mean - rate) ** 2).sum() / n,
            rate * (1 - rate),
            (p_rest**2).mean(),
            2 * (p_rest * y_rest).mean(),
        )
    return BrierParts(*(float(total) for total in totals))
