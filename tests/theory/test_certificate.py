"""The certificate on models small enough to check it against the truth."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.theory.certificate import certify, squared_distance


def problem(n):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 2, generator=generator)
    return x, (x[:, 0] > 0).long()


def classifier():
    model = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[-1.0, 0.0], [1.0, 0.0]]))
    return model


def test_covers_the_true_risk_of_the_posterior_and_is_not_vacuous():
    model, (x, y) = classifier(), problem(4000)
    initial = {"weight": torch.zeros(2, 2)}
    found = certify(model, initial, x, y, scales=(0.3, 1.0), draws=60)
    fresh_x, fresh_y = problem(20_000)
    for certificate in found:
        again = certify(model, initial, fresh_x, fresh_y, scales=(certificate.scale,), draws=60)[0]
        assert again.sampled_risk <= certificate.bound.value
    assert min(c.bound.value for c in found) < 1
    assert "at most" in min(found, key=lambda c: c.bound.value).verdict


def test_the_divergence_is_that_of_the_weights():
    model, (x, y) = classifier(), problem(50)
    (found,) = certify(model, {"weight": torch.zeros(2, 2)}, x, y, scales=(0.5,), draws=2)
    assert found.kl == pytest.approx(2 / (2 * 0.25))
    assert found.n == 50


def test_far_from_the_prior_it_is_vacuous_and_says_so():
    model, (x, y) = classifier(), problem(50)
    found = certify(model, {"weight": torch.full((2, 2), 100.0)}, x, y, scales=(0.01,), draws=2)
    assert found[0].verdict == "vacuous"
    assert math.isfinite(found[0].bound.value)


def test_same_seed_same_numbers_and_nothing_is_left_changed():
    model, (x, y) = classifier(), problem(64)
    model.train()
    state, weight = torch.get_rng_state(), model.weight.detach().clone()
    initial = {"weight": torch.zeros(2, 2)}
    a = certify(model, initial, x, y, draws=3, batch_size=7)
    b = certify(model, initial, x, y, draws=3, batch_size=64)
    assert a == b
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(model.weight, weight)
    assert model.training


def test_bad_input():
    model, (x, y) = classifier(), problem(4)
    with pytest.raises(AttndropError, match="another model"):
        squared_distance(model, {"weight": torch.zeros(3, 2)})
    with pytest.raises(AttndropError, match="training examples"):
        certify(model, {"weight": torch.zeros(2, 2)}, x[:0], y[:0])
