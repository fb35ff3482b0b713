"""The squared attention that every key gets, against all weights at once."""

import pytest
import torch
from support.largest import Largest
from torch import Tensor

from attndrop_repro.functional import attention_mass as module
from attndrop_repro.functional.attention_mass import attention_mass
from attndrop_repro.functional.masked_softmax import masked_softmax

B, H, Q, K, D = 2, 3, 7, 5, 4
SPLITS = {"at once": (2**20, 8), "two queries": (2 * B * H * K, 0), "one query": (1, 0)}
GENERATOR = torch.Generator().manual_seed(0)
PADDING = torch.rand(B, 1, 1, K, generator=GENERATOR) > 0.3
ELEMENTS = torch.rand(B, H, Q, K, generator=GENERATOR) > 0.4
BIAS = torch.randn(H, Q, K, generator=GENERATOR, dtype=torch.float64)
OPTIONS: dict[str, dict] = {
    "plain": {},
    "padding": {"allowed": PADDING},
    "a row without any": {"allowed": ELEMENTS & (torch.arange(Q) != 3)[:, None]},
    "causal": {"causal": True},
    "causal and padding": {"causal": True, "allowed": PADDING},
    "bias": {"bias": BIAS},
    "one bias a key": {"bias": BIAS[0, :1]},
    "real": {"real": torch.arange(Q).expand(B, Q) < torch.tensor([[4], [7]])},
}


def slow(
    q: Tensor,
    k: Tensor,
    bias: Tensor | None = None,
    allowed: Tensor | None = None,
    causal: bool = False,
    real: Tensor | None = None,
) -> Tensor:
    logits = q @ k.mT * 0.6
    logits = logits if bias is None else logits + bias
    visible = torch.ones(Q, K, dtype=torch.bool) if allowed is None else allowed
    visible = visible & torch.ones(Q, K, dtype=torch.bool).tril() if causal else visible
    weights = masked_softmax(logits, visible)
    weights = weights if real is None else weights * real[:, None, :, None]
    return (weights.mT @ weights).diagonal(dim1=-2, dim2=-1)


@pytest.mark.parametrize("split", SPLITS.values(), ids=SPLITS.keys())
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_values_and_gradients(split: tuple[int, int], options: dict, monkeypatch) -> None:
    monkeypatch.setattr(module, "_AT_A_TIME", split[0])
    monkeypatch.setattr(module, "_KEPT_UP_TO", split[1])
    torch.manual_seed(1)
    q = torch.randn(B, H, Q, D, dtype=torch.float64, requires_grad=True)
    k = torch.randn(B, H, K, D, dtype=torch.float64, requires_grad=True)
    ours, expected = attention_mass(q, k, scale=0.6, **options), slow(q, k, **options)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-14)
    weight = torch.randn(B, H, K, dtype=torch.float64)
    grads = [torch.autograd.grad((y * weight).sum(), (q, k)) for y in (ours, expected)]
    torch.testing.assert_close(*grads, rtol=0, atol=1e-13)


def test_no_matrix_is_ever_whole(monkeypatch) -> None:
    monkeypatch.setattr(module, "_AT_A_TIME", 2**12)
    q, k = (torch.randn(1, 2, 300, 8, requires_grad=True) for _ in range(2))
    with Largest() as largest:
        attention_mass(q, k, scale=0.3).sum().backward()
    assert largest.elements < 300 * 300 / 8


def test_by_example() -> None:
    """torch.func allows no checkpoint: all at once there."""
    q, k = (torch.randn(3, 1, 40, 2) for _ in range(2))
    each = torch.func.vmap(
        torch.func.grad(lambda a, b: attention_mass(a[None], b[None], scale=0.3).square().sum())
    )(q, k)
    whole = q.clone().requires_grad_()
    attention_mass(whole, k, scale=0.3).square().sum().backward()
    torch.testing.assert_close(each, whole.grad)
