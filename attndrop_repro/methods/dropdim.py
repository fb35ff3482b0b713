"""DropDim: embedding dimensions of the attention input dropped."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import model_validator
from torch import Tensor

from attndrop_repro.functional.feature_dropping import drop_and_rescale, span
from attndrop_repro.functional.key_dropping import keep_some
from attndrop_repro.functional.relaxed_bernoulli import relaxed_log_keep
from attndrop_repro.methods.call import Site
from attndrop_repro.methods.registry import register
from attndrop_repro.methods.scope import Scope, Scoped
from attndrop_repro.methods.settings import setting
from attndrop_repro.methods.strength import Learnable, Probability


class DropDimSettings(Scope):
    """Settings of DropDim."""

    p: Probability = setting(
        0.1,
        "Share of embedding dimensions that a sample loses.",
        symbol="p",
        unit="probability",
        source="DropDim (arXiv 2304.10321)",
    )
    form: Literal["random", "span"] = setting(
        "random",
        "Dimensions dropped one by one, or one run of neighbours.",
        source="DropDim, DropDim-random and DropDim-span",
    )

    @model_validator(mode="after")
    def _span_has_no_gradient(self) -> DropDimSettings:
        if self.form == "span" and isinstance(self.p, Learnable):
            raise ValueError("a learnable p needs form = random: the length of a span is whole")
        return self


@register
class DropDim(Scoped[DropDimSettings]):
    """Each sample loses some embedding dimensions, the same ones for all its tokens."""

    name = "dropdim"
    reference = "Zhang et al., DropDim, IEEE Signal Processing Letters 2022 (arXiv 2304.10321)"
    notes = (
        "Scaled by dimensions / dimensions kept, the inverted scaling of what was drawn: finite "
        "for p = 1, which leaves one dimension. A span of round(p C) dimensions starts anywhere."
    )
    Settings = DropDimSettings
    needs = frozenset({"attention-input"})

    def hidden(self, site: Site, x: Tensor) -> Tensor:
        """Drops dimensions of the tokens (B, N, C) that enter an attention."""
        p = self.here(site) if site.place == "attention-input" else None
        if p is None:
            return x
        keep = self._keep(x.shape[0], x.shape[-1], p, x.device)
        return drop_and_rescale(
            x, keep.view(keep.shape[0], *[1] * (x.dim() - 2), keep.shape[-1]), dim=-1
        )

    def _keep(self, batch: int, width: int, p: float | Tensor, device: torch.device) -> Tensor:
        if self.settings.form == "span" and isinstance(p, float):
            length = min(round(p * width), width - 1)
            places = width - length + 1
            start = (torch.rand(batch, 1, device=device) * places).long()
            return span(start, length, width)
        u = torch.rand(batch, width, device=device)
        return relaxed_log_keep(u, p) if self.strength.is_learned else keep_some(u, p)
