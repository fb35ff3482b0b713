"""Splitting, choosing and mislabelling, all fixed by the recipe's `split_seed`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attndrop_repro.randomness import numpy_stream

Index = NDArray[np.int64]


def stratified(labels: Index, share: float, seed: int, stream: str) -> tuple[Index, Index]:
    """Splits rows in two with every class in the same proportion.

    Args:
        labels: Classes, (N,).
        share: Share of the second part, in (0, 1).
        seed: The split's seed.
        stream: Names the draw, so that two splits with one seed are independent.

    Returns:
        Rows of the first and of the second part, each in ascending order; the second has
        ``round(share * N)`` rows, given out to the classes by largest remainder.
    """
    return stratified_count(labels, round(share * len(labels)), seed, stream)


def stratified_count(labels: Index, count: int, seed: int, stream: str) -> tuple[Index, Index]:
    """As `stratified`, with the size of the second part given as a number of rows."""
    classes, sizes = np.unique(labels, return_counts=True)
    exact = sizes * (count / max(len(labels), 1))
    taken = np.floor(exact).astype(np.int64)
    # by largest remainder, lowest class first among equals: no draw decides sizes
    order = np.lexsort((classes, -(exact - taken)))
    taken[order[: count - int(taken.sum())]] += 1
    generator = numpy_stream(seed, stream)
    second = [
        generator.permutation(np.flatnonzero(labels == label))[:number]
        for label, number in zip(classes, taken, strict=True)
    ]
    chosen = np.sort(np.concatenate(second)) if second else np.empty(0, np.int64)
    rest = np.setdiff1d(np.arange(len(labels)), chosen, assume_unique=True)
    return rest.astype(np.int64), chosen.astype(np.int64)


def mislabelled(labels: Index, classes: int, share: float, seed: int) -> Index:
    """Labels of which a share is replaced by another class, drawn evenly from the wrong ones.

    Args:
        labels: Classes, (N,).
        classes: Number of classes, at least 2 when `share` is above 0.
        share: Share of the labels that become wrong: ``round(share * N)`` rows.
        seed: The split's seed.
    """
    count = round(share * len(labels))
    noisy = labels.copy()
    if count == 0:
        return noisy
    generator = numpy_stream(seed, "label-noise")
    rows = generator.permutation(len(labels))[:count]
    noisy[rows] = (labels[rows] + generator.integers(1, classes, count)) % classes
    return noisy
