"""Attention under hard masking, without keeping its logits.

The same as soft-max over `hard_masking.hard_masking`, some rows at a time (`attention_by_rows`).

Shapes: B batch, H heads, Q queries, K keys, S selected keys of a query, min(k, K).
"""

from __future__ import annotations

import torch
from torch import Tensor

from attndrop_repro.functional.attention_by_rows import Change, Part, attention_by_rows
from attndrop_repro.functional.hard_masking import Mode, keep_best
from attndrop_repro.functional.masked_softmax import floor

# topk is quicker than one maximum after the other where it can throw most of a row away at once
_MANY_KEYS = 1024
_FEW_RANKS = 8


def hard_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keep_bhqs: Tensor,
    *,
    scale: float,
    allowed: Tensor | None = None,
    causal: bool = False,
    mode: Mode = "zero",
    selectable: Tensor | None = None,
    private: bool = False,
) -> Tensor:
    """softmax(L') v, with L' the logits scale q k^T after hard masking, (B, H, Q, D).

    Args:
        q: Queries (B, H, Q, D).
        k: Keys (B, H, K, D).
        v: Values (B, H, K, D).
        keep_bhqs: The draws, boolean (B, H, Q, S), from the largest selected logit down.
        scale: Factor on q k^T.
        allowed: Boolean, broadcastable to (B, H, Q, K); None: all.
        causal: Whether query i may see key j for j <= i only.
        mode: As for `hard_masking`.
        selectable: Boolean, broadcastable to (B, H, Q, K): keys that may be selected. None: all.
        private: As for `attention_by_rows`.
    """
    if selectable is not None:
        selectable = selectable.reshape((1,) * (4 - selectable.dim()) + selectable.shape)
    change = _Masking(keep_bhqs, mode, selectable)
    return attention_by_rows(
        q, k, v, change, scale=scale, allowed=allowed, causal=causal, private=private
    )


class _Masking(Change):
    """Masks entries, and notes where they are: counted through the logits of the part."""

    def __init__(self, keep: Tensor, mode: Mode, selectable: Tensor | None) -> None:
        self.keep, self.mode, self.selectable = keep, mode, selectable

    def logits(
        self,
        logits: Tensor,
        part: Part,
        visible: Tensor | None,
        noted: Tensor | None,
        generator: torch.Generator | None,
    ) -> Tensor:
        """Masks some of the largest."""
        low = floor(logits)
        if noted is None:
            noted = self._select(logits, part, low, all_seen=visible is None)
        logits.view(-1).index_fill_(0, noted, 0.0 if self.mode == "zero" else low)
        return noted

    def gradient(self, grad: Tensor, part: Part, noted: Tensor | None) -> None:
        """Nothing goes back through a masked logit."""
        assert noted is not None
        grad.view(-1).index_fill_(0, noted, 0.0)

    def _select(self, logits: Tensor, part: Part, low: float, *, all_seen: bool) -> Tensor:
        ranked, keep = logits, part.of(self.keep)
        if self.selectable is not None:
            ranked = ranked.masked_fill(~part.of(self.selectable), low)
        many = all_seen and self.selectable is None and keep.shape[-1] < ranked.shape[-1]
        if self.mode == "drop" and not many:
            keys, selectable = ((x > low).sum(-1, keepdim=True) for x in (logits, ranked))
            real = torch.arange(keep.shape[-1], device=keep.device) < selectable
            keep = keep_best(keep, real, keys)
        return _entries(ranked.flatten(0, -2), ~keep.flatten(0, -2), low)


def _entries(ranked_rk: Tensor, masked_rs: Tensor, low: float) -> Tensor:
    """Where the masked ones of the largest logits are, counted through (R, K).

    Only rows are looked at that have one, and no deeper than to the last of them: at p = 0.1 and
    k = 5 that is one maximum a row and a third of another, in place of a sort.

    Args:
        ranked_rk: Logits, those that are not to be selected at `low`.
        masked_rs: Whether the row's largest, second largest, ... logit is masked.
        low: Logits at this are none.
    """
    keys, ranks = ranked_rk.shape[-1], masked_rs.shape[-1]
    rank = torch.arange(1, ranks + 1, dtype=torch.int32, device=masked_rs.device)
    depth, rows = (masked_rs * rank).amax(-1).sort(descending=True, stable=True)
    reached = (depth[:, None] >= rank).sum(0).tolist()  # how many rows go as deep as each rank
    rows = rows[: reached[0]]
    logits, masked = ranked_rk.index_select(0, rows), masked_rs.index_select(0, rows)
    if ranks > _FEW_RANKS or keys > _MANY_KEYS:
        order = logits.topk(ranks, dim=-1).indices.t()
    else:
        order = rows.new_zeros(ranks, len(rows))
        for at_rank, count in zip(order, reached, strict=True):
            if count == 0:
                break
            key = _argmax(logits[:count])
            at_rank[:count] = key[:, 0]
            logits[:count].scatter_(-1, key, -torch.inf)  # below `low`: no key twice
    where = (order + rows * keys).t()[masked]
    return where[ranked_rk.view(-1)[where] > low]  # a row may have fewer keys than ranks


def _argmax(x_rk: Tensor) -> Tensor:
    """The place of each row's largest entry, (R, 1); of tied ones any, but always the same.

    `torch.argmax` compares entry by entry; the maximum and a product with the places run at the
    speed of memory.
    """
    keys = x_rk.shape[-1]
    if x_rk.device.type != "cpu":
        return x_rk.argmax(-1, keepdim=True)
    largest = torch.eq(x_rk, x_rk.amax(-1, keepdim=True), out=torch.empty_like(x_rk))
    place = torch.arange(keys, 2 * keys, dtype=x_rk.dtype, device=x_rk.device)
    found = torch.mv(largest, place)
    low, high = found.aminmax()
    if low < keys or high >= 2 * keys:  # none, so there is a NaN; or the places of two
        return x_rk.argmax(-1, keepdim=True)
    return (found - keys).long()[:, None]
