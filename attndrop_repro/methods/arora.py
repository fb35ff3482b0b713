"""Arora et al.'s explicit regulariser of dropout, layer by layer."""

from __future__ import annotations

import torch
from torch import Tensor

from attndrop_repro.functional.arora import arora_penalty
from attndrop_repro.functional.explicit_dropout import masked, wide
from attndrop_repro.methods.base import WITHOUT_GPT2
from attndrop_repro.methods.penalties import Penalty, PenaltySettings, Seen, Target, average
from attndrop_repro.methods.registry import register
from attndrop_repro.methods.taps import LinearTap


class AroraSettings(PenaltySettings):
    """Settings of `Arora`."""


@register
class Arora(Penalty[AroraSettings]):
    """Adds p/(1-p) sum_j ||W_:,j||^2 mean_r X_rj^2 for each target and layer to the loss.

    Each projection is taken as a linear layer of its own: q, k and v on the tokens, av on what each
    head averages (its own rows of the value projection), ff on either feed-forward layer.
    """

    name = "arora"
    reference = "Arora et al., ICML 2021; on Transformers as in Agrawal et al., eqs 103 and 104"
    notes = (
        "Of a linear layer this is 2/N times the inverted form of explicit-dropout (X2). The "
        "tables of Agrawal et al. have it on q, k, v and ff."
    )
    models = WITHOUT_GPT2
    Settings = AroraSettings

    per_image = False

    def attention_term(self, target: Target, seen: Seen, p: float) -> Tensor:
        """The penalty of q, k, v or av at one attention."""
        if target == "q":
            return arora_penalty(seen.x, seen.w_q, p, real=seen.real)
        if target in ("k", "v"):
            weight = seen.w_k if target == "k" else seen.w_v
            return arora_penalty(seen.memory, weight, p, real=seen.real_memory)
        heads = seen.call.q.shape[1]
        values = masked(wide(seen.memory), seen.real_memory)[:, None]
        attended = average(seen, values.expand(-1, heads, -1, -1))
        by_head = zip(attended.unbind(1), seen.w_v.chunk(heads), strict=True)
        return torch.stack([arora_penalty(a, w, p, real=seen.real) for a, w in by_head]).sum()

    def linear_term(self, tap: LinearTap, p: float) -> Tensor:
        """The penalty at one feed-forward layer; for the second, X is the hidden activation."""
        return arora_penalty(tap.x, tap.weight, p, real=tap.real)
