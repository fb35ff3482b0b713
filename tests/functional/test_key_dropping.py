"""DropKey and DropAttention: oracles, equality of the two, rows that would lose all, rates."""

import json
from pathlib import Path

import pytest
import torch
from scipy.stats import binomtest
from torch import Tensor

from attndrop_repro.functional.key_dropping import (
    dropattention,
    dropkey,
    in_windows,
    keep_some,
    start_probability,
)

ORACLES = json.loads((Path(__file__).parents[1] / "oracles.json").read_text())


def tensor(value: object) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def uniform(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


LOGITS = tensor(ORACLES["qkv"]["logits"])


def test_dropkey_oracle() -> None:
    oracle = ORACLES["dropkey"]
    weights = dropkey(LOGITS, tensor(oracle["keep"]).bool())
    torch.testing.assert_close(weights, tensor(oracle["weights"]), rtol=0, atol=1e-13)


@pytest.mark.parametrize("form", ["element", "column", "window"])
def test_dropattention_oracle_and_its_equality_with_dropkey(form: str) -> None:
    oracle = ORACLES["dropattention"][form]
    keep = tensor(oracle["keep"]).bool()
    weights = dropattention(LOGITS.softmax(-1), keep)
    torch.testing.assert_close(weights, tensor(oracle["weights"]), rtol=0, atol=1e-13)
    torch.testing.assert_close(weights, dropkey(LOGITS, keep), rtol=0, atol=1e-14)


def test_window_oracle() -> None:
    oracle = ORACLES["dropattention"]["window"]
    starts, w = tensor(oracle["starts"]), oracle["w"]
    # a draw below p where a window starts; none starts before the first key
    u = torch.nn.functional.pad(1 - starts, (w - 1, 0), value=1.0)
    keep = in_windows(u, w) >= 0.5
    keep[..., 0] = True  # the oracle's own guard
    assert torch.equal(keep, tensor(oracle["keep"]).bool())


@pytest.mark.parametrize(("keys", "w"), [(1, 1), (1, 4), (5, 3), (4, 9)])
def test_windows_by_hand(keys: int, w: int) -> None:
    u = uniform(3, keys + w - 1)
    expected = torch.stack([u[:, j : j + w].min(-1).values for j in range(keys)], -1)
    assert torch.equal(in_windows(u, w), expected)


@pytest.mark.parametrize("p", [0.0, 0.3, 0.9, 1.0])
def test_rows_keep_an_allowed_key(p: float) -> None:
    u = uniform(20, 2, 6, 6)
    for allowed in (None, torch.ones(6, 6, dtype=torch.bool).tril(), torch.arange(6) < 2):
        keep = keep_some(u, p, allowed)
        seen = keep if allowed is None else keep & allowed
        assert bool(seen.any(-1).all())
        dropped_alone = (u >= p) if allowed is None else (u >= p) & allowed
        lost = ~dropped_alone.any(-1)
        assert torch.equal(seen[~lost], dropped_alone[~lost])
        assert bool((seen[lost].sum(-1) == 1).all())
        if p == 0:
            assert bool(keep.all()) or allowed is not None
        weights = dropkey(torch.zeros(20, 2, 6, 6), keep, allowed)
        torch.testing.assert_close(weights.sum(-1), torch.ones(20, 2, 6))


def test_rows_without_keys_are_zero_and_columns_save_each_row() -> None:
    allowed = torch.tensor([[True, False], [False, False]])
    weights = dropkey(
        torch.zeros(1, 1, 2, 2), keep_some(uniform(1, 1, 2, 2), 1.0, allowed), allowed
    )
    assert weights[0, 0].tolist() == [[1, 0], [0, 0]]
    # one draw a column, rows that may attend different keys
    causal = torch.ones(4, 4, dtype=torch.bool).tril()
    seen = keep_some(uniform(5, 3, 1, 4), 1.0, causal) & causal
    assert bool((seen.sum(-1) == 1).all())


@pytest.mark.parametrize("w", [1, 2, 3, 7])
def test_every_element_is_dropped_with_probability_p(w: int) -> None:
    p, rows, keys = 0.3, 4000, 5
    u = uniform(rows, keys + w - 1, seed=w)
    dropped = in_windows(u, w) < start_probability(p, w)
    for key in (0, keys // 2, keys - 1):
        count = int(dropped[:, key].sum())
        assert binomtest(count, rows, p).pvalue > 1e-6
    # p/w is its first order
    assert start_probability(0.001, w) == pytest.approx(0.001 / w, rel=1e-3)


def test_probability_by_head() -> None:
    p = tensor([0.0, 1.0]).view(2, 1, 1)
    keep = keep_some(uniform(3, 2, 4, 5), p)
    assert bool(keep[:, 0].all())
    assert bool((keep[:, 1].sum(-1) == 1).all())


def test_gradients() -> None:
    keep = keep_some(uniform(1, 2, 3, 4), 0.5)
    logits = LOGITS[:1, :, :3, :4].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: dropkey(x, keep), logits)
    assert torch.autograd.gradcheck(lambda x: dropattention(x.softmax(-1), keep), logits)
