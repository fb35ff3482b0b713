"""Calibration errors against the oracles, scikit-learn and slow loops."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.calibration import calibration_curve

from attndrop_repro.config.errors import AttndropError, UsageError
from attndrop_repro.evaluation import bootstrap, calibration
from attndrop_repro.evaluation.probabilities import softmax, top_label

ORACLES = json.loads((Path(__file__).parents[1] / "oracles.json").read_text())
ORACLE = ORACLES["calibration"]
P, Y = softmax(ORACLE["logits"]), np.array(ORACLE["y"])
EDGES = ORACLES["calibration_edges"]


def slow_ece(confidence, correct, bins):
    total = 0.0
    for number in range(bins):
        lo, hi = number / bins, (number + 1) / bins
        inside = [i for i, c in enumerate(confidence) if lo < c <= hi or (number == 0 and c == 0)]
        if inside:
            gap = np.mean([correct[i] for i in inside]) - np.mean([confidence[i] for i in inside])
            total += len(inside) / len(confidence) * abs(gap)
    return total


def test_oracle_values():
    assert calibration.ece(P, Y, 15) == pytest.approx(ORACLE["ece"], abs=1e-12)
    assert calibration.mce(P, Y, 15) == pytest.approx(ORACLE["mce"], abs=1e-12)
    assert calibration.adaptive_ece(P, Y, 10) == pytest.approx(ORACLE["adaptive_ece_10"], abs=1e-12)
    assert calibration.adaptive_ece(P, Y, 15) == pytest.approx(ORACLE["adaptive_ece_15"], abs=1e-12)


def test_oracle_edges():
    """A confidence of 1 counts, edges belong to the lower bin, ties go to the lower class."""
    found = calibration.ece(EDGES["probabilities"], EDGES["y"], EDGES["bins"])
    assert found == pytest.approx(EDGES["ece"], abs=1e-12)


def test_certain_and_wrong():
    p = np.array([[1.0, 0.0], [1.0, 0.0]])
    assert calibration.ece(p, [1, 1]) == 1.0
    assert calibration.mce(p, [0, 1]) == 0.5
    assert calibration.ece(p, [0, 0]) == 0.0
    assert calibration.debiased_ece(p, [0, 0]) == 0.0
    assert calibration.classwise_ece(p, [1, 1]) == 1.0


@pytest.mark.parametrize("bins", [1, 2, 7, 15, 100])
def test_equals_a_slow_loop(bins):
    confidence, correct = top_label(P, Y)
    assert calibration.ece(P, Y, bins) == pytest.approx(slow_ece(confidence, correct, bins))
    one_against_rest = [slow_ece(P[:, c], (c == Y).astype(float), bins) for c in range(4)]
    assert calibration.classwise_ece(P, Y, bins) == pytest.approx(np.mean(one_against_rest))


def test_one_bin_is_the_gap_of_the_means():
    confidence, correct = top_label(P, Y)
    expected = abs(confidence.mean() - correct.mean())
    for metric in (calibration.ece, calibration.mce, calibration.adaptive_ece):
        assert metric(P, Y, 1) == pytest.approx(expected)


def test_reliability_agrees_with_scikit_learn_where_no_value_is_on_an_edge():
    confidence, correct = top_label(P, Y)
    accuracy, mean = calibration_curve(correct, confidence, n_bins=15)
    bars = [bar for bar in calibration.reliability(P, Y, 15) if bar["count"]]
    assert [bar["accuracy"] for bar in bars] == pytest.approx(accuracy)
    assert [bar["confidence"] for bar in bars] == pytest.approx(mean)


def test_reliability_agrees_with_scikit_learn_on_edges():
    p, y = np.array([[0.5, 0.5], [0.2, 0.8], [0.0, 1.0]]), [0, 1, 1]
    lower, upper = calibration.reliability(p, y, 2)
    assert (lower["count"], upper["count"]) == (1, 2)
    _, mean = calibration_curve([1, 1, 1], [0.5, 0.8, 1.0], n_bins=2)
    assert mean == pytest.approx([0.5, 0.9])


def test_adaptive_differs_from_scikit_learn_on_ties():
    """scikit-learn's quantile bins keep ties together, so counts differ; ours are always equal."""
    confidence = np.array([0.6, 0.6, 0.6, 0.9])
    y, p = [0, 0, 1, 0], np.stack([confidence, 1 - confidence], 1)
    accuracy, mean = calibration_curve(
        [1, 1, 0, 1], confidence, n_bins=2, strategy="quantile"
    )  # three examples in one bin, one in the other
    assert 0.75 * abs(accuracy[0] - mean[0]) + 0.25 * abs(accuracy[1] - mean[1]) == pytest.approx(
        0.25 * (0.2 + 0.1)
    )
    assert calibration.adaptive_ece(p, y, 2) == pytest.approx(
        0.5 * (2 / 3 - 0.6) + 0.5 * (5 / 6 - 0.75)
    )


def test_reliability_bars():
    bars = calibration.reliability(P, Y, 10)
    assert sum(bar["count"] for bar in bars) == len(Y)
    assert [bar["lo"] for bar in bars[1:]] == [bar["hi"] for bar in bars[:-1]]
    for bar in bars:
        if bar["count"]:
            assert bar["lo"] < bar["confidence"] <= bar["hi"]
            assert bar["accuracy_low"] <= bar["accuracy"] <= bar["accuracy_high"]
        else:
            assert bar["confidence"] is bar["accuracy"] is bar["accuracy_low"] is None
    total = sum(
        bar["count"] / len(Y) * abs(bar["accuracy"] - bar["confidence"])
        for bar in bars
        if bar["count"]
    )
    assert total == pytest.approx(calibration.ece(P, Y, 10))


def test_adaptive_does_not_depend_on_the_order_of_ties():
    p = np.array([[0.7, 0.3]] * 6 + [[0.9, 0.1]] * 3)
    y = np.array([0, 0, 0, 1, 1, 1, 0, 1, 0])
    order = np.random.default_rng(0).permutation(9)
    assert calibration.adaptive_ece(p, y, 4) == calibration.adaptive_ece(p[order], y[order], 4)
    assert calibration.adaptive_ece(p, y, 100) == calibration.adaptive_ece(p, y, 9)


def test_debiasing_takes_off_part_of_what_chance_adds():
    """Of a perfectly calibrated model the plain ECE is not near 0; the debiased one is nearer."""
    stream = np.random.default_rng(0)
    plain, debiased = [], []
    for _ in range(50):
        confidence = stream.uniform(0.5, 1, 200)
        y = (stream.random(200) > confidence).astype(int)
        p = np.stack([confidence, 1 - confidence], 1)
        plain.append(calibration.ece(p, y))
        debiased.append(calibration.debiased_ece(p, y))
    assert np.mean(plain) > 0.06
    assert np.mean(debiased) < 0.65 * np.mean(plain)


def test_debiasing_equals_sampling():
    """The folded normal's mean against draws, as in the paper's appendix."""
    confidence, correct = top_label(P, Y)
    index = calibration.bin_of(confidence, 15)
    stream, expected = np.random.default_rng(1), 0.0
    for number in np.unique(index):
        inside = index == number
        m, a, c = inside.sum(), correct[inside].mean(), confidence[inside].mean()
        draws = np.abs(stream.normal(a, np.sqrt(a * (1 - a) / m), 200_000) - c).mean()
        expected += m / len(Y) * (2 * abs(a - c) - draws)
    assert calibration.debiased_ece(P, Y, 15) == pytest.approx(expected, abs=1e-3)


def test_bin_sweep():
    sweep = calibration.bin_sweep(P, Y, (5, 15))
    assert sweep == {5: calibration.ece(P, Y, 5), 15: calibration.ece(P, Y, 15)}


METRICS = [
    calibration.ece, calibration.mce, calibration.adaptive_ece, calibration.classwise_ece,
    calibration.debiased_ece, calibration.bin_sweep, calibration.reliability,
]  # fmt: skip


@pytest.mark.parametrize("metric", METRICS)
def test_nan_and_logits_never_give_a_number(metric):
    bad = P.copy()
    bad[3, 1] = np.nan
    with pytest.raises(AttndropError, match=r"1 of 200 .* example 3"):
        metric(bad, Y)
    with pytest.raises(AttndropError, match="softmax"):
        metric(np.array(ORACLE["logits"]), Y)
    with pytest.raises(AttndropError, match="softmax"):
        metric(P * 0.5, Y)
    with pytest.raises(AttndropError, match="4 classes"):
        metric(P, np.where(Y == 3, 4, Y))
    with pytest.raises(AttndropError, match="200 integers"):
        metric(P, Y[:-1])
    with pytest.raises(AttndropError, match="table"):
        metric(np.empty((0, 4)), np.empty(0, int))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_softmax_refuses_what_is_not_finite(value):
    with pytest.raises(AttndropError, match="not finite"):
        softmax([[0.0, value]])


def test_probabilities_of_float32_pass():
    p = softmax(np.float32(ORACLE["logits"])).astype(np.float32)
    assert calibration.ece(p, Y) == pytest.approx(ORACLE["ece"], abs=1e-6)


def test_no_bins_is_an_error():
    for metric in (calibration.ece, calibration.adaptive_ece):
        with pytest.raises(UsageError, match="0 bins"):
            metric(P, Y, 0)


def test_one_example():
    assert calibration.ece([[0.7, 0.3]], [0]) == pytest.approx(0.3)
    assert calibration.adaptive_ece([[0.7, 0.3]], [1]) == pytest.approx(0.7)


def test_bootstrap_interval_of_a_mean_is_that_of_theory():
    values = np.random.default_rng(0).normal(size=400)
    low, high = bootstrap.mean_interval(values, 0, "test", draws=4000)
    half = 1.96 * values.std() / 20
    assert low == pytest.approx(values.mean() - half, abs=0.01)
    assert high == pytest.approx(values.mean() + half, abs=0.01)
    assert bootstrap.mean_interval(values, 0, "test", draws=4000) == (low, high)


def test_bootstrap_of_ece_equals_resampling_by_hand():
    confidence, correct = top_label(P, Y)
    (counts,) = bootstrap.resamples(200, 50, 0, "test")
    chosen = [np.repeat(np.arange(200), row.astype(int)) for row in counts]
    by_hand = [slow_ece(confidence[rows], correct[rows], 15) for rows in chosen]
    found = bootstrap.ece_interval(confidence, correct, 15, 0, "test", draws=50)
    assert found == pytest.approx(bootstrap.interval(np.array(by_hand)))


def test_resamples_leave_the_global_streams_alone():
    before = np.random.get_state()[1].tolist()
    blocks = list(bootstrap.resamples(3, 7, 0))
    assert np.random.get_state()[1].tolist() == before
    assert np.concatenate(blocks).sum(axis=1).tolist() == [3] * 7
    with pytest.raises(UsageError):
        list(bootstrap.resamples(0, 7, 0))
