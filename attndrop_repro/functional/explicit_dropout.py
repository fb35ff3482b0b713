"""Explicit dropout: the penalties that dropping features stands for (Agrawal et al., section 3).

Dropping features of the tokens X on their way into a linear map F changes its output by F(X~), with
X~ = (1 - M) * X for a mask M that keeps with probability 1 - p. Each penalty is E 1/2 ||F(X~)||^2:

    target  F(X~)            what drops
    q       X~ Wq^T K^T      features of the query tokens;  K = X Wk^T
    k       Q (X~ Wk^T)^T    features of the key tokens;    Q = X Wq^T
    v, ff   X~ W^T           features entering a linear layer
    av      A X~ Wv^T        features of the tokens that attention averages

It has two parts: ||F(X)||^2, and sum_rj X_rj^2 ||F(e_rj)||^2, the "diagonal". The three forms
weigh them differently (`coefficients`). The paper prints the first with p^2 alone: that is the
expectation for two *different* features only (erratum X1), and as printed J_q = J_k (erratum X5).

Shapes: B examples, N tokens, C features in, D features out, G groups of heads, H heads. Weights are
(out, in) as in torch; biases take no part, as in the paper. All is computed in float32 at least;
only what a layer has made in bfloat16 already stays so, in products too, and is summed in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from attndrop_repro.functional.squares import squares_by_column, squares_by_example

Form = Literal["paper", "exact", "inverted"]
Probability = float | Tensor


@dataclass(frozen=True)
class Normalisation:
    """What a penalty is summed over and what it is averaged over; the paper does not say (X8).

    Attributes:
        batch: "mean" or "sum" over the examples.
        tokens: "sum" over tokens, or that sum divided by the example's number of real tokens.
        heads: "merged": the projections of all heads are one matrix, as printed in the paper.
            "sum" or "mean" over heads of each head's own penalty. What heads do not mix (v, av) is
            the same merged and summed; feed-forward layers have none.
    """

    batch: Literal["mean", "sum"] = "mean"
    tokens: Literal["sum", "mean"] = "sum"
    heads: Literal["merged", "sum", "mean"] = "merged"


DEFAULT = Normalisation()


def coefficients(form: Form, p: Probability) -> tuple[Probability, Probability]:
    """The factors on ||F(X)||^2 and on the diagonal, before the 1/2.

    Args:
        form: "paper": p^2 and 0, as printed (B ~ p^2 X^T X). "exact": p^2 and p (1 - p), the
            expectation under the paper's masks. "inverted": 0 and p / (1 - p), the expectation when
            what is kept is scaled by 1 / (1 - p), which the paper says it does (erratum X2).
        p: Probability to drop; below 1 where the form is "inverted".

    Raises:
        ValueError: There is no such form.
    """
    if form == "paper":
        return p * p, p * 0
    if form == "exact":
        return p * p, p * (1 - p)
    if form == "inverted":
        return p * 0, p / (1 - p)
    raise ValueError(f"form is paper, exact or inverted, not {form!r}")


def linear_penalty(
    x: Tensor,
    weight: Tensor,
    p: Probability,
    form: Form,
    *,
    real: Tensor | None = None,
    over: Normalisation = DEFAULT,
    heads: int = 1,
    mapped: Tensor | None = None,
) -> Tensor:
    """Targets v and ff: E 1/2 ||X~ W^T||^2 (eqs 19 and 61); paper form p^2/2 ||X W^T||^2.

    Args:
        x: What enters the layer, (B, ..., C); everything between is tokens.
        weight: (D, C).
        p: Probability to drop.
        form: See `coefficients`.
        real: Boolean (B, ...): False at padding, which counts nowhere.
        over: Normalisation.
        heads: Heads that the outputs belong to; only ``over.heads == "mean"`` uses it.
        mapped: X W^T, (B, ..., D), where it is there already; what it says of padding is not read.

    Returns:
        A scalar.
    """
    x, weight = _rows(x), wide(weight)
    real = None if real is None else real.reshape(x.shape[:2])
    per_image = example_weights(x, real, over)
    if over.heads == "mean":
        per_image = per_image / heads
    together, diagonal = coefficients(form, p)
    total = x.new_zeros(())
    if form != "inverted":
        if mapped is None:
            mapped = x @ weight.mT
        total = total + together * (per_image @ squares_by_example(masked(_tokens(mapped), real)))
    if form != "paper":
        energy_bc = squares_by_column(masked(x, real))
        total = total + diagonal * ((per_image @ energy_bc) @ weight.square().sum(0))
    return total / 2


def logit_penalty(
    x: Tensor,
    other: Tensor,
    weight: Tensor,
    weight_other: Tensor,
    p: Probability,
    form: Form,
    *,
    real: Tensor | None = None,
    real_other: Tensor | None = None,
    over: Normalisation = DEFAULT,
    heads: int = 1,
    scale: float = 1.0,
    mapped: Tensor | None = None,
    mapped_other: Tensor | None = None,
) -> Tensor:
    """Targets q and k: E 1/2 ||X~ W^T (Y W'^T)^T||^2, what dropping does to the logits (eqs 4, 52).

    For q, `x` and `weight` are the query's and the others the key's; for k the other way round.
    Paper form: p^2/2 ||Q K^T||^2 for both. No (N, N) matrix is made where the Gram matrices of the
    projections are smaller: ||Q K^T||^2 = tr(Q^T Q K^T K).

    Args:
        x: Tokens whose features drop, (B, N, C).
        other: Tokens on the other side, (B, M, C'); the same in self-attention.
        weight: Projection of `x`, (H D, C).
        weight_other: Projection of `other`, (H D, C').
        p: Probability to drop.
        form: See `coefficients`.
        real: Boolean (B, N): False at padding of `x`.
        real_other: Boolean (B, M): likewise of `other`.
        over: Normalisation.
        heads: H.
        scale: Factor on the logits; 1 as from the paper's eq. 7 on, where 1/sqrt(d) is gone (X8).
        mapped: x W^T, (B, N, H D), where it is there already; what it says of padding is not read.
        mapped_other: other W'^T, (B, M, H D), likewise.

    Returns:
        A scalar.
    """
    groups = 1 if over.heads == "merged" else heads
    x, other = masked(_rows(x), real), masked(_rows(other), real_other)
    w_gdc = _by_head(weight, groups)
    k_bgmd = _projected(other, weight_other, groups, mapped_other, real_other)
    together, diagonal = coefficients(form, p)
    per_example = x.new_zeros(x.shape[0])
    if form != "inverted":
        q_bgnd = _projected(x, weight, groups, mapped, real)
        per_example = per_example + together * _product_norm(q_bgnd, k_bgmd)
    if form != "paper":
        # ||F(e_rj)||^2 = ||K w_j||^2 whatever the row r; w_j is column j of the weight
        if k_bgmd.shape[-2] < k_bgmd.shape[-1]:
            columns = squares_by_column(_by_group(k_bgmd, w_gdc.to(k_bgmd.dtype)))
        else:
            gram = wide(k_bgmd).mT @ wide(k_bgmd)
            columns = (_by_group(gram, w_gdc) * w_gdc).sum(-2)
        energy = squares_by_column(x)
        per_example = per_example + diagonal * (columns.sum(1) * energy).sum(-1)
    if over.heads == "mean":
        per_example = per_example / heads
    return (example_weights(x, real, over) * per_example).sum() * scale**2 / 2


def attended_penalty(
    x: Tensor,
    weight: Tensor,
    attended: Tensor | None,
    mass: Tensor | None,
    p: Probability,
    form: Form,
    *,
    real: Tensor | None = None,
    over: Normalisation = DEFAULT,
) -> Tensor:
    """Target av: E 1/2 ||A X~ Wv^T||^2 (eq. 72), every head with its own A and rows of Wv.

    Paper form: p^2/2 ||A V||^2, which needs no (N, N) matrix. The diagonal is
    sum_aj Y_aa X_aj^2 ||Wv_j||^2 with Y = A^T A.

    Args:
        x: Tokens that become values, (B, N, C).
        weight: Wv, (H D, C), its heads repeated where heads share values.
        attended: A V without biases, 0 at padded queries, (B, H, Q, D); None if form is "inverted".
        mass: Y_aa, the sum over real queries of A_qa^2, (B, H, N); None if the form is "paper".
        p: Probability to drop.
        form: See `coefficients`.
        real: Boolean (B, N): False at padding.
        over: Normalisation.

    Returns:
        A scalar.
    """
    x = masked(_rows(x), real)
    together, diagonal = coefficients(form, p)
    per_example, heads = x.new_zeros(x.shape[0]), 1
    if attended is not None:
        heads = attended.shape[1]
        per_example = per_example + together * squares_by_example(attended)
    if mass is not None:
        heads = mass.shape[1]
        w_hdc = _by_head(weight, heads)
        energy_bhc = wide(mass) @ x.square()
        per_example = per_example + diagonal * (energy_bhc * w_hdc.square().sum(1)).sum((1, 2))
    if over.heads == "mean":
        per_example = per_example / heads
    return (example_weights(x, real, over) * per_example).sum() / 2


def example_weights(x: Tensor, real: Tensor | None, over: Normalisation) -> Tensor:
    """(B,): what each example's sum is multiplied by; `x` is (B, N, C)."""
    batch, tokens = x.shape[:2]
    factor = x.new_full((batch,), 1 / max(batch, 1) if over.batch == "mean" else 1.0)
    if over.tokens == "sum":
        return factor
    count = x.new_full((batch,), tokens) if real is None else real.sum(-1).to(x.dtype)
    return factor / count.clamp(min=1)


def masked(x: Tensor, real: Tensor | None) -> Tensor:
    """(B, N, C) with 0 where `real`, (B, N), is False."""
    return x if real is None else x.masked_fill(~real[..., None], 0)


def wide(x: Tensor) -> Tensor:
    """At least float32: sums of fourth powers leave the range of fp16 at once."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _rows(x: Tensor) -> Tensor:
    """(B, ..., C) as (B, N, C), in float32 at least; (B, C) is one token each."""
    return _tokens(wide(x))


def _tokens(x: Tensor) -> Tensor:
    """(B, ..., C) as (B, N, C); (B, C) is one token each."""
    return x[:, None] if x.ndim == 2 else x.flatten(1, -2)


def _by_head(weight: Tensor, heads: int) -> Tensor:
    """(H D, C) as (H, D, C), in float32 at least."""
    return wide(weight).reshape(heads, -1, weight.shape[-1])


def _projected(
    x: Tensor, weight: Tensor, groups: int, mapped: Tensor | None, real: Tensor | None
) -> Tensor:
    """X W^T by groups of heads, (B, G, N, D), 0 at padding, from (B, N, C)."""
    y = x @ wide(weight).mT if mapped is None else masked(_tokens(mapped), real)
    return y.view(*y.shape[:-1], groups, -1).transpose(1, 2)


def _by_group(x_bgmd: Tensor, w_gdc: Tensor) -> Tensor:
    """Every group's product, (B, G, M, C); with one group as one, not an example at a time."""
    product: Tensor = torch.einsum("bgmd,gdc->bgmc", x_bgmd, w_gdc)
    return product


def _product_norm(q: Tensor, k: Tensor) -> Tensor:
    """||q k^T||^2 summed over groups, (B,), from (B, G, N, D) and (B, G, M, D)."""
    if q.shape[-1] < min(q.shape[-2], k.shape[-2]):
        q, k = wide(q), wide(k)
        return ((q.mT @ q) * (k.mT @ k)).sum((1, 2, 3))
    return squares_by_example(q @ k.mT)
