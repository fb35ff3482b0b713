"""Temperature scaling: positive, converged or said so, argmax unchanged, NLL never worse (P04)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.evaluation import scores, temperature

STREAM = np.random.default_rng(0)
LOGITS = STREAM.normal(size=(300, 5)) * 4
Y = np.array([STREAM.choice(5, p=np.exp(z / 2) / np.exp(z / 2).sum()) for z in LOGITS])

CASES = {
    "normal": (LOGITS, Y),
    "shuffled labels": (LOGITS, STREAM.permutation(Y)),
    "labels are the argmin": (LOGITS, LOGITS.argmin(1)),
    "all correct with big margins": (np.eye(5)[Y] * 50, Y),
    "all correct with huge margins": (np.eye(5)[Y] * 1e6, Y),
    "a single right example": (LOGITS[:1], LOGITS[:1].argmax(1)),
    "a single wrong example": (LOGITS[:1], LOGITS[:1].argmin(1)),
    "all logits equal": (np.full((10, 5), 3.0), Y[:10]),
    "tiny logits": (LOGITS * 1e-8, Y),
    "huge logits": (LOGITS * 1e8, Y),
    "float32": (np.float32(LOGITS), Y),
}


@pytest.mark.parametrize("name", CASES)
def test_contract(name):
    logits, y = CASES[name]
    fitted = temperature.fit(logits, y)
    assert math.isfinite(fitted.value)
    assert fitted.value > 0
    scaled = fitted.scale(logits)
    assert (scaled.argmax(1) == np.asarray(logits).argmax(1)).all()
    assert scores.nll(scaled, y) <= scores.nll(logits, y) + 1e-6
    assert fitted.nll_after <= fitted.nll_before
    assert fitted.converged == (fitted.reason == "")
    if not fitted.converged:
        assert fitted.value == 1.0
    assert fitted.n == len(y)


def test_which_cases_converge():
    converged = {name for name, (z, y) in CASES.items() if temperature.fit(z, y).converged}
    assert converged >= {"normal", "float32"}
    assert not converged & {
        "labels are the argmin", "all correct with big margins", "all logits equal",
        "all correct with huge margins", "a single right example", "a single wrong example",
        "tiny logits", "huge logits",
    }  # fmt: skip


def test_finds_the_temperature_of_the_data():
    """Labels drawn at T = 2."""
    assert temperature.fit(LOGITS, Y).value == pytest.approx(2, rel=0.15)


def test_equals_a_blind_minimisation():
    found = minimize_scalar(
        lambda s: scores.nll(LOGITS / math.exp(s), Y), bounds=(-4, 4), method="bounded",
        options={"xatol": 1e-10},
    )  # fmt: skip
    fitted = temperature.fit(LOGITS, Y)
    assert fitted.value == pytest.approx(math.exp(found.x), rel=1e-5)
    assert fitted.nll_after <= found.fun + 1e-12


def test_scaling_the_logits_scales_the_temperature():
    assert temperature.fit(LOGITS * 3, Y).value == pytest.approx(
        3 * temperature.fit(LOGITS, Y).value
    )


def test_bad_input():
    with pytest.raises(AttndropError, match="not finite"):
        temperature.fit([[0.0, np.nan]], [0])
    with pytest.raises(AttndropError, match="classes"):
        temperature.fit(LOGITS, Y + 5)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**31), st.integers(1, 12), st.integers(2, 5), st.floats(-6, 6),
)  # fmt: skip
def test_contract_on_any_input(seed, n, classes, scale):
    stream = np.random.default_rng(seed)
    logits = stream.normal(size=(n, classes)) * 10**scale
    y = stream.integers(0, classes, n)
    fitted = temperature.fit(logits, y)
    assert 0 < fitted.value < math.inf
    assert (fitted.scale(logits).argmax(1) == logits.argmax(1)).all()
    assert scores.nll(fitted.scale(logits), y) <= scores.nll(logits, y) + 1e-6
