"""Stochastic depth: residual branches are skipped."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from attndrop_repro.functional.dropout import drop_examples
from attndrop_repro.methods.call import Site
from attndrop_repro.methods.registry import register
from attndrop_repro.methods.settings import Settings, setting
from attndrop_repro.methods.strength import OneStrength, Probability


class StochasticDepthSettings(Settings):
    """Settings of `StochasticDepth`."""

    p: Probability = setting(
        0.1, "Probability that an example skips a branch: that of the last one, where it grows.",
        symbol="1 - p_L", unit="probability", source="Huang et al. 2016, section 3",
    )  # fmt: skip
    growth: Literal["linear", "constant"] = setting(
        "linear",
        "Whether the probability of branch l of L is p l / L or p. Values by layer are taken as "
        "they are.",
        source="Huang et al. 2016, eq. 4",
    )  # fmt: skip


@register
class StochasticDepth(OneStrength[StochasticDepthSettings]):
    """Residual branches are skipped per example, the deeper the more often; inverted scaling.

    Attention and feed-forward are two branches, counted one by one.
    """

    name = "stochastic-depth"
    reference = "Huang et al., ECCV 2016; on Transformers as LayerDrop, Fan et al., ICLR 2020"
    notes = "Drawn per example, not per batch as in both papers; what is kept is scaled up."
    Settings = StochasticDepthSettings
    needs = frozenset({"residual"})

    def hidden(self, site: Site, x: Tensor) -> Tensor:
        """Sets the whole branch, (B, N, C), of some examples to 0."""
        if site.place != "residual":
            return x
        p = self.strength.at(site)
        if self.settings.growth == "linear" and not isinstance(self.strength.values, tuple):
            p = p * ((site.layer + 1) / site.layers)
        return drop_examples(x, p)
