"""NLL, Brier and top-k against the oracles and scikit-learn."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import brier_score_loss, log_loss, top_k_accuracy_score

from attndrop_repro.config.errors import AttndropError, UsageError
from attndrop_repro.evaluation import scores
from attndrop_repro.evaluation.probabilities import softmax

ORACLE = json.loads((Path(__file__).parents[1] / "oracles.json").read_text())["calibration"]
LOGITS, Y = np.array(ORACLE["logits"]), np.array(ORACLE["y"])
P = softmax(LOGITS)


def test_oracle_values():
    assert scores.nll(LOGITS, Y) == pytest.approx(ORACLE["nll"], abs=1e-12)
    assert scores.brier(P, Y) == pytest.approx(ORACLE["brier"], abs=1e-12)
    assert scores.top_k(LOGITS, Y, 1).mean() == ORACLE["accuracy"]


def test_scikit_learn_agrees():
    assert scores.nll(LOGITS, Y) == pytest.approx(log_loss(Y, P))
    binary = softmax(LOGITS[:, :2])
    y = (Y == 1).astype(int)
    half = brier_score_loss(y, binary[:, 1])  # scikit-learn's binary form counts one class of two
    assert scores.brier(binary, y) == pytest.approx(2 * half)
    for k in (1, 2, 3):
        expected = top_k_accuracy_score(Y, LOGITS, k=k)
        assert scores.top_k(LOGITS, Y, k).mean() == pytest.approx(expected)


def test_nll_differs_from_scikit_learn_where_probabilities_vanish():
    """log_loss clips probabilities at machine epsilon; from logits nothing is lost."""
    logits = np.array([[0.0, 2000.0], [2000.0, 0.0]])
    assert scores.nll(logits, [0, 0]) == pytest.approx(1000.0)
    assert log_loss([0, 0], softmax(logits), labels=[0, 1]) < 40


def test_top_k_of_ties_goes_to_the_lower_class():
    logits = [[1.0, 1.0, 1.0]]
    assert [scores.top_k(logits, [label], 1)[0] for label in range(3)] == [1, 0, 0]
    assert [scores.top_k(logits, [label], 2)[0] for label in range(3)] == [1, 1, 0]
    for k in (0, 4):
        with pytest.raises(UsageError, match="does not exist"):
            scores.top_k(logits, [0], k)


@pytest.mark.parametrize("bins", [1, 2, 15, 100])
def test_brier_parts_add_up(bins):
    parts = scores.brier_decomposition(P, Y, bins)
    assert parts.total == pytest.approx(scores.brier(P, Y), abs=1e-12)
    rates = np.bincount(Y) / len(Y)
    assert parts.uncertainty == pytest.approx((rates * (1 - rates)).sum())
    assert parts.reliability >= 0
    assert parts.resolution >= 0
    assert parts.variance >= 0


def test_brier_parts_are_murphys_three_where_forecasts_are_discrete():
    levels = np.array([0.1, 0.35, 0.8])
    p1 = levels[np.random.default_rng(0).integers(0, 3, 300)]
    y = (np.random.default_rng(1).random(300) < 0.5).astype(int)
    parts = scores.brier_decomposition(np.stack([1 - p1, p1], 1), y, 10)
    assert parts.variance == pytest.approx(0, abs=1e-12)
    assert parts.covariance == pytest.approx(0, abs=1e-12)
    reliability = sum((p1 == v).mean() * (v - y[p1 == v].mean()) ** 2 for v in levels)
    assert parts.reliability == pytest.approx(2 * reliability)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_not_finite_never_gives_a_number(value):
    bad = LOGITS.copy()
    bad[7, 0] = value
    for metric in (scores.nll, lambda z, y: scores.top_k(z, y, 1)):
        with pytest.raises(AttndropError, match="example 7"):
            metric(bad, Y)
    for metric in (scores.brier, scores.brier_decomposition):
        with pytest.raises(AttndropError, match="example 7"):
            metric(np.where(np.isfinite(bad), P, value), Y)


def test_perfect_and_worst():
    certain = np.eye(2)
    assert scores.brier(certain, [0, 1]) == 0
    assert scores.brier(certain, [1, 0]) == 2
    assert scores.nll([[1000.0, 0.0]], [0]) == 0
