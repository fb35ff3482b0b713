"""Hard masking: the oracles, ties, edges of k, padding, gradients, half precision."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from attndrop_repro.functional.hard_masking import hard_masking
from attndrop_repro.functional.masked_softmax import masked_softmax
from attndrop_repro.functional.relaxed_bernoulli import relaxed_log_keep

ORACLES = json.loads((Path(__file__).parents[1] / "oracles.json").read_text())


def tensor(value: object) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


LOGITS, V = tensor(ORACLES["qkv"]["logits"]), tensor(ORACLES["qkv"]["v"])


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def kept(full: Tensor, logits: Tensor, k: int) -> Tensor:
    """The oracle's mask over all keys as one over the selected, largest first."""
    order = logits.topk(min(k, logits.shape[-1]), dim=-1).indices
    return full.bool().gather(-1, order)


@pytest.mark.parametrize("mode", ["zero", "drop"])
def test_oracle(mode: str) -> None:
    oracle = ORACLES["hard"]
    keep = kept(tensor(oracle["keep"]), LOGITS, oracle["k"])
    logits = hard_masking(LOGITS, keep, oracle["k"], mode=mode)
    weights = masked_softmax(logits)
    if mode == "zero":
        torch.testing.assert_close(logits, tensor(oracle[mode]["logits"]), rtol=0, atol=1e-14)
    torch.testing.assert_close(weights, tensor(oracle[mode]["weights"]), rtol=0, atol=1e-13)
    torch.testing.assert_close(weights @ V, tensor(oracle[mode]["output"]), rtol=0, atol=1e-13)


def test_oracle_with_padding() -> None:
    oracle = ORACLES["hard_padded"]
    allowed = ~torch.tensor(oracle["key_padding"])[:, None, None, :]
    ranked = LOGITS.masked_fill(~allowed, -torch.inf)
    keep = kept(tensor(oracle["keep"]), ranked, oracle["k"])
    logits = hard_masking(LOGITS, keep, oracle["k"], allowed=allowed)
    weights = masked_softmax(logits, allowed)
    torch.testing.assert_close(weights, tensor(oracle["weights"]), rtol=0, atol=1e-13)
    torch.testing.assert_close(weights @ V, tensor(oracle["output"]), rtol=0, atol=1e-13)
    assert torch.equal(weights[0, ..., 5:], torch.zeros_like(weights[0, ..., 5:]))


@pytest.mark.parametrize("case", ORACLES["hard_ties"])
def test_ties_select_exactly_k(case: dict) -> None:
    row = tensor(case["row"]).view(1, 1, 1, -1)
    k = min(case["k"], row.shape[-1])
    none = torch.zeros(1, 1, 1, k, dtype=torch.bool)
    first = hard_masking(row + 10, none, case["k"])  # no logit is 0 by itself
    masked = first[0, 0, 0] == 0
    assert int(masked.sum()) == k
    edge = row.flatten().sort(descending=True).values[k - 1]
    assert bool(masked[row.flatten() > edge].all())
    assert not bool(masked[row.flatten() < edge].any())
    assert torch.equal(first, hard_masking(row + 10, none, case["k"]))


def test_negative_top_logit_gains_weight_and_shifts_matter() -> None:
    # erratum E6: the masked entry of [2, 1, 0] after adding c
    got = []
    for c in (0.0, 5.0, -5.0):
        row = tensor([2.0, 1.0, 0.0]).view(1, 1, 1, 3) + c
        keep = torch.zeros(1, 1, 1, 1, dtype=torch.bool)
        got.append(masked_softmax(hard_masking(row, keep, 1))[0, 0, 0, 0].item())
    assert got == pytest.approx([0.212, 0.0018, 0.976], abs=5e-4)


@pytest.mark.parametrize("k", [1, 3, 7, 8, 100])
def test_all_dropped_leaves_the_best_key(k: int) -> None:
    none = torch.zeros(2, 2, 7, min(k, 7), dtype=torch.bool)
    weights = masked_softmax(hard_masking(LOGITS, none, k, mode="drop"))
    assert bool(weights.isfinite().all())
    count = (weights > 0).sum(-1)
    assert torch.equal(count, torch.full_like(count, max(7 - k, 1)))
    if k >= 7:
        assert torch.equal(weights.argmax(-1), LOGITS.argmax(-1))


@pytest.mark.parametrize("unpadded", [1, 3, 5])
@pytest.mark.parametrize("k", [3, 5, 9])
@pytest.mark.parametrize("mode", ["zero", "drop"])
def test_padding_is_never_selected_and_more_of_it_changes_nothing(
    unpadded: int, k: int, mode: str
) -> None:
    logits = random(2, 2, 4, 9)
    keep = random(2, 2, 4, min(k, 9), seed=1) > 0
    allowed = torch.arange(9) < unpadded
    wide = masked_softmax(hard_masking(logits, keep, k, allowed=allowed, mode=mode), allowed)
    narrow = hard_masking(logits[..., :unpadded], keep[..., :unpadded], k, mode=mode)
    torch.testing.assert_close(wide[..., :unpadded], narrow.softmax(-1), rtol=0, atol=1e-14)
    assert not bool(wide[..., unpadded:].any())


def test_rows_with_different_numbers_of_keys() -> None:
    causal = torch.ones(6, 6, dtype=torch.bool).tril()
    logits = random(1, 1, 6, 6)
    none = torch.zeros(1, 1, 6, 3, dtype=torch.bool)
    weights = masked_softmax(hard_masking(logits, none, 3, allowed=causal, mode="drop"), causal)
    assert (weights > 0).sum(-1).flatten().tolist() == [1, 1, 1, 1, 2, 3]
    zeroed = hard_masking(logits, none, 3, allowed=causal, mode="zero")
    assert ((zeroed == 0).sum(-1).flatten().tolist()) == [1, 2, 3, 3, 3, 3]


def test_unselectable_keys_stay() -> None:
    free = torch.arange(7) >= 2
    none = torch.zeros(2, 2, 7, 7, dtype=torch.bool)
    logits = hard_masking(LOGITS, none, 7, mode="drop", selectable=free)
    weights = masked_softmax(logits)
    assert torch.equal(logits[..., :2], LOGITS[..., :2])
    assert not bool(weights[..., 2:].any())


@pytest.mark.parametrize("mode", ["zero", "drop"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_all_padding_and_half_precision_stay_finite(mode: str, dtype: torch.dtype) -> None:
    logits = (random(2, 1, 3, 5) * 100).to(dtype).requires_grad_()
    allowed = torch.tensor([[True] * 5, [False] * 5])[:, None, None, :]
    keep = random(2, 1, 3, 5, seed=2) > 0
    weights = masked_softmax(hard_masking(logits, keep, 5, allowed=allowed, mode=mode), allowed)
    weights.square().sum().backward()
    assert bool(weights.isfinite().all())
    assert not bool(weights[1].any())
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all())
    assert not bool(logits.grad[1].any())


@pytest.mark.parametrize("mode", ["zero", "drop"])
def test_gradients(mode: str) -> None:
    logits = random(1, 2, 3, 5).requires_grad_()
    keep = random(1, 2, 3, 3, seed=3) > 0
    allowed = torch.tensor([True, True, True, True, False])

    def weights(x: Tensor) -> Tensor:
        return masked_softmax(hard_masking(x, keep, 3, allowed=allowed, mode=mode), allowed)

    assert torch.autograd.gradcheck(weights, logits)


@pytest.mark.parametrize("mode", ["zero", "drop"])
def test_relaxed_mask_tends_to_the_hard_one_and_has_gradients(mode: str) -> None:
    u = torch.rand(2, 2, 7, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    p = tensor(0.4).requires_grad_()
    hard = masked_softmax(hard_masking(LOGITS, u >= 0.4, 3, mode=mode))
    cold = relaxed_log_keep(u, p, temperature=1e-4)
    soft = masked_softmax(hard_masking(LOGITS, cold, 3, mode=mode))
    torch.testing.assert_close(soft, hard, rtol=0, atol=1e-6)

    def weights(p: Tensor) -> Tensor:
        return masked_softmax(hard_masking(LOGITS, relaxed_log_keep(u, p, 1.0), 3, mode=mode))

    assert torch.autograd.gradcheck(weights, p)


def test_vmap() -> None:
    logits, keep = random(3, 1, 2, 4, 6), random(3, 1, 2, 4, 2, seed=5) > 0
    together = torch.func.vmap(lambda x, m: hard_masking(x, m, 2))(logits, keep)
    apart = torch.stack([hard_masking(x, m, 2) for x, m in zip(logits, keep, strict=True)])
    assert torch.equal(together, apart)
