"""Attention through its logits, some rows at a time: a matrix (Q, K) is never there as a whole.

Fused attention keeps no logits, but shows none either. Here a method changes those of some rows,
which are computed again in the backward pass, so that memory grows with Q + K, not with Q K. Where
the weights take no more memory than what the rest of a block keeps they are kept, which is quicker.

Shapes: B batch, H heads, Q queries, K keys, D features of a head; b, h and q a part of B, H and Q.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attndrop_repro.functional.joint_projection import apart, joint_projection
from attndrop_repro.functional.masked_softmax import floor

# Elements of logits at a time. CPU: what stays in the caches until it is used again. More threads
# want more, for all of them wait for each other after every step.
_AT_A_TIME, _AT_A_TIME_BY_THREADS, _AT_A_TIME_ON_A_GPU = 2**19, 2**20, 2**23
# Weights are kept where K <= 8 D: a block keeps some 16 D numbers for each head and token.
_KEPT_UP_TO = 8
# One thread: elements of an example's product from which a call of its own costs less than copying
# its factors.
_WORTH_A_CALL = 2**14


class Part(NamedTuple):
    """The rows whose logits are there at a time: b x h x q."""

    batch: slice
    heads: slice
    queries: slice

    def of(self, x: Tensor) -> Tensor:
        """That part of anything broadcastable to (B, H, Q, ...)."""
        for dim, at in enumerate(self):
            if x.shape[dim] > 1:
                x = x.narrow(dim, at.start, at.stop - at.start)
        return x

    def keys(self, x: Tensor) -> Tensor:
        """All the keys or values that these rows meet, (b, h, K, ...)."""
        return x[self.batch, self.heads]


class Change:
    """What a method does to an attention; without an override, nothing.

    Methods are called on every part in forward, and in backward again in the same order; they must
    do the same to the same numbers.

    Attributes:
        draws: Whether it draws: on a CPU only, from the generator that it is given.
    """

    draws = False

    def logits(
        self,
        logits: Tensor,
        part: Part,
        visible: Tensor | None,
        noted: Tensor | None,
        generator: torch.Generator | None,
    ) -> Tensor | None:
        """Changes logits (b, h, q, K) in place; forbidden ones are at `floor` already.

        Args:
            logits: The part's logits.
            part: Which it is.
            visible: Boolean, broadcastable to the logits: keys that may be seen; None: all.
            noted: What it returned in forward; None: this is forward.
            generator: Where draws come from; None: the default one.

        Returns:
            What it wants to know in backward.
        """
        return None

    def gradient(self, grad: Tensor, part: Part, noted: Tensor | None) -> None:
        """Turns, in place, the gradient of changed logits into that of the logits."""

    def factor(self, weights: Tensor, generator: torch.Generator | None) -> Tensor | None:
        """What a part's weights (b, h, q, K) are multiplied by; None: 1."""
        return None


def attention_by_rows(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    change: Change,
    *,
    scale: float,
    allowed: Tensor | None = None,
    causal: bool = False,
    private: bool = False,
) -> Tensor:
    """(factor * softmax(change(scale q k^T))) v, (B, H, Q, D).

    For eager code only (`possible`), and differentiable once.

    Args:
        q: (B, H, Q, D).
        k: (B, H, K, D).
        v: (B, H, K, D'); features without gaps between them.
        change: What happens to logits and weights.
        scale: Factor on q k^T.
        allowed: Boolean, broadcastable to (B, H, Q, K); rows without any key give 0. None: all.
        causal: Whether query i may see key j for j <= i only.
        private: Nobody else holds q, k, v or what they are views of, so that no hook and no
            gradient is wanted there: those may be passed by (`joint_projection`).
    """
    device = q.device.type
    if torch.is_autocast_enabled(device):  # as fused attention does
        q, k, v = (x.to(torch.get_autocast_dtype(device)) for x in (q, k, v))
    if allowed is not None:
        allowed = allowed.reshape((1,) * (4 - allowed.dim()) + allowed.shape)
    qkv = joint_projection(q, k, v) if private else None
    with torch.autocast(device, enabled=False):
        output: Tensor = _ByRows.apply(
            _Rows(change, scale, allowed, causal), *((q, k, v) if qkv is None else (qkv,))
        )
    return output


def possible() -> bool:
    """Whether code runs eagerly: neither traced by torch.compile nor under torch.func."""
    return not (torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active())


def pays(k: Tensor) -> bool:
    """Whether this is no slower than all logits at once, for keys (B, H, K, D), or saves memory.

    On a GPU it is slower: there are more, smaller steps, and some wait for it.
    """
    return k.device.type == "cpu" or not _kept(k)


def _alone() -> bool:
    return torch.get_num_threads() == 1


def _kept(k: Tensor) -> bool:
    return k.shape[-2] <= _KEPT_UP_TO * k.shape[-1]


def parts(batch: int, heads: int, queries: int, keys: int, at_a_time: int) -> Iterator[Part]:
    """Shares out the rows in order: whole examples, or heads of one, or queries of one head."""
    rows = max(at_a_time // max(keys, 1), 1)
    q = min(rows, queries) or 1
    h = min(max(rows // max(queries, 1), 1), heads) or 1
    b = min(max(rows // max(queries * heads, 1), 1), batch) or 1
    for i in range(0, batch, b):
        for j in range(0, heads, h):
            for n in range(0, queries, q):
                yield Part(
                    slice(i, min(i + b, batch)),
                    slice(j, min(j + h, heads)),
                    slice(n, min(n + q, queries)),
                )


class _Rows(NamedTuple):
    """What is done to every part."""

    change: Change
    scale: float
    allowed: Tensor | None
    causal: bool

    def parts(self, q: Tensor, k: Tensor) -> Iterator[Part]:
        batch, heads, queries, _ = q.shape
        if q.device.type != "cpu":
            at_a_time = _AT_A_TIME_ON_A_GPU
        else:
            at_a_time = _AT_A_TIME if _alone() else _AT_A_TIME_BY_THREADS
        return parts(batch, heads, queries, k.shape[-2], at_a_time)

    def weights(
        self,
        q: Tensor,
        k: Tensor,
        part: Part,
        noted: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Soft-max of a part's changed logits, (b, h, q, K), its factor, and what was noted.

        In float32 at least.

        Args:
            q: The part's queries, (b, h, q, D).
            k: Its keys, (b, h, K, D).
            part: Which.
            noted: What the change noted in forward.
            generator: Where draws come from.
        """
        # scaling the queries first keeps half precision from overflowing
        logits = _product(q * self.scale, k.mT)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        visible = self._visible(part, k)
        if visible is not None:
            logits.masked_fill_(~visible, floor(logits))
        noted = self.change.logits(logits, part, visible, noted, generator)
        weights = torch.softmax(logits, -1)
        if visible is not None:
            # a padding query has no key: its soft-max is uniform over forbidden ones
            weights *= visible.any(-1, keepdim=True)
        return weights, self.change.factor(weights, generator), noted

    def _visible(self, part: Part, k: Tensor) -> Tensor | None:
        allowed = None if self.allowed is None else part.of(self.allowed)
        if not self.causal:
            return allowed
        queries = torch.arange(part.queries.start, part.queries.stop, device=k.device)
        past = queries[:, None] >= torch.arange(k.shape[-2], device=k.device)
        return past if allowed is None else past & allowed


class _ByRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: _Rows, *tensors: Tensor) -> Tensor:
        """Of queries, keys and values, or of what all three are views of."""
        q, k, v = tensors if len(tensors) == 3 else apart(*tensors)
        batch, heads, queries, _ = q.shape
        # models put the heads side by side next
        out = v.new_empty(batch, queries, heads, v.shape[-1]).transpose(1, 2)
        keep = any(ctx.needs_input_grad) and _kept(k)
        # one state: notes of each part would lie between the blocks of memory that parts reuse
        state = torch.get_rng_state() if rows.change.draws else None
        saved: list[Tensor | None] = []
        for part in rows.parts(q, k):
            w, factor, noted = rows.weights(part.of(q), part.keys(k), part)
            applied = w if factor is None else w * factor
            part.of(out).copy_(_product(applied.to(v.dtype), part.keys(v)))
            saved += [noted, *((w, factor) if keep else (None, None))]
        ctx.rows, ctx.inputs = rows, len(tensors)
        ctx.save_for_backward(*tensors, state, *saved)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        unpacked = ctx.saved_tensors  # once: checkpoints compute them again for every access
        tensors = unpacked[: ctx.inputs]
        state, *saved = unpacked[ctx.inputs :]
        rows: _Rows = ctx.rows
        grads = tuple(torch.empty_like(x) for x in tensors)
        (q, k, v), (dq, dk, dv) = (x if len(x) == 3 else apart(*x) for x in (tensors, grads))
        exact = torch.promote_types(q.dtype, torch.float32)
        of_keys, of_values = (_Sum(x, q.shape[-2], exact) for x in (dk, dv))
        generator = None if state is None else torch.Generator().set_state(state)
        for index, part in enumerate(rows.parts(q, k)):
            noted, w, factor = saved[3 * index : 3 * index + 3]
            part_q, part_k, part_v, part_grad = (
                part.of(q),
                part.keys(k),
                part.keys(v),
                part.of(grad),
            )
            if w is None:
                w, factor, _ = rows.weights(part_q, part_k, part, noted, generator)
            applied = w if factor is None else w * factor
            of_values.add(part, _product(applied.to(v.dtype).mT, part_grad))
            dw = _product(part_grad, part_v.mT).to(exact)
            if factor is not None:
                dw *= factor
            dl = torch._softmax_backward_data(dw, w, -1, exact)
            rows.change.gradient(dl, part, noted)
            dl = dl.to(q.dtype)
            part.of(dq).copy_(_product(dl, part_k, rows.scale))
            of_keys.add(part, _product(dl.mT, part_q, rows.scale))
        return None, *grads


class _Sum:
    """Gradients of keys or values, to which all queries add.

    Args:
        result: Where they end, (B, H, K, ...).
        queries: Q.
        exact: The dtype to add in.
    """

    def __init__(self, result: Tensor, queries: int, exact: torch.dtype) -> None:
        self.result, self.queries, self.exact = result, queries, exact
        self.so_far: Tensor | None = None

    def add(self, part: Part, product: Tensor) -> None:
        """Adds what a part's queries give; those of a head come one after the other."""
        if self.so_far is not None:
            product = self.so_far.add_(product)
        if part.queries.stop == self.queries:
            part.keys(self.result).copy_(product)
            self.so_far = None
        elif self.so_far is None:
            self.so_far = product.to(self.exact)


def _product(left: Tensor, right: Tensor, factor: float = 1.0) -> Tensor:
    """Matrix products (b, h, m, p) of (b, h, m, n) and (b, h, n, p), times a factor."""
    out = left.new_empty(*left.shape[:-1], right.shape[-1])
    if out.device.type == "cpu" and _alone() and out[0].numel() > _WORTH_A_CALL:
        # one example at a time: its heads lie at one distance, so that nothing has to be copied
        for result, x, y in zip(out, left, right, strict=True):
            torch.baddbmm(result, x, y, beta=0, alpha=factor, out=result)
        return out
    flat = out.view(-1, *out.shape[2:])
    x, y = left.flatten(0, 1), right.flatten(0, 1)
    torch.baddbmm(flat, x, y, beta=0, alpha=factor, out=flat)
    return out
