"""An example's own random numbers, in any company."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.stats import kstest
from torch.func import vmap

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.evaluation.draws import ExampleDraws
from attndrop_repro.randomness import numpy_stream


def collect(function, n, chunk, share=1, seed=0):
    """What `function` gives for each of n examples, computed in chunks."""
    draws, found = ExampleDraws(seed, "test"), []

    def one(index):
        draws.choose(index)
        return function()

    for start in range(0, n, chunk):
        stop = min(start + chunk, n)
        owners = range(start // share, (stop - 1) // share + 1)
        draws.begin(owners)
        with draws:
            index = torch.arange(start, stop) // share - owners.start
            found.append(vmap(one, randomness="different")(index))
        draws.check()
    return torch.cat(found)


X = torch.arange(6.0).view(2, 3) + 1
FUNCTIONS = {
    "rand": lambda: torch.rand(2, 3),
    "rand of a tuple": lambda: torch.rand((2, 3)),
    "rand by keyword": lambda: torch.rand(size=(2, 3), dtype=torch.float64),
    "one number": lambda: torch.rand(()),
    "randn": lambda: torch.randn(2, 3),
    "rand_like": lambda: torch.rand_like(X),
    "randn_like": lambda: torch.randn_like(X),
    "bernoulli": lambda: torch.bernoulli(X / 10),
    "dropout": lambda: F.dropout(X, 0.5),
    "several": lambda: torch.rand(3) + torch.randn(3) * torch.rand(()),
    "attention": lambda: F.scaled_dot_product_attention(
        X.view(1, 1, 2, 3), X.view(1, 1, 2, 3), X.view(1, 1, 2, 3), dropout_p=0.5
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_chunks_change_nothing(name):
    whole = collect(FUNCTIONS[name], 9, 9)
    for chunk in (1, 2, 4):
        assert torch.equal(collect(FUNCTIONS[name], 9, chunk), whole)
    assert len({str(row.tolist()) for row in whole}) > 1
    assert not torch.equal(collect(FUNCTIONS[name], 9, 9, seed=1), whole)


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 7])
def test_shared_draws(chunk):
    found = collect(lambda: torch.rand(2), 7, chunk, share=3)
    assert torch.equal(found, collect(lambda: torch.rand(2), 3, 3)[[0, 0, 0, 1, 1, 1, 2]])


def test_the_scheme_is_as_documented():
    found = collect(lambda: torch.stack([torch.rand(4), torch.randn(4)]), 5, 2)
    for call, draw in enumerate(("random", "standard_normal")):
        stream = numpy_stream(0, "test", call)
        expected = getattr(stream, draw)((5, 4), np.float32)
        assert np.array_equal(found[:, call].numpy(), expected)


def test_distributions():
    assert kstest(collect(lambda: torch.rand(500), 20, 7).flatten(), "uniform").pvalue > 0.01
    assert kstest(collect(lambda: torch.randn(500), 20, 7).flatten(), "norm").pvalue > 0.01
    ones = torch.ones(500)
    kept = collect(lambda: F.dropout(ones, 0.3), 20, 7)
    assert kept.unique().tolist() == pytest.approx([0, 1 / 0.7])
    assert kept.mean() == pytest.approx(1, abs=0.03)


def test_dropout_that_is_off():
    assert torch.equal(collect(lambda: F.dropout(X, 0.5, training=False), 2, 2)[0], X)
    assert torch.equal(collect(lambda: F.dropout(X, 0.0), 2, 2)[0], X)
    assert torch.equal(collect(lambda: F.dropout(X, 1.0), 2, 2)[0], torch.zeros_like(X))


def test_attention_by_its_parts_is_the_fused_one():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 2, 4, 5, dtype=torch.float64)
    mask = torch.rand(4, 4) > 0.3
    mask[:, 0] = True
    for options in ({}, {"attn_mask": mask}, {"is_causal": True}, {"attn_mask": mask.double()}):
        expected = F.scaled_dot_product_attention(q, k, v, **options)
        found = collect(
            lambda o=options: F.scaled_dot_product_attention(q, k, v, **o), 1, 1
        )[0]  # fmt: skip
        assert (found - expected).abs().max() < 1e-12


def test_a_generator_of_its_own_is_left_alone():
    def own():
        return torch.rand(2, generator=torch.Generator().manual_seed(3))

    draws = ExampleDraws(0, "test")
    draws.begin(range(1))
    draws.choose(torch.tensor(0))
    with draws:
        assert torch.equal(own(), own())
    draws.check()


def test_what_belongs_to_no_example_is_told():
    draws = ExampleDraws(0, "test")
    draws.begin(range(1))
    draws.choose(torch.tensor(0))
    with draws:
        torch.randperm(4)
    with pytest.raises(AttndropError, match="example's own"):
        draws.check()


def test_shapes_that_change_are_told():
    draws = ExampleDraws(0, "test")
    for number, width in enumerate((2, 3)):
        draws.begin(range(number, number + 1))
        draws.choose(torch.tensor(0))
        with draws:
            if width == 2:
                torch.rand(width)
            else:
                with pytest.raises(AttndropError, match="other shapes"):
                    torch.rand(width)
