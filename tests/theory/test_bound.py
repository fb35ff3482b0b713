"""The bound against the float64 reference values, and its edges."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from attndrop_repro.config.errors import UsageError
from attndrop_repro.theory import bound

ORACLE = json.loads((Path(__file__).parents[1] / "oracles.json").read_text())["pac_bayes"]


@pytest.mark.parametrize("case", ORACLE["mcallester"])
def test_mcallester(case):
    found = bound.mcallester(case["emp"], case["kl"], case["N"], case["delta"])
    assert found.value == pytest.approx(case["bound"], rel=1e-12)


@pytest.mark.parametrize("case", ORACLE["as_printed"])
def test_as_printed(case):
    found = bound.as_printed(
        case["sigma"], case["emp"], case["N"], case["delta"], case["H"], case["n"]
    )
    assert found.kl == pytest.approx(case["kl"], rel=1e-9, abs=1e-6)
    if case["bound"] is None:
        assert found.fails
        assert found.vacuous
    else:
        assert found.value == pytest.approx(case["bound"], rel=1e-12)


def test_limits_are_where_the_printed_bound_turns():
    one, fails = bound.printed_limits()
    assert bound.as_printed(one * 0.9999).value > 1 > bound.as_printed(one * 1.0001).value
    assert not bound.as_printed(fails * 0.999999).fails
    assert bound.as_printed(fails * 1.000001).fails


def test_gaussian_kl_against_a_sampled_one():
    rng = np.random.default_rng(0)
    w, w0, s = np.array([0.3, -0.2]), np.array([0.0, 0.1]), 0.5
    x = w + s * rng.standard_normal((200_000, 2))
    log_ratio = stats.norm(w, s).logpdf(x).sum(1) - stats.norm(w0, s).logpdf(x).sum(1)
    assert bound.gaussian_kl(float(((w - w0) ** 2).sum()), s) == pytest.approx(
        log_ratio.mean(), abs=0.01
    )
    assert bound.gaussian_kl(0.0, s) == 0


def test_monte_carlo_limit_covers():
    rng = np.random.default_rng(1)
    limits = [bound.monte_carlo_risk(rng.binomial(1, 0.3, 50).mean(), 50, 0.05) for _ in range(400)]
    assert np.mean(np.array(limits) >= 0.3) >= 0.95
    assert bound.monte_carlo_risk(1.0, 1, 0.05) == 1.0


def test_vacuous_when_the_divergence_is_large():
    assert bound.mcallester(0.1, 1e6, 1000).vacuous
    assert not bound.mcallester(0.1, 1.0, 1000).vacuous


@pytest.mark.parametrize(
    "bad",
    [
        lambda: bound.mcallester(1.1, 0, 10),
        lambda: bound.mcallester(0.1, -1, 10),
        lambda: bound.mcallester(0.1, math.nan, 10),
        lambda: bound.mcallester(0.1, 1, 0),
        lambda: bound.mcallester(0.1, 1, 10, delta=0),
        lambda: bound.as_printed(0),
        lambda: bound.as_printed(math.inf),
        lambda: bound.gaussian_kl(1, 0),
    ],
)
def test_bad_input_is_one_line(bad):
    with pytest.raises(UsageError) as caught:
        bad()
    assert "\n" not in str(caught.value)
