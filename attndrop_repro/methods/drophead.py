"""DropHead: whole attention heads dropped."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from attndrop_repro.functional.feature_dropping import drop_and_rescale
from attndrop_repro.functional.key_dropping import keep_some
from attndrop_repro.functional.relaxed_bernoulli import relaxed_log_keep
from attndrop_repro.methods.call import AttentionCall
from attndrop_repro.methods.registry import register
from attndrop_repro.methods.scope import Scope, Scoped
from attndrop_repro.methods.settings import setting
from attndrop_repro.methods.strength import Probability


class DropHeadSettings(Scope):
    """Settings of DropHead."""

    p: Probability = setting(
        0.1,
        "Probability that a head is dropped; the paper's schedule is {schedule: v-shape, ...}.",
        symbol="p",
        unit="probability",
        source="Scheduled DropHead, section 3",
    )
    per: Literal["sample", "batch"] = setting(
        "sample", "Whether each sample loses heads of its own, or all samples the same ones."
    )


@register
class DropHead(Scoped[DropHeadSettings]):
    """Each head is dropped with probability p; the others are scaled by heads / heads kept."""

    name = "drophead"
    reference = "Zhou et al., Scheduled DropHead, Findings of EMNLP 2020 (arXiv 2004.13342)"
    notes = "Never all heads: then the one with the largest draw stays, so p = 1 leaves one."
    Settings = DropHeadSettings

    def rewrite(self, call: AttentionCall) -> AttentionCall:
        """Drops and rescales the values of whole heads, which is their output."""
        p = self.here(call.site)
        if p is None:
            return call
        batch, heads = call.shape[:2]
        samples = batch if self.settings.per == "sample" else 1
        u = torch.rand(samples, heads, device=call.q.device)
        p = p.flatten() if isinstance(p, Tensor) else p
        keep = relaxed_log_keep(u, p) if self.strength.is_learned else keep_some(u, p)
        return call.replace(v=drop_and_rescale(call.v, keep[:, :, None, None], dim=1))
