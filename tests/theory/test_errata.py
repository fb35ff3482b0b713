"""Every erratum is borne out by its check, with the numbers that the notes on the papers give."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from attndrop_repro.theory import render
from attndrop_repro.theory.errata_claims import attainable
from attndrop_repro.theory.erratum import Finding, errata, erratum

IDS = [f"E{i}" for i in range(1, 18)] + [f"X{i}" for i in range(1, 9)]


def test_the_list_is_complete_and_in_order():
    assert [entry.id for entry in errata()] == IDS


@pytest.mark.parametrize("entry", errata(), ids=lambda entry: entry.id)
def test_the_check_confirms_the_erratum(entry):
    found = entry.check()
    assert found.confirmed, (found.printed, found.true)
    assert found.printed != found.true
    assert all(math.isfinite(value) for value in found.numbers.values())


@pytest.mark.parametrize(
    ("id", "name", "value", "tolerance"),
    [
        ("E1", "nan_kernels", 1, 0),
        ("E5", "listing", -7e-6, 5e-7),
        ("E6", "c_0", 0.212, 5e-4),
        ("E6", "c_5", 0.0018, 5e-5),
        ("E6", "c_-5", 0.976, 5e-4),
        ("E7", "turns_negative", 0.24197, 5e-6),
        ("E7", "share", 0.52, 5e-3),
        ("E7", "exceeds_1_below", 0.1993, 5e-5),
        ("E7", "fails_above", 0.241975, 5e-7),
        ("E10", "limit_hard", 155, 0),
        ("E10", "limit_blur", 150, 0),
        ("E17", "masks_gb", 2.9, 0.05),
        ("X2", "diagonal", 0.25, 1e-12),
        ("X4", "best_explicit", 56.81, 0),
        ("X5", "chi2", 5.3, 0.05),
        ("X6", "rows_equal_to_test_maximum", 4, 0),
    ],
)
def test_known_numbers(id, name, value, tolerance):
    entry = next(entry for entry in errata() if entry.id == id)
    assert entry.check().numbers[name] == pytest.approx(value, abs=tolerance)


def test_a_check_leaves_torch_as_it_was():
    import torch

    state, flags = torch.get_rng_state(), torch.backends.cudnn.benchmark
    for entry in errata():
        entry.check()
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.backends.cudnn.benchmark == flags


def test_the_page_is_not_stale():
    page = Path(__file__).parents[2] / "docs" / "errata.md"
    assert page.read_text(encoding="utf-8") == render.markdown()


def test_an_unconfirmed_check_is_said_on_the_page(monkeypatch):
    entry = errata()[0]
    false = Finding("a", "b", confirmed=False)
    monkeypatch.setattr(
        render, "errata", lambda: [entry.__class__("E1", "t", "p", "c", lambda: false)]
    )
    assert "Not confirmed" in render.markdown()


def test_an_id_given_twice_is_an_error():
    errata()
    with pytest.raises(ValueError, match="two errata are called E1"):
        erratum("E1", "t", "p", "c")(lambda: Finding("a", "b", True))


@pytest.mark.parametrize(
    ("accuracy", "possible"), [(85.78, True), (85.68, False), (0.0, True), (100.0, True)]
)
def test_attainable_means(accuracy, possible):
    assert attainable(accuracy) is possible
