"""Attention dropout: ordinary dropout on the attention weights."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from attndrop_repro.functional.attention_dropout import attention_dropout
from attndrop_repro.functional.relaxed_bernoulli import relaxed_log_keep
from attndrop_repro.methods.call import AttentionCall
from attndrop_repro.methods.registry import register
from attndrop_repro.methods.scope import Scope, Scoped
from attndrop_repro.methods.settings import setting
from attndrop_repro.methods.strength import ProbabilityBelow1


class AttentionDropoutSettings(Scope):
    """Settings of attention dropout."""

    p: ProbabilityBelow1 = setting(
        0.1,
        "Probability that an attention weight is set to 0.",
        symbol="p",
        unit="probability",
        source="Vaswani et al. 2017, section 5.4",
        open_point="A16",
    )


@register
class AttentionDropout(Scoped[AttentionDropoutSettings]):
    """Attention weights dropped with probability p and scaled by 1 / (1 - p)."""

    name = "attention-dropout"
    reference = "Vaswani et al., Attention Is All You Need, 2017, as implemented since"
    notes = "Joins with attention dropout that the model has of its own: both keep or none does."
    Settings = AttentionDropoutSettings

    def rewrite(self, call: AttentionCall) -> AttentionCall:
        """Sets the call's dropout."""
        p = self.here(call.site)
        if p is None:
            return call
        if isinstance(p, float):
            joint = 1 - (1 - p) * (1 - call.dropout_p) if call.dropout_p else p
            return call.replace(dropout_p=joint)
        return call.then_on_weights(self._dropout(p))

    def _dropout(self, p: Tensor) -> Callable[[Tensor], Tensor]:
        """What fused attention has no argument for: a probability by head, or a learned one."""

        def dropout(weights: Tensor) -> Tensor:
            u = torch.rand(weights.shape, device=weights.device)
            keep = relaxed_log_keep(u, p) if self.strength.is_learned else u >= p
            return attention_dropout(weights, keep, p)

        return dropout
