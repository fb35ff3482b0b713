"""DropAttention: attention elements, columns or windows dropped, rows normalised again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from attndrop_repro.functional.key_dropping import in_windows, start_probability
from attndrop_repro.methods.call import AttentionCall
from attndrop_repro.methods.key_dropping import drop_keys
from attndrop_repro.methods.registry import register
from attndrop_repro.methods.scope import Scoped, TokenScope
from attndrop_repro.methods.settings import setting
from attndrop_repro.methods.strength import Probability


class DropAttentionSettings(TokenScope):
    """Settings of DropAttention."""

    p: Probability = setting(
        0.1,
        "Probability that an attention element is dropped.",
        symbol="p",
        unit="probability",
        source="DropAttention (arXiv 1907.11065), section 3",
    )
    unit: Literal["element", "column"] = setting(
        "element",
        "Whether each query drops keys of its own, or all queries of a head the same ones.",
        source="DropAttention, section 3.1",
    )
    w: int = setting(
        1,
        "Neighbouring keys that are dropped together.",
        symbol="w",
        unit="tokens",
        source="DropAttention, section 3.2",
        ge=1,
    )


@register
class DropAttention(Scoped[DropAttentionSettings]):
    """Elements, columns or windows of w elements of A are dropped, and rows normalised again."""

    name = "dropattention"
    reference = "Lin et al., DropAttention, arXiv 1907.11065, 2019"
    notes = (
        "Dropping after the soft-max and normalising again equals excluding the keys before it, "
        "and is computed so: with w = 1 the element form is DropKey. A window starts with "
        "probability 1 - (1 - p)^(1/w) at each key and at the w - 1 places before the first, so "
        "that every element is dropped with probability p for every w (the paper's p/w is its "
        "first order). A row keeps one key at least."
    )
    Settings = DropAttentionSettings
    examples = ({"w": 3}, {"w": 2, "unit": "column"})

    def rewrite(self, call: AttentionCall) -> AttentionCall:
        """Excludes elements."""
        s, p = self.settings, self.here(call.site)
        if p is None:
            return call
        changed = drop_keys(
            call,
            self._draw,
            start_probability(p, s.w),
            s.open_to_change(call),
            relaxed=self.strength.is_learned,
        )
        # a column's draw is for all rows at once
        return changed.settled() if s.unit == "column" else changed

    def _draw(self, shape: Sequence[int], **where: Any) -> Tensor:
        """Draws for rows of a shape (B, H, Q, K)."""
        batch, heads, queries, keys = shape
        rows = 1 if self.settings.unit == "column" else queries
        return in_windows(
            torch.rand(batch, heads, rows, keys + self.settings.w - 1, **where), self.settings.w
        )
