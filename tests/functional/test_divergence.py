"""KL between two passes: hand numbers, the oracle, scipy, and what must not change it."""

import json
import math
from pathlib import Path

import pytest
import torch
from scipy.special import log_softmax, rel_entr

from attndrop_repro.functional.divergence import directed_divergence, kl_divergence

ORACLES = json.loads((Path(__file__).parents[1] / "oracles.json").read_text())


def logits(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).mul(2).to(dtype)


A = torch.tensor([[0.0, 0.0]], dtype=torch.float64)
B = torch.tensor([[math.log(3), 0.0]], dtype=torch.float64)


def test_hand_numbers() -> None:
    # softmax: (1/2, 1/2) and (3/4, 1/4)
    assert kl_divergence(A, B).item() == pytest.approx(0.5 * math.log(4 / 3), abs=1e-15)
    assert kl_divergence(A, B).item() == pytest.approx(0.143841, abs=5e-7)
    assert kl_divergence(B, A).item() == pytest.approx(0.130812, abs=5e-7)
    assert directed_divergence(A, B, "symmetric").item() == pytest.approx(0.137327, abs=5e-7)


def test_oracle() -> None:
    oracle = ORACLES["consistency"]
    first, second = (torch.tensor(oracle[key], dtype=torch.float64) for key in ("z1", "z2"))
    for direction, key in (
        ("equation", "kl_1_2"), ("appendix", "kl_2_1"), ("symmetric", "symmetric"),
    ):  # fmt: skip
        value = directed_divergence(first, second, direction)
        assert value.item() == pytest.approx(oracle[key], rel=1e-13)


def test_oracle_tokens() -> None:
    oracle = ORACLES["consistency_tokens"]
    first, second = (torch.tensor(oracle[key], dtype=torch.float64) for key in ("z1", "z2"))
    real = torch.tensor(oracle["real"]).bool()
    value = kl_divergence(first, second, real=real)
    assert value.item() == pytest.approx(oracle["kl_1_2"], rel=1e-13)
    per_example = kl_divergence(first, second, real=real, reduction="sum")
    assert per_example.item() == pytest.approx(oracle["kl_1_2"] * 6 / 2, rel=1e-13)
    total = kl_divergence(first, second, real=real, reduction="total")
    assert total.item() == pytest.approx(oracle["kl_1_2"] * 6, rel=1e-13)


@pytest.mark.parametrize("shape", [(1, 2), (5, 3), (2, 4, 7), (2, 1, 3, 5), (3, 1)])
def test_against_scipy(shape: tuple[int, ...]) -> None:
    first, second = logits(*shape, seed=1), logits(*shape, seed=2)
    p, q = (torch.from_numpy(log_softmax(t.numpy(), -1)).exp() for t in (first, second))
    expected = rel_entr(p.numpy(), q.numpy()).sum(-1).mean()
    assert kl_divergence(first, second).item() == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_equal_outputs_give_exactly_zero() -> None:
    first = logits(4, 3, dtype=torch.float32)
    assert kl_divergence(first, first.clone()).item() == 0
    second = first.clone().requires_grad_()
    kl_divergence(first, second).backward()
    assert second.grad is not None
    assert second.grad.abs().max() < 1e-7


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_repeating_the_batch_changes_nothing(reduction: str) -> None:
    first, second = logits(3, 4, 5, seed=1), logits(3, 4, 5, seed=2)
    real = torch.rand(3, 4, generator=torch.Generator().manual_seed(3)) > 0.3
    once = kl_divergence(first, second, real=real, reduction=reduction)
    four = kl_divergence(
        *(t.repeat(4, 1, 1) for t in (first, second)), real=real.repeat(4, 1), reduction=reduction
    )
    assert four.item() == pytest.approx(once.item(), rel=1e-13)
    # what is summed over the batch grows with it: R-Drop's published code
    total = kl_divergence(first, second, real=real, reduction="total")
    of_four = kl_divergence(
        *(t.repeat(4, 1, 1) for t in (first, second)), real=real.repeat(4, 1), reduction="total"
    )
    assert of_four.item() == pytest.approx(4 * total.item(), rel=1e-13)


@pytest.mark.parametrize("reduction", ["mean", "sum", "total"])
@pytest.mark.parametrize("junk", [0.0, 50.0, float("nan"), float("inf")])
def test_padding_changes_nothing(reduction: str, junk: float) -> None:
    first, second = (logits(2, 3, 4, seed=s).requires_grad_() for s in (1, 2))
    value = kl_divergence(first, second, reduction=reduction)
    value.backward()
    grads = [t.grad.clone() for t in (first, second)]  # type: ignore[union-attr]
    padded = []
    for t in (first, second):
        tail = torch.full((2, 5, 4), junk, dtype=t.dtype)
        padded.append(torch.cat([t.detach(), tail], 1).requires_grad_())
    real = torch.arange(8).lt(3).expand(2, 8)
    long = kl_divergence(*padded, real=real, reduction=reduction)
    assert long.item() == pytest.approx(value.item(), rel=1e-14)
    long.backward()
    for t, grad in zip(padded, grads, strict=True):
        assert t.grad is not None
        assert torch.equal(t.grad[:, 3:], torch.zeros(2, 5, 4, dtype=t.dtype))
        torch.testing.assert_close(t.grad[:, :3], grad)


@pytest.mark.parametrize("value", [-60.0, -1e4, float("-inf")])
def test_classes_of_negligible_probability_change_nothing(value: float) -> None:
    first, second = logits(4, 5, seed=1).requires_grad_(), logits(4, 5, seed=2).requires_grad_()
    once = kl_divergence(first, second)
    more = [torch.cat([t, t.new_full((4, 90), value)], 1) for t in (first, second)]
    wide = kl_divergence(*more)
    assert wide.item() == pytest.approx(once.item(), rel=1e-12)
    grads = torch.autograd.grad(wide, (first, second))
    for grad, plain in zip(grads, torch.autograd.grad(once, (first, second)), strict=True):
        torch.testing.assert_close(grad, plain)


def test_impossible_under_the_second_only_is_infinite() -> None:
    second = torch.tensor([[0.0, float("-inf")]], dtype=torch.float64)
    assert kl_divergence(A, second).item() == float("inf")
    assert kl_divergence(second, A).item() == pytest.approx(math.log(2))
    never = torch.tensor([[0.0, -1e4]])  # probability 0 in float32: 0 log 0
    assert kl_divergence(never, second.float()).item() == 0


def test_both_branches_receive_gradients() -> None:
    first, second = logits(3, 4, seed=1).requires_grad_(), logits(3, 4, seed=2).requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: kl_divergence(a, b), (first, second))
    assert torch.autograd.gradcheck(
        lambda a, b: directed_divergence(a, b, "symmetric"), (first, second)
    )
    # the gradient towards the second is (q - p) / B
    kl_divergence(first, second).backward()
    expected = (second.softmax(-1) - first.softmax(-1)) / 3
    torch.testing.assert_close(second.grad, expected.detach())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    first, second = logits(64, 1000, seed=1, dtype=dtype), logits(64, 1000, seed=2, dtype=dtype)
    first, second = first * 8, second * 8
    value = kl_divergence(first, second)
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(
        kl_divergence(first.double(), second.double()).item(), rel=1e-5
    )


def test_no_real_position_gives_zero() -> None:
    first, second = logits(2, 3, 4, seed=1), logits(2, 3, 4, seed=2)
    real = torch.zeros(2, 3, dtype=torch.bool)
    for reduction in ("mean", "sum", "total"):
        assert kl_divergence(first, second, real=real, reduction=reduction).item() == 0
    assert kl_divergence(first[:0], second[:0]).item() == 0


def test_wrong_arguments_are_named() -> None:
    first = logits(2, 3)
    with pytest.raises(ValueError, match="different shapes"):
        kl_divergence(first, logits(2, 4))
    with pytest.raises(ValueError, match="real has shape"):
        kl_divergence(first, first, real=torch.ones(3, dtype=torch.bool))
    with pytest.raises(ValueError, match="mean, sum or total"):
        kl_divergence(first, first, reduction="batchmean")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="equation, appendix or symmetric"):
        directed_divergence(first, first, "reverse")  # type: ignore[arg-type]


def test_under_vmap() -> None:
    first, second = logits(6, 3, seed=1), logits(6, 3, seed=2)
    each = torch.vmap(lambda a, b: kl_divergence(a[None], b[None]))(first, second)
    assert each.mean().item() == pytest.approx(kl_divergence(first, second).item(), rel=1e-12)
