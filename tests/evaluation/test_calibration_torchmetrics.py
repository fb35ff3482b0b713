"""Cross-check against torchmetrics (imported here only: it takes seconds)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torchmetrics.functional.classification import multiclass_calibration_error

from attndrop_repro.evaluation import calibration
from attndrop_repro.evaluation.probabilities import softmax


def theirs(p, y, bins=15, norm="l1"):
    value = multiclass_calibration_error(
        torch.tensor(np.asarray(p), dtype=torch.float64), torch.tensor(np.asarray(y)),
        num_classes=np.asarray(p).shape[1], n_bins=bins, norm=norm,
    )  # fmt: skip
    return float(value)


@pytest.mark.parametrize("seed", range(3))
def test_agrees_on_ordinary_inputs(seed):
    stream = np.random.default_rng(seed)
    p, y = softmax(stream.normal(size=(500, 6)) * 2), stream.integers(0, 6, 500)
    assert calibration.ece(p, y) == pytest.approx(theirs(p, y), abs=1e-6)
    assert calibration.mce(p, y) == pytest.approx(theirs(p, y, norm="max"), abs=1e-6)


def test_differs_on_a_confidence_of_one():
    """torchmetrics gives confidence 1 a bin of its own; ours is in the last one, with 0.99."""
    p = np.array([[1.0, 0.0], [0.99, 0.01]])
    y = [1, 0]  # sure and wrong, nearly sure and right
    assert calibration.ece(p, y) == pytest.approx(abs(0.5 - 0.995))
    assert theirs(p, y) == pytest.approx(0.5 * 1 + 0.5 * 0.01, abs=1e-6)


def test_differs_on_edges():
    """torchmetrics' bins are [lo, hi): 0.6 with five bins is in its fourth, in our third."""
    p = np.array([[0.6, 0.4], [0.7, 0.3]])
    y = [1, 0]
    assert calibration.ece(p, y, 5) == pytest.approx(0.5 * 0.6 + 0.5 * 0.3)
    assert theirs(p, y, 5) == pytest.approx(abs(0.5 - 0.65), abs=1e-6)


def test_differs_on_logits():
    """torchmetrics takes values outside [0, 1] for logits and others as they are: it guesses."""
    logits = np.array([[0.2, 0.9], [0.7, 0.1]])
    y = [1, 0]
    assert theirs(logits, y) != pytest.approx(theirs(softmax(logits), y), abs=1e-3)
    with pytest.raises(Exception, match="softmax"):
        calibration.ece(logits, y)


def test_differs_on_nan():
    """torchmetrics answers NaN with a number; ours is an error."""
    p = np.array([[np.nan, np.nan], [0.9, 0.1]])
    assert not np.isnan(theirs(p, [0, 0]))
    with pytest.raises(Exception, match="not finite"):
        calibration.ece(p, [0, 0])
