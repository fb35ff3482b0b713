"""What calibration metrics take: probabilities that were checked, never guessed from values.

Shapes: n examples, c classes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attndrop_repro.config.errors import AttndropError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TOLERANCE = 1e-4  # how far a row of float32 probabilities may sum from 1


def softmax(logits: ArrayLike) -> Floats:
    """Probabilities of logits, in float64.

    Args:
        logits: (n, c), finite.

    Raises:
        AttndropError: A logit is NaN or infinite; the message has the first such example.
    """
    shifted = checked_logits(logits)
    shifted = shifted - shifted.max(axis=1, keepdims=True)
    exponentials: Floats = np.exp(shifted)
    exponentials /= exponentials.sum(axis=1, keepdims=True)
    return exponentials


def checked_logits(logits: ArrayLike) -> Floats:
    """Logits as float64 (n, c).

    Raises:
        AttndropError: Not two-dimensional, empty, or not finite.
    """
    values = _table(logits, "logits")
    _finite(values, "logits")
    return values


def checked_probabilities(probabilities: ArrayLike) -> Floats:
    """Probabilities as float64 (n, c).

    Raises:
        AttndropError: Not finite, outside [0, 1], or rows that do not sum to 1.
    """
    values = _table(probabilities, "probabilities")
    _finite(values, "probabilities")
    sums = values.sum(axis=1)
    wrong = (values < 0).any(axis=1) | (values > 1).any(axis=1) | (abs(sums - 1) > TOLERANCE)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise AttndropError(
            f"example {row}: these are not probabilities (smallest {values[row].min():.4g}, "
            f"sum {sums[row]:.6g}); turn logits into probabilities with softmax first"
        )
    return values


def checked_labels(labels: ArrayLike, examples: int, classes: int) -> Ints:
    """Labels as int64 (n,), one for each example and inside the classes.

    Raises:
        AttndropError: A wrong count, type or class.
    """
    values = np.asarray(labels)
    if values.shape != (examples,) or not np.issubdtype(values.dtype, np.integer):
        raise AttndropError(
            f"labels must be {examples} integers, one for each example; "
            f"got {values.dtype} of shape {values.shape}"
        )
    if values.min() < 0 or values.max() >= classes:
        raise AttndropError(
            f"labels lie between {values.min()} and {values.max()}, but there are {classes} classes"
        )
    return values.astype(np.int64)


def top_label(probabilities: Floats, labels: Ints) -> tuple[Floats, Floats]:
    """Confidence and whether it was right, (n,) each; of tied classes the lowest is predicted."""
    predicted = probabilities.argmax(axis=1)
    confidence: Floats = probabilities[np.arange(len(predicted)), predicted]
    return confidence, (predicted == labels).astype(np.float64)


def _table(values: ArrayLike, what: str) -> Floats:
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or 0 in table.shape:
        raise AttndropError(f"{what} must be a table of examples by classes, got {table.shape}")
    return table


def _finite(values: Floats, what: str) -> None:
    bad = ~np.isfinite(values).all(axis=1)
    if bad.any():
        raise AttndropError(
            f"{int(bad.sum())} of {len(values)} examples have {what} that are not finite (first: "
            f"example {int(np.flatnonzero(bad)[0])}); a metric of them would mean nothing"
        )
