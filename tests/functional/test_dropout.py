"""Inverted dropout of elements, examples and weights."""

import pytest
import torch
from torch import Tensor

from attndrop_repro.functional.dropconnect import drop_connections
from attndrop_repro.functional.dropout import drop_examples, dropout


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_elements_are_zero_or_scaled(p: float) -> None:
    torch.manual_seed(0)
    x = torch.full((40_000,), 3.0)
    y = dropout(x, p)
    kept = y != 0
    assert torch.allclose(y[kept], torch.tensor(3 / (1 - p)))
    assert abs(kept.float().mean().item() - (1 - p)) < 4 * (p * (1 - p) / 40_000) ** 0.5


def test_examples_are_dropped_whole() -> None:
    torch.manual_seed(0)
    x = torch.ones(4000, 3, 2)
    y = drop_examples(x, 0.25)
    assert ((y == 0).all((1, 2)) | (y == 1 / 0.75).all((1, 2))).all()
    assert abs((y[:, 0, 0] == 0).float().mean().item() - 0.25) < 4 * (0.1875 / 4000) ** 0.5


@pytest.mark.parametrize("drop", [dropout, drop_examples])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_ends_and_types(drop, dtype: torch.dtype) -> None:  # type: ignore[no-untyped-def]
    x = torch.randn(4, 3, 2).to(dtype)
    assert drop(x, 0.0) is x
    assert torch.equal(drop(x, 1.0), torch.zeros_like(x))
    y = drop(x, 0.999)
    assert y.dtype == dtype
    assert y.isfinite().all()


def test_a_dropped_example_may_be_infinite() -> None:
    x = torch.full((64, 2), float("inf"))
    torch.manual_seed(0)
    y = drop_examples(x, 0.5)
    assert not y.isnan().any()
    assert (y == 0).any()


@pytest.mark.parametrize("drop", [dropout, drop_examples, drop_connections])
def test_a_learned_probability_receives_gradients(drop) -> None:  # type: ignore[no-untyped-def]
    torch.manual_seed(0)
    p = torch.tensor(0.3, requires_grad=True)
    x = torch.randn(2000, 3)
    y = drop(x, p)
    assert y.dtype == x.dtype
    y.square().sum().backward()
    assert p.grad is not None
    assert p.grad.isfinite()
    assert p.grad != 0
    dropped = (y.detach().abs() < 0.05 * x.abs()).float().mean().item()
    assert abs(dropped - 0.3) < 0.12  # relaxed: masks are near 0 and 1, not all at them


def test_only_the_chosen_blocks_of_rows_drop() -> None:
    torch.manual_seed(0)
    weight = torch.ones(30, 50)
    y = drop_connections(weight, 0.5, (False, True, False))
    assert torch.equal(y[:10], weight[:10])
    assert torch.equal(y[20:], weight[20:])
    assert set(y[10:20].unique().tolist()) == {0.0, 2.0}
    assert torch.equal(drop_connections(weight, 0.5, (False, False)), weight)


@pytest.mark.parametrize("drop", [dropout, drop_examples])
def test_vmap_draws_for_each(drop) -> None:  # type: ignore[no-untyped-def]
    torch.manual_seed(0)

    def one(x: Tensor) -> Tensor:
        return drop(x[None], 0.5)[0]

    y = torch.vmap(one, randomness="different")(torch.ones(200, 4))
    assert len({tuple(row) for row in y.tolist()}) > 1
    shared = torch.ones(4)
    y = torch.vmap(lambda _: one(shared), randomness="different")(torch.zeros(200))
    assert len({tuple(row) for row in y.tolist()}) > 1
