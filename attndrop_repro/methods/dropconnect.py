"""DropConnect on the linear layers of attention and feed-forward."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.functional.dropconnect import drop_connections
from attndrop_repro.methods.base import WITHOUT_GPT2
from attndrop_repro.methods.call import Site
from attndrop_repro.methods.registry import register
from attndrop_repro.methods.settings import Settings, setting
from attndrop_repro.methods.strength import OneStrength, Probability

LayerPlace = Literal["qkv", "q", "k", "v", "proj", "fc1", "fc2"]
ALL: tuple[LayerPlace, ...] = ("qkv", "q", "k", "v", "proj", "fc1", "fc2")


class DropConnectSettings(Settings):
    """Settings of `DropConnect`."""

    p: Probability = setting(
        0.1, "Probability of a weight to be dropped.",
        symbol="p", unit="probability", source="Wan et al. 2013, section 3", open_point="A16",
    )  # fmt: skip
    places: tuple[LayerPlace, ...] = setting(
        ALL,
        "Which linear layers. q, k and v mean those projections in layers of their own or as a "
        "third of a fused one; qkv means all three.",
        open_point="A16", min_length=1,
    )  # fmt: skip


@register
class DropConnect(OneStrength[DropConnectSettings]):
    """Bernoulli masks on weights, a new draw for each layer and forward, inverted scaling.

    One draw serves the whole batch, so the cost is that of the weights. Biases stay.
    """

    name = "dropconnect"
    reference = "Wan et al., ICML 2013"
    notes = (
        "One mask a forward for the whole batch, not one an example, and no sampling at "
        "inference: the AttentionDrop paper gives neither rate nor places (A16)."
    )
    models = WITHOUT_GPT2
    Settings = DropConnectSettings

    def __init__(self, settings: DropConnectSettings) -> None:
        super().__init__(settings)
        chosen = set(settings.places)
        self._drops = {part: bool(chosen & {part, "qkv"}) for part in ("q", "k", "v")}
        projections = {f"{part}|qkv" for part, drops in self._drops.items() if drops}
        self.needs = frozenset(chosen & {"proj", "fc1", "fc2"} | projections)

    def weight(self, site: Site, weight: Tensor) -> Tensor:
        """Drops weights (out, in) of the chosen layers."""
        blocks: tuple[bool, ...] = (site.place in self.settings.places,)
        if site.place in self._drops:
            blocks = (self._drops[site.place],)
        elif site.place == "qkv":
            blocks = self._fused(site, weight)
        return drop_connections(weight, self.strength.at(site), blocks) if any(blocks) else weight

    def _fused(self, site: Site, weight: Tensor) -> tuple[bool, ...]:
        """Which rows of a fused projection drop."""
        drops = tuple(self._drops.values())
        if all(drops) or not any(drops):
            return drops[:1]
        rows, width = weight.shape
        if rows == 3 * width:
            return drops
        if rows == 2 * width:  # keys and values only
            return drops[1:]
        raise AttndropError(
            f"{site.path!r} computes queries, keys and values in one layer of {rows} rows, and "
            "which are which cannot be told: put qkv in dropconnect's places"
        )
