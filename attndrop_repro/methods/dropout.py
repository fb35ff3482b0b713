"""Dropout of activations: the baseline that every paper compares with."""

from __future__ import annotations

from typing import Literal, TypeVar

from torch import Tensor

from attndrop_repro.functional.dropout import dropout
from attndrop_repro.methods.call import Site
from attndrop_repro.methods.registry import register
from attndrop_repro.methods.settings import Settings, setting
from attndrop_repro.methods.strength import OneStrength, Probability

DropoutPlace = Literal["proj-output", "mlp-hidden", "mlp-output"]


class DropoutSettings(Settings):
    """Settings of `Dropout`."""

    p: Probability = setting(
        0.1, "Probability of an activation to be dropped.",
        symbol="p", unit="probability", open_point="A16",
    )  # fmt: skip
    places: tuple[DropoutPlace, ...] = setting(
        ("proj-output", "mlp-hidden", "mlp-output"),
        "Where: what the attention's projection returns, what enters the second feed-forward "
        "layer, what that returns.",
        open_point="A16", min_length=1,
    )  # fmt: skip


D = TypeVar("D", bound=DropoutSettings)


class ActivationDropout(OneStrength[D]):
    """Dropout of activations at `places`, for `Dropout` and for methods that bring their own."""

    def __init__(self, settings: D) -> None:
        super().__init__(settings)
        self.needs = frozenset(settings.places)

    def hidden(self, site: Site, x: Tensor) -> Tensor:
        """Drops activations (B, N, C) at the chosen places."""
        if site.place not in self.settings.places:
            return x
        return dropout(x, self.strength.at(site))


@register
class Dropout(ActivationDropout[DropoutSettings]):
    """Dropout of activations in the feed-forward layers and the attention's projection."""

    name = "dropout"
    reference = "Srivastava et al., JMLR 2014; places as in Vaswani et al. 2017, section 5.4"
    notes = (
        "Not on attention weights: that is attention-dropout. The AttentionDrop paper gives "
        "neither rate nor places of its baseline (A16)."
    )
    Settings = DropoutSettings
