"""DropAttention: attention elements, columns or windows dropped, rows normalised again."""

from __future__ import annotations

from typing import Literal

import torch

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
        batch, heads, queries, keys = call.shape
        rows = 1 if s.unit == "column" else queries
        u = torch.rand(batch, heads, rows, keys + s.w - 1, device=call.q.device)
        return drop_keys(
            call,
            in_windows(u, s.w),
            start_probability(p, s.w),
            s.open_to_change(call),
            relaxed=self.strength.is_learned,
        )
