"""AttentionDrop by hard masking: the largest logits of each query masked at random."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from attndrop_repro.functional.attention_by_rows import pays, possible
from attndrop_repro.functional.hard_attention import hard_attention
from attndrop_repro.functional.hard_masking import Mode, hard_masking
from attndrop_repro.functional.relaxed_bernoulli import relaxed_log_keep
from attndrop_repro.methods.call import AttentionCall
from attndrop_repro.methods.registry import register
from attndrop_repro.methods.scope import Scoped, TokenScope
from attndrop_repro.methods.settings import setting
from attndrop_repro.methods.strength import Probability


class HardMaskingSettings(TokenScope):
    """Settings of hard attention masking."""

    p: Probability = setting(
        0.1,
        "Probability that a selected logit is masked.",
        symbol="p",
        unit="probability",
        source="AttentionDrop, section 3.1",
        open_point="A5",
    )
    k: int = setting(
        5,
        "How many of a query's largest logits are selected; cut to the keys it may attend.",
        symbol="k",
        unit="tokens",
        source="AttentionDrop, section 3.1",
        open_point="A5, A9",
        ge=1,
    )
    mode: Mode = setting(
        "zero",
        "A masked logit is multiplied by 0 (zero), or its key excluded (drop).",
        source="AttentionDrop, section 3.1",
        open_point="A1",
    )
    bias: Literal["after", "with_logits"] = setting(
        "after",
        "An additive bias comes after the masking, or counts as part of the logits.",
        open_point="A14",
    )


@register
class HardMasking(Scoped[HardMaskingSettings]):
    """M_ij L_ij for the k largest logits of a row, M_ij ~ Bernoulli(1 - p); the rest as it is."""

    name = "attentiondrop-hard"
    reference = "Baig et al., AttentionDrop, arXiv 2504.12088, section 3.1"
    notes = (
        "A masked logit becomes 0, which raises a negative one and depends on key biases (E6); "
        "mode drop excludes it. Of tied logits exactly k are selected, which ones is unspecified "
        "but repeatable."
    )
    Settings = HardMaskingSettings
    examples = ({"k": 1000, "mode": "drop"},)

    def attend(self, call: AttentionCall) -> Tensor:
        """Attention with masked logits."""
        s, p = self.settings, self.here(call.site)
        if p is None:
            return call.run()
        call = call.settled()
        plain = call.bias is None and not call.dropout_p and call.on_weights is None
        if plain and possible() and pays(call.k) and not self.strength.is_learned:
            return hard_attention(
                call.q, call.k, call.v, self._keep(call, p), scale=call.scale, mode=s.mode,
                allowed=call.allowed, causal=call.causal, selectable=s.open_to_change(call),
                private=call.private,
            )  # fmt: skip
        logits = call.logits()
        bias = None if call.bias is None else call.bias.to(logits.dtype)
        if bias is not None and s.bias == "with_logits":
            logits = logits + bias
        allowed = call.visible()
        logits = hard_masking(
            logits,
            self._keep(call, p),
            s.k,
            allowed=allowed,
            mode=s.mode,
            selectable=s.open_to_change(call),
        )
        if bias is not None and s.bias == "after":
            logits = (logits + bias).clamp(min=torch.finfo(logits.dtype).min)
        output = call.weigh(logits.softmax(-1))
        # a padding query has no key: its soft-max is uniform over forbidden ones, and counts as 0
        return output if allowed is None else output * allowed.any(-1, keepdim=True)

    def _keep(self, call: AttentionCall, p: float | Tensor) -> Tensor:
        """Draws for the selected entries only."""
        batch, heads, queries, keys = call.shape
        u = torch.rand(batch, heads, queries, min(self.settings.k, keys), device=call.q.device)
        return relaxed_log_keep(u, p) if self.strength.is_learned else u >= p
