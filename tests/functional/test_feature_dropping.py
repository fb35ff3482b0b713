"""Dropping heads and dimensions, dropout on weights, and the relaxed mask."""

import pytest
import torch

from attndrop_repro.functional.attention_dropout import attention_dropout
from attndrop_repro.functional.feature_dropping import drop_and_rescale, span
from attndrop_repro.functional.masked_softmax import masked_softmax
from attndrop_repro.functional.relaxed_bernoulli import relaxed_log_keep


def test_heads_are_rescaled_by_those_kept() -> None:
    x = torch.randn(2, 4, 3, 5, dtype=torch.float64)
    keep = torch.tensor([[1, 0, 1, 1], [0, 0, 0, 1]]).bool()[:, :, None, None]
    got = drop_and_rescale(x, keep, dim=1)
    torch.testing.assert_close(got[0], x[0] * torch.tensor([4 / 3, 0, 4 / 3, 4 / 3]).view(4, 1, 1))
    assert torch.equal(got[1, 3], x[1, 3] * 4)
    assert not bool(got[1, :3].any())


def test_all_kept_is_the_identity() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        x = torch.randn(2, 3, 7).to(dtype)
        same = drop_and_rescale(x, torch.ones(2, 1, 7, dtype=torch.bool), dim=-1)
        assert same.dtype == dtype
        assert torch.equal(same, x)


def test_relaxed_mask_has_gradients() -> None:
    x = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    u = torch.rand(2, 1, 4, dtype=torch.float64)
    p = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x, p: drop_and_rescale(x, relaxed_log_keep(u, p, 1.0), dim=-1).double(), (x, p)
    )


@pytest.mark.parametrize(
    ("start", "length", "expected"),
    [(0, 0, "11111"), (0, 2, "00111"), (3, 2, "11100"), (1, 4, "10000"), (0, 5, "00000")],
)
def test_span(start: int, length: int, expected: str) -> None:
    keep = span(torch.tensor([[start]]), length, 5)
    assert "".join(str(int(value)) for value in keep[0]) == expected


def test_attention_dropout_is_inverted() -> None:
    weights = torch.rand(1, 1, 2, 4)
    keep = torch.tensor([True, False, True, False])
    got = attention_dropout(weights, keep, 0.2)
    torch.testing.assert_close(got, weights * torch.tensor([1.25, 0, 1.25, 0]))


def test_relaxed_mask_tends_to_the_bernoulli_mask() -> None:
    u = torch.rand(1000, generator=torch.Generator().manual_seed(0))
    log_keep = relaxed_log_keep(u, 0.3)
    assert bool(log_keep.isfinite().all())
    assert bool((log_keep <= 0).all())
    assert torch.equal(log_keep.exp() > 0.5, u > 0.3)
    edges = relaxed_log_keep(torch.tensor([0.0, 1 - 2**-24]), 0.5)
    assert bool(edges.isfinite().all())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_softmax_over_no_key_is_zero_with_finite_gradients(dtype: torch.dtype) -> None:
    logits = torch.randn(2, 1, 2, 3).to(dtype).requires_grad_()
    allowed = torch.tensor([[True, True, False], [False, False, False]])[:, None, None]
    weights = masked_softmax(logits, allowed)
    (weights * torch.arange(3)).sum().backward()
    assert weights[0, ..., 2].abs().sum() == 0
    assert weights[1].abs().sum() == 0
    torch.testing.assert_close(weights[0].sum(-1), torch.ones(1, 2, dtype=dtype), rtol=0, atol=1e-2)
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all())
    assert not bool(logits.grad[1].any())
