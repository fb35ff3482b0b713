"""Explicit penalties: the oracle, a Monte Carlo of the dropping they stand for, and invariances."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from attndrop_repro.functional.arora import arora_penalty
from attndrop_repro.functional.explicit_dropout import (
    Normalisation,
    attended_penalty,
    coefficients,
    linear_penalty,
    logit_penalty,
)  # fmt: skip

ORACLE = json.loads((Path(__file__).parents[1] / "oracles.json").read_text())["explicit_dropout"]
X, WQ, WK, WV, WF = (
    torch.tensor(ORACLE[key], dtype=torch.float64) for key in ("X", "Wq", "Wk", "Wv", "W_ff1")
)
P = ORACLE["p"]
TARGETS = ("q", "k", "v", "av", "ff")


def attention(x: Tensor, w_q: Tensor, w_k: Tensor, heads: int = 1) -> Tensor:
    q, k = (split(x @ w.T, heads) for w in (w_q, w_k))
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)


def split(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def penalty(target: str, form: str, x: Tensor = X, p: float = P, **options: object) -> Tensor:
    heads = int(options.get("heads", 1))  # type: ignore[call-overload]
    if target == "q":
        return logit_penalty(x, x, WQ, WK, p, form, **options)
    if target == "k":
        return logit_penalty(x, x, WK, WQ, p, form, **options)
    if target == "av":
        options.pop("heads", None)
        weights = attention(x, WQ, WK, heads)
        attended, mass = weights @ split(x @ WV.T, heads), weights.square().sum(-2)
        return attended_penalty(x, WV, attended, mass, p, form, **options)
    return linear_penalty(x, WV if target == "v" else WF, p, form, **options)


@pytest.mark.parametrize("target", TARGETS)
def test_oracle(target: str) -> None:
    assert penalty(target, "paper").item() == pytest.approx(ORACLE["paper"][target], rel=1e-12)
    exact = penalty(target, "exact").item()
    assert exact == pytest.approx(ORACLE["exact_expectation"][target], rel=1e-12)
    assert exact == pytest.approx(
        ORACLE["monte_carlo"][target], rel=ORACLE["monte_carlo_tolerance"]
    )


def test_paper_form_is_half_p_squared_times_a_norm() -> None:
    q, k, v = X @ WQ.T, X @ WK.T, X @ WV.T
    norms = {
        "q": q @ k.mT, "k": q @ k.mT, "v": v,
        "av": attention(X, WQ, WK)[:, 0] @ v, "ff": X @ WF.T,
    }  # fmt: skip
    for target, output in norms.items():
        expected = P**2 / 2 * output.square().sum((1, 2)).mean()
        assert penalty(target, "paper").item() == pytest.approx(expected.item(), rel=1e-12)


def test_printed_q_and_k_are_one_number_but_the_exact_ones_differ() -> None:  # X5
    q, k = penalty("q", "paper").item(), penalty("k", "paper").item()
    assert q == pytest.approx(k, rel=1e-14)
    assert abs(penalty("q", "exact").item() / penalty("k", "exact").item() - 1) > 0.01


def dropped_output(target: str, lost: Tensor) -> Tensor:
    """F(X~), written out: what the output of this target loses; (draws, B, ...)."""
    if target == "q":
        return lost @ WQ.T @ (X @ WK.T).mT
    if target == "k":
        return X @ WQ.T @ (lost @ WK.T).mT
    if target == "v":
        return lost @ WV.T
    if target == "av":
        return attention(X, WQ, WK)[:, 0] @ (lost @ WV.T)
    return lost @ WF.T


@pytest.mark.parametrize("target", TARGETS)
def test_monte_carlo_of_the_masks(target: str) -> None:
    """`exact` and `inverted` agree with their masks; `paper` with neither (X1, X2)."""
    generator = torch.Generator().manual_seed(7)
    sums = {"exact": [], "inverted": []}
    for _ in range(20):
        keep = torch.rand(2000, *X.shape, generator=generator, dtype=X.dtype) >= P
        for form, kept in (("exact", X * keep), ("inverted", X * keep / (1 - P))):
            value = dropped_output(target, X - kept).square().flatten(2).sum(-1).mean(1) / 2
            sums[form].append(value)
    for form, values in sums.items():
        draws = torch.cat(values)
        mean, error = draws.mean().item(), draws.std().item() / len(draws) ** 0.5
        assert abs(penalty(target, form).item() - mean) < 4 * error
        assert error < 0.01 * mean
        # as printed: 4 to 6 times too small for its own masks, more for those it says it uses
        assert penalty(target, "paper").item() < mean / 4


def test_forms_at_the_ends() -> None:
    assert coefficients("paper", 0.2) == pytest.approx((0.04, 0.0))
    assert coefficients("exact", 0.2) == pytest.approx((0.04, 0.16))
    assert coefficients("inverted", 0.2) == pytest.approx((0.0, 0.25))
    for target in TARGETS:
        for form in ("paper", "exact", "inverted"):
            assert penalty(target, form, p=0.0).item() == 0
        # everything drops: nothing is random, and the paper's p^2 is right
        whole, printed = penalty(target, "exact", p=1.0), penalty(target, "paper", p=1.0)
        assert whole.item() == pytest.approx(printed.item(), rel=1e-12)
    with pytest.raises(ValueError, match="paper, exact or inverted"):
        coefficients("printed", 0.1)  # type: ignore[arg-type]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("form", ["paper", "exact", "inverted"])
def test_gradcheck(target: str, form: str) -> None:
    x = X[:2, :3].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda t: penalty(target, form, x=t), (x,))
    weights = [w.clone().requires_grad_() for w in (WQ, WK)]
    if target in "qk":
        assert torch.autograd.gradcheck(
            lambda a, b: logit_penalty(X, X, a, b, P, form), tuple(weights)
        )
    if target in ("v", "ff"):
        assert torch.autograd.gradcheck(lambda a: linear_penalty(X, a, P, form), (weights[0],))


@pytest.mark.parametrize("shape", [(2, 3, 8), (2, 9, 8), (1, 1, 8), (3, 8, 8)])
@pytest.mark.parametrize("heads", [1, 2, 4])
@pytest.mark.parametrize("over", ["merged", "sum", "mean"])
def test_cheap_orders_equal_the_plain_loop(
    shape: tuple[int, int, int], heads: int, over: str
) -> None:
    """Whichever of N and D is larger: against loops over examples, heads, rows and features."""
    generator = torch.Generator().manual_seed(heads)
    x = torch.randn(*shape, generator=generator, dtype=torch.float64)
    w, w_other = (torch.randn(8, 8, generator=generator, dtype=torch.float64) for _ in range(2))
    p, together, diagonal = 0.3, 0.09, 0.21
    groups = 1 if over == "merged" else heads
    expected = 0.0
    for tokens in x:
        for a, b in zip(w.chunk(groups), w_other.chunk(groups), strict=True):
            expected += together * (tokens @ a.T @ (tokens @ b.T).T).square().sum().item()
            for row in tokens:
                for j, value in enumerate(row):
                    column = tokens @ b.T @ a[:, j]
                    expected += diagonal * (value**2 * column.square().sum()).item()
    expected /= 2 * len(x) * (heads if over == "mean" else 1)
    value = logit_penalty(x, x, w, w_other, p, "exact", heads=heads, over=Normalisation(heads=over))
    assert value.item() == pytest.approx(expected, rel=1e-11)


def test_heads_of_values() -> None:
    merged = penalty("av", "exact", heads=2)
    assert penalty("av", "exact", heads=2, over=Normalisation(heads="sum")).item() == merged.item()
    mean = penalty("av", "exact", heads=2, over=Normalisation(heads="mean"))
    assert mean.item() == pytest.approx(merged.item() / 2, rel=1e-14)
    # by a loop over heads, each with its own attention
    weights, expected = attention(X, WQ, WK, 2), 0.0
    for head, w in enumerate(WV.chunk(2)):
        a = weights[:, head]
        expected += P**2 * (a @ X @ w.T).square().sum((1, 2)).mean().item()
        mass = a.square().sum(1)
        energy = torch.einsum("bn,bnc->bc", mass, X.square())
        expected += P * (1 - P) * (energy @ w.square().sum(0)).mean().item()
    assert merged.item() == pytest.approx(expected / 2, rel=1e-12)


def test_normalisation() -> None:
    for target in TARGETS:
        mean = penalty(target, "exact").item()
        total = penalty(target, "exact", over=Normalisation(batch="sum")).item()
        assert total == pytest.approx(3 * mean, rel=1e-13)
        per_token = penalty(target, "exact", over=Normalisation(tokens="mean")).item()
        assert per_token == pytest.approx(mean / 5, rel=1e-13)
        repeated = penalty(target, "exact", x=X.repeat(4, 1, 1)).item()
        assert repeated == pytest.approx(mean, rel=1e-13)
    scaled = logit_penalty(X, X, WQ, WK, P, "exact", scale=0.5)
    assert scaled.item() == pytest.approx(penalty("q", "exact").item() / 4, rel=1e-14)
    halved = linear_penalty(X, WV, P, "exact", heads=2, over=Normalisation(heads="mean"))
    assert halved.item() == pytest.approx(penalty("v", "exact").item() / 2, rel=1e-14)


@pytest.mark.parametrize("form", ["paper", "exact", "inverted"])
@pytest.mark.parametrize("tokens", ["sum", "mean"])
def test_padding_counts_nowhere(form: str, tokens: str) -> None:
    lengths = torch.tensor([5, 3, 1])
    over = Normalisation(tokens=tokens)

    def value(x: Tensor, real: Tensor | None) -> Tensor:
        logit = logit_penalty(x, x, WQ, WK, P, form, real=real, real_other=real, over=over)
        return logit + linear_penalty(x, WF, P, form, real=real, over=over)

    expected = 0.0
    for length, tokens_of_one in zip(lengths.tolist(), X, strict=True):
        expected += value(tokens_of_one[None, :length], None).item() / 3
    for width in (5, 9):
        padded = torch.full((3, width, 4), 1e3, dtype=X.dtype)
        padded[:, :5] = X
        real = torch.arange(width) < lengths[:, None]
        padded = torch.where(real[..., None], padded, 1e3)
        assert value(padded, real).item() == pytest.approx(expected, rel=1e-12)
    none = torch.zeros(3, 5, dtype=torch.bool)
    assert value(X, none).item() == 0


def test_layers_of_other_ranks() -> None:
    square = linear_penalty(X[:, :4].reshape(3, 2, 2, 4), WF, P, "exact")
    assert square.item() == pytest.approx(linear_penalty(X[:, :4], WF, P, "exact").item())
    flat = linear_penalty(X[:, 0], WF, P, "exact")
    assert flat.item() == pytest.approx(linear_penalty(X[:, :1], WF, P, "exact").item())
    real = torch.tensor([True, False, True])
    some = linear_penalty(X[:, 0], WF, P, "exact", real=real)
    assert some.item() == pytest.approx(
        linear_penalty(X[[0, 2], :1], WF, P, "exact").item() * 2 / 3
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_stays_finite(dtype: torch.dtype) -> None:
    x, w = torch.full((2, 64, 128), 8.0, dtype=dtype), torch.full((128, 128), 1.0, dtype=dtype)
    assert (x.float() @ w.float().T @ (x.float() @ w.float().T).mT).max() > torch.finfo(dtype).max \
        or dtype == torch.bfloat16  # fmt: skip
    for form in ("paper", "exact", "inverted"):
        value = logit_penalty(x, x, w, w, P, form)
        assert value.dtype == torch.float32
        expected = logit_penalty(x.double(), x.double(), w.double(), w.double(), P, form).item()
        assert value.item() == pytest.approx(expected, rel=1e-5)


def test_under_vmap_and_compiled() -> None:
    def both(x: Tensor) -> Tensor:
        return (
            penalty("q", "exact", x=x) + penalty("av", "exact", x=x) + penalty("ff", "exact", x=x)
        )

    each = torch.vmap(lambda x: both(x[None]))(X)
    assert each.mean().item() == pytest.approx(both(X).item(), rel=1e-12)
    compiled: Callable[[Tensor], Tensor] = torch.compile(both, backend="aot_eager", fullgraph=True)
    assert compiled(X).item() == pytest.approx(both(X).item(), rel=1e-12)


def test_arora() -> None:
    assert arora_penalty(X, WF, P).item() == pytest.approx(ORACLE["arora_linear"], rel=1e-13)
    loop = 0.0
    for j in range(4):
        loop += (WF[:, j].square().sum() * X[..., j].square().mean()).item()
    assert arora_penalty(X, WF, 0.4).item() == pytest.approx(0.4 / 0.6 * loop, rel=1e-13)
    # with inverted scaling the explicit penalty is N/2 times this one: no cross term is left (X2)
    inverted = linear_penalty(X, WF, P, "inverted")
    assert inverted.item() == pytest.approx(5 / 2 * ORACLE["arora_linear"], rel=1e-13)


def test_arora_ignores_padding_and_repetition() -> None:
    real = torch.tensor([[True] * 5, [True] * 2 + [False] * 3, [False] * 5])
    rows = X[real]
    junk = torch.where(real[..., None], X, 1e3)
    value = arora_penalty(junk, WF, P, real=real).item()
    assert value == pytest.approx(arora_penalty(rows, WF, P).item(), rel=1e-13)
    assert arora_penalty(X.repeat(4, 1, 1), WF, P).item() == pytest.approx(ORACLE["arora_linear"])
    assert arora_penalty(X, WF, P, real=torch.zeros(3, 5, dtype=torch.bool)).item() == 0
    assert arora_penalty(X, WF, 0.0).item() == 0
    assert arora_penalty(X.half(), WF.half(), P).dtype == torch.float32
    x, w = X[:1, :2].clone().requires_grad_(), WF.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: arora_penalty(a, b, P), (x, w))
