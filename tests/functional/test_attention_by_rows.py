"""Attention some rows at a time against attention with all its logits; and what it keeps."""

from itertools import pairwise

import pytest
import torch
from support.largest import Largest
from torch import Tensor

from attndrop_repro.functional import attention_by_rows as by_rows
from attndrop_repro.functional.attention_by_rows import Change, attention_by_rows, parts
from attndrop_repro.functional.attention_dropout import attention_dropout
from attndrop_repro.functional.drawn_by_rows import DroppedKeys, DroppedWeights
from attndrop_repro.functional.hard_attention import hard_attention
from attndrop_repro.functional.hard_masking import hard_masking
from attndrop_repro.functional.key_dropping import dropkey, keep_some
from attndrop_repro.functional.masked_softmax import masked_softmax

B, H, Q, K, D, S = 2, 3, 6, 9, 4, 3
SCALE = 0.7
KEYS = torch.rand(B, 1, 1, K, generator=torch.Generator().manual_seed(1)) > 0.3
ELEMENTS = torch.rand(B, H, Q, K, generator=torch.Generator().manual_seed(2)) > 0.5
MASKS = {
    "all": {},
    "padding": {"allowed": KEYS},
    "elements, some rows without any": {"allowed": ELEMENTS & (torch.arange(Q) != 2)[:, None]},
    "one mask for all": {"allowed": ELEMENTS[0, 0]},
    "causal": {"causal": True},
    "causal padding": {"causal": True, "allowed": KEYS},
}
# logits at a time; keys up to which weights are kept, in D
SPLITS = {"at once": (2**18, 8), "heads": (130, 8), "rows": (20, 8), "computed again": (20, 0)}


@pytest.fixture(params=SPLITS.values(), ids=SPLITS.keys())
def split(request, monkeypatch) -> None:
    at_a_time, kept = request.param
    monkeypatch.setattr(by_rows, "_AT_A_TIME", at_a_time)
    monkeypatch.setattr(by_rows, "_AT_A_TIME_BY_THREADS", at_a_time)
    monkeypatch.setattr(by_rows, "_KEPT_UP_TO", kept)


def inputs(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    shapes = [(B, H, Q, D), (B, H, K, D), (B, H, K, D + 1)]
    q, k, v = (torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes)
    # as models hand them over: features of a head side by side, heads not
    k = k.transpose(1, 2).contiguous().transpose(1, 2)
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_()


def seen(allowed: Tensor | None = None, causal: bool = False) -> Tensor | None:
    past = torch.ones(Q, K, dtype=torch.bool).tril() if causal else None
    return past if allowed is None else allowed if past is None else past & allowed


def same(fast: Tensor, slow: Tensor, wanted: tuple[Tensor, ...]) -> None:
    torch.testing.assert_close(fast, slow, rtol=0, atol=1e-14)
    weight = torch.randn(fast.shape, dtype=fast.dtype)
    grads = [torch.autograd.grad((y * weight).sum(), wanted) for y in (fast, slow)]
    torch.testing.assert_close(*grads, rtol=0, atol=1e-13)


def keep_selected(p: float = 0.5) -> Tensor:
    return torch.rand(B, H, Q, S, generator=torch.Generator().manual_seed(4)) >= p


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
def test_nothing_changed_is_attention(mask: dict, split: None) -> None:
    q, k, v = inputs()
    slow = masked_softmax(q @ k.mT * SCALE, seen(**mask)) @ v
    same(attention_by_rows(q, k, v, Change(), scale=SCALE, **mask), slow, (q, k, v))


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
@pytest.mark.parametrize("mode", ["zero", "drop"])
@pytest.mark.parametrize("p", [0.5, 1.0])
def test_hard_masking(mask: dict, mode: str, p: float, split: None) -> None:
    q, k, v = inputs()
    for selectable in (None, (torch.arange(K) > 1) & (torch.arange(Q) > 0)[:, None]):
        for ranks in (1, S, K):  # of all keys none is left where all are dropped
            keep = keep_selected(p)[..., :1].expand(-1, -1, -1, ranks)
            keep = keep & (torch.arange(ranks) % 2 == 0) if p < 1 else keep
            options = {"mode": mode, "selectable": selectable}
            fast = hard_attention(q, k, v, keep, scale=SCALE, **mask, **options)
            logits = q @ k.mT * SCALE
            logits = hard_masking(logits, keep, ranks, allowed=seen(**mask), **options)
            same(fast, masked_softmax(logits, seen(**mask)) @ v, (q, k, v))


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
@pytest.mark.parametrize("p", [0.3, 1.0, torch.tensor([0.0, 0.5, 1.0]).view(H, 1, 1)])
def test_dropped_keys(mask: dict, p: float | Tensor, split: None) -> None:
    q, k, v = inputs()
    for free in (None, (torch.arange(K) > 1)[None]):
        torch.manual_seed(5)
        fast = attention_by_rows(q, k, v, DroppedKeys(torch.rand, p, free), scale=SCALE, **mask)
        torch.manual_seed(5)
        u = torch.rand(B, H, Q, K)  # the same draws as a whole
        u = u if free is None else u.masked_fill(~free, 1.0)
        keep = keep_some(u, p, seen(**mask))
        same(fast, dropkey(q @ k.mT * SCALE, keep, seen(**mask)) @ v, (q, k, v))


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
def test_dropped_weights(mask: dict, split: None) -> None:
    q, k, v = inputs()
    torch.manual_seed(6)
    fast = attention_by_rows(q, k, v, DroppedWeights(0.3), scale=SCALE, **mask)
    torch.manual_seed(6)
    keep = torch.rand(B, H, Q, K) >= 0.3
    weights = attention_dropout(masked_softmax(q @ k.mT * SCALE, seen(**mask)), keep, 0.3)
    same(fast, weights @ v, (q, k, v))


@pytest.mark.parametrize("mode", ["zero", "drop"])
def test_gradcheck(mode: str, split: None) -> None:
    tensors = [x.detach()[:1, :2, :3, :2].requires_grad_() for x in inputs()]
    keep = keep_selected()[:1, :2, :3]

    def hard(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return hard_attention(q, k, v, keep, scale=SCALE, mode=mode)

    assert torch.autograd.gradcheck(hard, tensors)


def test_a_mask_drawn_as_a_whole_stays() -> None:
    dropped = DroppedKeys(torch.rand, 0.5, None)
    assert not dropped.drawn
    first = dropped.whole((B, H, Q, K), None, torch.device("cpu"))
    assert dropped.drawn
    assert first is dropped.whole((B, H, Q, K), None, torch.device("cpu"))


@pytest.mark.parametrize("sharpness", [1.0, 30.0, 1000.0])
@pytest.mark.parametrize("mode", ["zero", "drop"])
def test_float32_is_as_near_as_the_slow_form_to_float64(sharpness: float, mode: str) -> None:
    q, k, v = (x.detach() for x in inputs())
    keep, errors = keep_selected(), []

    def slow(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        logits = (q * sharpness) @ k.mT
        return hard_masking(logits, keep, S, mode=mode).softmax(-1) @ v

    exact = slow(q, k, v)
    q, k, v = (x.float() for x in (q, k, v))
    for y in (hard_attention(q, k, v, keep, scale=sharpness, mode=mode), slow(q, k, v)):
        errors.append((y - exact).abs().max().item())
    assert errors[0] <= 1.5 * errors[1] + 1e-6


def test_ties_mask_exactly_as_many_and_nan_stays_nan() -> None:
    q, k = torch.zeros(1, 1, 2, D), torch.zeros(1, 1, K, D)
    v = torch.eye(K).view(1, 1, K, K)
    keep = torch.zeros(1, 1, 2, S, dtype=torch.bool)
    weights = hard_attention(q, k, v, keep, scale=1.0, mode="drop")
    assert (weights == 0).sum(-1).tolist() == [[[S, S]]]
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 1, 2))
    q[0, 0, 1, 0] = torch.nan
    output = hard_attention(q, k, v, keep, scale=1.0)
    assert bool(output[0, 0, 0].isfinite().all())
    assert bool(output[0, 0, 1].isnan().all())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_and_autocast(dtype: torch.dtype, split: None) -> None:
    wide, keep = inputs(torch.float32), keep_selected()
    exact = hard_attention(*wide, keep, scale=SCALE)
    half = tuple(x.detach().to(dtype).requires_grad_() for x in wide)
    y = hard_attention(*half, keep, scale=SCALE, allowed=KEYS)
    assert y.dtype == dtype
    grads = torch.autograd.grad(y.float().square().sum(), half)
    assert all(g.dtype == dtype and bool(g.isfinite().all()) for g in grads)
    with torch.autocast("cpu", dtype):
        y = hard_attention(*wide, keep, scale=SCALE)
    assert y.dtype == dtype
    # a logit may round past its neighbour and be selected instead: compare most rows
    close = (y.float() - exact).abs().amax(-1) < 0.1
    assert close.float().mean() > 0.7


def test_no_matrix_is_ever_whole(monkeypatch) -> None:
    monkeypatch.setattr(by_rows, "_AT_A_TIME", 2**12)
    monkeypatch.setattr(by_rows, "_AT_A_TIME_BY_THREADS", 2**12)
    n, width = 200, 8  # more than 8 keys a feature: weights are not kept
    q, k, v = (torch.randn(1, 2, n, width, requires_grad=True) for _ in range(3))
    keep = torch.rand(1, 2, n, 5) > 0.1
    forms = {
        "hard": lambda: hard_attention(q, k, v, keep, scale=1.0),
        "causal": lambda: hard_attention(q, k, v, keep, scale=1.0, causal=True, mode="drop"),
        "keys": lambda: attention_by_rows(q, k, v, DroppedKeys(torch.rand, 0.1, None), scale=1.0),
        "weights": lambda: attention_by_rows(q, k, v, DroppedWeights(0.1), scale=1.0),
    }
    for name, form in forms.items():
        with Largest() as largest:
            form().sum().backward()
        assert largest.elements <= 2**13, name  # q, k and v have 3,200 elements, a matrix 80,000


def test_backward_runs_once_and_says_so() -> None:
    q, k, v = inputs()
    y = attention_by_rows(q, k, v, Change(), scale=SCALE)
    (grad,) = torch.autograd.grad(y.square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


@pytest.mark.parametrize(
    "shape", [(2, 3, 6, 9), (1, 1, 1, 1), (5, 2, 7, 3), (0, 2, 3, 4), (2, 2, 0, 3)]
)
@pytest.mark.parametrize("at_a_time", [1, 10, 60, 10**6])
def test_parts_share_out_every_row_once_in_order(shape: tuple, at_a_time: int) -> None:
    batch, heads, queries, keys = shape
    number = torch.arange(batch * heads * queries).view(batch, heads, queries, 1)
    found = [part.of(number).flatten() for part in parts(*shape, at_a_time)]
    if number.numel() == 0:
        return
    together = torch.cat(found)
    assert torch.equal(together, number.flatten())
    assert all(before[-1] < after[0] for before, after in pairwise(found))
    assert all(len(rows) * keys <= max(at_a_time, keys) for rows in found)
