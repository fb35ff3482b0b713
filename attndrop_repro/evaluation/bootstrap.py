"""Percentile bootstrap over examples, from a random stream of its own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from attndrop_repro import randomness
from attndrop_repro.config.errors import UsageError
from attndrop_repro.evaluation.calibration import bin_of
from attndrop_repro.evaluation.probabilities import Floats

DRAWS = 1000
_BLOCK = 1 << 22  # numbers drawn at a time


def resamples(n: int, draws: int, seed: int, *key: randomness.Key) -> Iterator[Floats]:
    """How often each of n examples is in each resample: blocks of (some draws, n), sums n.

    Args:
        n: Examples.
        draws: Resamples in all.
        seed: The run's seed.
        key: What is resampled; the stream is `bootstrap` and this.
    """
    if n < 1 or draws < 1:
        raise UsageError(f"a bootstrap of {n} examples with {draws} draws does not exist")
    stream = randomness.numpy_stream(seed, "bootstrap", *key)
    block = max(1, _BLOCK // n)
    for start in range(0, draws, block):
        size = min(block, draws - start)
        chosen = stream.integers(0, n, (size, n)) + np.arange(size)[:, None] * n
        counts = np.bincount(chosen.ravel(), minlength=size * n)
        yield counts.reshape(size, n).astype(np.float64)


def interval(statistics: Floats, level: float = 0.95) -> tuple[float, float]:
    """The middle `level` of resampled statistics."""
    low, high = np.quantile(statistics, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def mean_interval(
    values: Floats, seed: int, *key: randomness.Key, draws: int = DRAWS, level: float = 0.95
) -> tuple[float, float]:
    """Interval of the mean of per-example values (n,)."""
    blocks = resamples(len(values), draws, seed, *key)
    means = np.concatenate([counts @ values for counts in blocks]) / len(values)
    return interval(means, level)


def ece_interval(
    confidence: Floats,
    correct: Floats,
    bins: int,
    seed: int,
    *key: randomness.Key,
    draws: int = DRAWS,
    level: float = 0.95,
) -> tuple[float, float]:
    """Interval of the ECE by resampling examples.

    Resampling adds scatter to every bin, so the interval lies above the estimate when the model
    is nearly calibrated: it says how much another test set would differ, not where 0 is.

    Args:
        confidence: (n,) in [0, 1].
        correct: (n,) of 0 and 1.
        bins: Bins of equal width.
        seed: The run's seed.
        key: Name of the stream.
        draws: Resamples.
        level: Coverage.
    """
    by_bin = np.zeros((len(confidence), bins))
    by_bin[np.arange(len(confidence)), bin_of(confidence, bins)] = correct - confidence
    blocks = resamples(len(confidence), draws, seed, *key)
    errors = [np.abs(counts @ by_bin).sum(axis=1) for counts in blocks]
    return interval(np.concatenate(errors) / len(confidence), level)
