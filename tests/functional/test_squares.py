"""Sums of squares against squares that are summed."""

import pytest
import torch

from attndrop_repro.functional.squares import squares_by_column, squares_by_example

SHAPES = [(2, 3, 4), (1, 1, 1), (3, 0, 4), (0, 2, 3), (2, 2, 3, 5)]


@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    for ours, slow in (
        (squares_by_example(x), x.flatten(1).square().sum(1)),
        (squares_by_column(x), x.square().sum(-2)),
    ):
        torch.testing.assert_close(ours, slow, rtol=1e-14, atol=0)
        weight = torch.randn_like(slow)
        grads = [torch.autograd.grad((y * weight).sum(), x)[0] for y in (ours, slow)]
        torch.testing.assert_close(*grads, rtol=1e-14, atol=0)


def test_zeros_have_a_gradient() -> None:
    x = torch.zeros(2, 3, 4, requires_grad=True)
    (squares_by_example(x).sum() + squares_by_column(x).sum()).backward()
    assert torch.equal(x.grad, torch.zeros(2, 3, 4))


@pytest.mark.parametrize("squares", [squares_by_example, squares_by_column])
def test_gradcheck_twice_and_by_example(squares) -> None:
    x = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(squares, (x,))
    assert torch.autograd.gradgradcheck(squares, (x,))
    each = torch.func.vmap(torch.func.grad(lambda z: squares(z[None]).sum()))(x.detach())
    torch.testing.assert_close(each, 2 * x.detach())


def test_nan_stays() -> None:
    assert squares_by_example(torch.tensor([[1.0, torch.nan], [1.0, 2.0]])).isnan().tolist() == [
        True,
        False,
    ]
