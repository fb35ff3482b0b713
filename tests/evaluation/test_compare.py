"""Two runs on the same examples, against scipy's exact test and a by-hand resampling."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.stats import binomtest

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.evaluation.compare import compare
from attndrop_repro.store.logits import Logits

STREAM = np.random.default_rng(0)
Y = STREAM.integers(0, 4, 120)
IDS = STREAM.permutation(1000)[:120]


def run(seed, skill=1.5):
    stream = np.random.default_rng(seed)
    logits = stream.normal(size=(120, 4)) + skill * np.eye(4)[Y]
    return Logits(logits.astype(np.float32), Y, IDS)


def test_mcnemar_is_the_binomial_test_of_the_changed():
    a, b = run(1), run(2, 2.5)
    found = compare(a, b)
    right = [c.logits.argmax(1) == Y for c in (a, b)]
    only = [set(IDS[right[0] & ~right[1]]), set(IDS[right[1] & ~right[0]])]
    assert set(found.only_first) == only[0]
    assert set(found.only_second) == only[1]
    assert found.both_right == (right[0] & right[1]).sum()
    assert found.both_wrong == (~right[0] & ~right[1]).sum()
    changed = len(only[0]) + len(only[1])
    assert found.mcnemar_p == pytest.approx(binomtest(len(only[0]), changed).pvalue)
    accuracy = found.metrics["accuracy"]
    assert accuracy.difference == pytest.approx(right[1].mean() - right[0].mean())
    assert accuracy.low < accuracy.difference < accuracy.high
    assert found.agreement == (a.logits.argmax(1) == b.logits.argmax(1)).mean()
    assert found.metrics["nll"].second < found.metrics["nll"].first
    json.dumps(found.to_json())


def test_pairing_is_tighter_than_two_single_intervals():
    a = run(1)
    b = Logits(a.logits + 0.01 * run(2).logits, Y, IDS)
    nll = compare(a, b).metrics["nll"]
    assert nll.high - nll.low < 0.02


def test_a_run_with_itself():
    found = compare(run(1), run(1))
    assert found.mcnemar_p == 1
    assert found.only_first == found.only_second == ()
    assert found.agreement == 1
    assert {d.difference for d in found.metrics.values()} == {0.0}


def test_order_of_the_examples_does_not_matter():
    a, b = run(1), run(2)
    order = np.random.default_rng(3).permutation(120)
    turned = Logits(b.logits[order], b.labels[order], b.ids[order])
    assert compare(a, turned) == compare(a, b)


def test_what_cannot_be_compared():
    a = run(1)
    for other in (
        Logits(a.logits[1:], Y[1:], IDS[1:]),
        Logits(a.logits, Y, IDS + 1),
        Logits(a.logits, (Y + 1) % 4, IDS),
    ):
        with pytest.raises(AttndropError, match="same examples"):
            compare(a, other)
    with pytest.raises(AttndropError, match="4 and 5 classes"):
        compare(a, Logits(np.zeros((120, 5), np.float32), Y, IDS))
