"""Variance of the stochastic gradient, and what a regulariser adds to it (lemma 1, figure 5, A15).

With g the gradient of an example's plain loss and g + D that of its regularised loss at the same
weights, Var[g + D] = Var g + 2 Cov(g, D) + Var D, each the trace of a covariance over examples and
draws. The sign is +, not the printed - (E8), so the regulariser lowers the variance exactly when
Cov(g, D) < -Var D / 2.

Shapes: U units (examples, or batches of B), D draws, P numbers of a parameter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from attndrop_repro.adapters import Handle
from attndrop_repro.config.errors import UsageError
from attndrop_repro.config.progress import Progress, Silent
from attndrop_repro.evaluation import bootstrap
from attndrop_repro.evaluation.draws import ExampleDraws
from attndrop_repro.evaluation.gradient_shares import TERMS, shares
from attndrop_repro.evaluation.guard import untouched
from attndrop_repro.evaluation.per_sample import (
    Criterion,
    Gradients,
    PerSample,
    refuse_batch_norm,
)
from attndrop_repro.evaluation.probabilities import Floats

_AT_ONCE = 1 << 26  # bytes of a chunk's gradients: fresh memory costs more than another chunk

Per = Literal["sample", "batch"]
Block = tuple[Gradients, list[Gradients]]


@dataclass(frozen=True)
class Spread:
    """The parts of a gradient's variance over some parameters.

    Attributes:
        regularised: Var[g + D].
        base: Var g.
        delta: Var D.
        covariance: Cov(g, D).
        mask: Of `regularised`, the mean over examples of the variance over draws, unbiased; None
            with one draw, which cannot tell.
        data: The rest of `regularised`: the variance over examples of the mean over draws.
        mean_square: Squared norm of the mean regularised gradient, which scales with the loss.
        mean_delta_square: Squared norm of the mean of D; the lemma takes it for 0 (E15).
        intervals: 95 % by term: percentile bootstrap over units.
    """

    regularised: float
    base: float
    delta: float
    covariance: float
    mask: float | None
    mean_square: float
    mean_delta_square: float
    intervals: dict[str, tuple[float, float]]

    @property
    def data(self) -> float | None:
        """See above."""
        return None if self.mask is None else self.regularised - self.mask

    @property
    def lowers(self) -> bool:
        """Whether the lemma's condition held, in its corrected form: Cov < -Var D / 2."""
        return self.covariance < -self.delta / 2

    @property
    def identity_error(self) -> float:
        """|Var[g + D] - (Var g + 2 Cov + Var D)|, relative to Var[g + D]: rounding only."""
        gap = self.regularised - (self.base + 2 * self.covariance + self.delta)
        return abs(gap) / self.regularised if self.regularised else abs(gap)


@dataclass(frozen=True)
class GradientVariance:
    """What was measured.

    Attributes:
        total: Over all parameters.
        layers: By layer.
        units: Examples, or batches.
        draws: Perturbations of each.
        policy: "vmap", or "loop: " and why vmap could not.
    """

    total: Spread
    layers: dict[str, Spread]
    units: int
    draws: int
    policy: str


def gradient_variance(
    handle: Handle,
    x: Tensor,
    y: Tensor,
    criterion: Criterion,
    *,
    seed: int = 0,
    draws: int = 2,
    per: Per = "sample",
    perturbation: Per = "sample",
    batch_size: int = 64,
    memory: int = 1 << 29,
    chunk: int | None = None,
    layers: bool = False,
    progress: Progress | None = None,
) -> GradientVariance:
    """Measures a model in train mode with its method on; the model is left as it was.

    Base and perturbed gradients share weights and examples, and every perturbation is an example's
    own whatever is computed with it: the result does not depend on `memory` and `chunk`.

    Args:
        handle: The method in the model.
        x: Pixels (n, C, H, W).
        y: Targets (n,).
        criterion: Task loss of outputs and targets, a scalar mean.
        seed: Of the draws.
        draws: Perturbations of each unit.
        per: Gradients of single examples, or of batches (A15); a rest smaller than a batch is left
            out.
        perturbation: Each example draws for itself, or the examples of a batch share a draw as far
            as they do in training (A15).
        batch_size: Of "batch".
        memory: Bytes that gradients may take.
        chunk: Units computed at a time, instead of what fits in `memory`.
        layers: Whether to give each layer's intervals and parts too.
        progress: Told after each chunk.

    Raises:
        AttndropError: The model has batch norm, or the method's draws cannot be an example's own.
        UsageError: Fewer than two units, or no draws.
    """
    size = batch_size if "batch" in (per, perturbation) else 1
    units = len(x) // size if per == "batch" else len(x)
    if units < 2 or draws < 1 or size < 1:
        raise UsageError(
            f"a variance needs at least two {'batches' if per == 'batch' else 'examples'} and one "
            f"draw; got {units} and {draws}"
        )
    refuse_batch_norm(handle.model)
    together = per == "batch" and perturbation == "batch"  # one gradient of a whole batch
    inside = size if together else 1
    used = units * (size if per == "batch" else 1)
    x = x[:used].reshape(-1, inside, *x.shape[1:])
    y = y[:used].reshape(-1, inside)
    group = size if per == "batch" and not together else 1
    share = size if per == "sample" and perturbation == "batch" else 1
    width = sum(p.numel() for p in handle.model.parameters() if p.requires_grad)
    unit_bytes = width * x.element_size() * (1 + draws)
    step = chunk or max(1, min(len(x), min(memory // 3, _AT_ONCE) // unit_bytes))
    step = max(group, step // group * group)
    worker = PerSample(handle, criterion, step)
    progress = progress or Silent()

    def blocks() -> Iterator[Block]:
        """Base and regularised gradients, chunk after chunk; the same every time."""
        base = worker.blocks(x, y, ExampleDraws(seed, "gradient-variance", "base"), plain=True)
        if handle.method.idle:  # its gradients are the plain ones, draw for draw
            for own in base:
                plain = _grouped(own, group)
                yield plain, [plain] * draws
            return
        drawn = [
            worker.blocks(x, y, ExampleDraws(seed, "gradient-variance", draw), share=share)
            for draw in range(draws)
        ]
        for number, (own, *others) in enumerate(zip(base, *drawn, strict=True)):
            progress.update(min((number + 1) * step, len(x)), len(x))
            yield _grouped(own, group), [_grouped(other, group) for other in others]

    with untouched(handle.model, seed):
        handle.model.train()
        fits = unit_bytes * len(x) // group <= memory
        kept = list(blocks()) if fits else None
        means = _means(blocks() if kept is None else kept)
        parts = _parts(blocks() if kept is None else kept, means)
    return _result(parts, means, units, draws, worker.reason, seed, layers)


def _grouped(gradients: Gradients, group: int) -> Gradients:
    """Means over neighbouring units: the gradient of a batch is that of its examples' mean."""
    if group == 1:
        return gradients
    return {name: g.view(-1, group, g.shape[1]).mean(1) for name, g in gradients.items()}


Means = dict[str, tuple[Tensor, Tensor]]  # by parameter: of g and of g + D, float64 (P,)


def _means(blocks: Iterator[Block] | Sequence[Block]) -> Means:
    sums: Means = {}
    units = draws = 0
    for base, drawn in blocks:
        many, draws = len(next(iter(base.values()))), len(drawn)
        units += many
        for name, g in base.items():
            zero = torch.zeros((), dtype=torch.float64, device=g.device)
            own, other = sums.get(name, (zero, zero))
            for r in drawn:
                other = other + r[name].mean(0).double() * many
            sums[name] = (own + g.mean(0).double() * many, other)
    return {name: (g / units, r / (units * draws)) for name, (g, r) in sums.items()}


def _parts(blocks: Iterator[Block] | Sequence[Block], means: Means) -> dict[str, Floats]:
    """By parameter, (terms, U): each unit's share, whose mean over units is the term."""
    parts: dict[str, list[Tensor]] = {name: [] for name in means}
    for base, drawn in blocks:
        for name, g in base.items():
            parts[name].append(shares(g, [other[name] for other in drawn], *means[name]))
    return {name: torch.cat(rows, 1).cpu().numpy() for name, rows in parts.items()}


def _result(
    parts: dict[str, Floats], means: Means, units: int, draws: int, reason: str, seed: int,
    layers: bool,
) -> GradientVariance:  # fmt: skip
    def spread(names: Sequence[str], tag: str) -> Spread:
        shares = np.sum([parts[name] for name in names], axis=0)  # (terms, U)
        value = dict(zip(TERMS, (float(v) for v in shares.mean(1)), strict=True))
        intervals = {
            term: bootstrap.mean_interval(row, seed, "gradient-variance", tag)
            for term, row in zip(TERMS, shares, strict=True)
        }
        one_draw = draws == 1
        if one_draw:
            intervals.pop("mask")
        both = [means[name] for name in names]
        return Spread(
            value["regularised"], value["base"], value["delta"], value["covariance"],
            None if one_draw else value["mask"],
            sum(float(r.square().sum()) for _, r in both),
            sum(float((r - g).square().sum()) for g, r in both),
            intervals,
        )  # fmt: skip

    by_layer: dict[str, list[str]] = {}
    for name in parts:
        by_layer.setdefault(layer_of(name), []).append(name)
    return GradientVariance(
        spread(list(parts), "all"),
        {layer: spread(names, layer) for layer, names in by_layer.items()} if layers else {},
        units,
        draws,
        f"loop: {reason}" if reason else "vmap",
    )


def layer_of(name: str) -> str:
    """The layer that a parameter belongs to: its block, or the module that holds it.

    ``network.blocks.3.attn.qkv.weight`` is of ``network.blocks.3``, ``network.cls_token`` of
    ``network.cls_token``.
    """
    block = re.match(r"(.*?\.\d+)\.", name)
    if block:
        return block.group(1)
    module, _, last = name.rpartition(".")
    return module if last in ("weight", "bias") else name
