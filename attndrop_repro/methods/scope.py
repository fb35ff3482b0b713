"""Which attentions, layers and tokens a method acts on (A7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
from pydantic import field_validator
from torch import Tensor

from attndrop_repro.config.errors import AttndropError, UsageError
from attndrop_repro.methods.call import AttentionCall, AttentionKind, Site
from attndrop_repro.methods.settings import Settings, setting
from attndrop_repro.methods.strength import OneStrength


class Scope(Settings):
    """Which attentions a method acts on."""

    kinds: tuple[AttentionKind, ...] = setting(
        ("encoder-self",),
        "Which attention: encoder-self, decoder-self, cross.",
        source="AttentionDrop, section 3: encoder self-attention",
        open_point="A7",
        min_length=1,
    )
    layers: tuple[int, ...] | None = setting(
        None, "Which layers, counted from 0; none: all.", open_point="A7"
    )

    @field_validator("kinds", "layers", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: object) -> object:
        return (value,) if isinstance(value, str | int) and not isinstance(value, bool) else value

    def covers(self, site: Site) -> bool:
        """Whether the method acts at a place."""
        return site.kind in self.kinds and (self.layers is None or site.layer in self.layers)


class TokenScope(Scope):
    """Which attentions and which tokens of them a method acts on."""

    skip_prefix_keys: bool = setting(
        False, "Leave class and register tokens alone as keys.", open_point="A7"
    )
    skip_prefix_queries: bool = setting(
        False, "Leave the rows of class and register tokens alone.", open_point="A7"
    )

    def open_to_change(self, call: AttentionCall) -> Tensor | None:
        """Which elements of an attention may be changed: boolean, (Q | 1, K); None: all."""
        prefix = call.site.prefix_tokens
        if not prefix or not (self.skip_prefix_keys or self.skip_prefix_queries):
            return None
        queries, keys = call.shape[-2:]
        key = torch.arange(keys, device=call.k.device)[None, :]
        query = torch.arange(queries, device=call.k.device)[:, None]
        free = (key >= prefix) if self.skip_prefix_keys else torch.ones_like(key, dtype=torch.bool)
        return free & (query >= prefix) if self.skip_prefix_queries else free


SC = TypeVar("SC", bound=Scope)


class Scoped(OneStrength[SC]):
    """A method with one strength and a scope."""

    needs = frozenset({"attention"})

    def here(self, site: Site) -> float | Tensor | None:
        """The strength at a place, now; None where the method leaves it alone."""
        if not self.settings.covers(site):
            return None
        strength = self.strength.at(site)
        return None if isinstance(strength, float) and strength == 0 else strength

    def prepare(self, attention: Sequence[Site]) -> None:
        """Refuses a scope that finds nothing in the model."""
        kinds, layers = self.settings.kinds, self.settings.layers
        if layers is not None and not set(layers) <= set(range(len(attention))):
            raise UsageError(
                f"{self.name}.layers = {list(layers)}: the model's attention layers are 0 to "
                f"{len(attention) - 1}"
            )
        if attention and not any(self.settings.covers(site) for site in attention):
            there = sorted({site.kind for site in attention})
            where = "" if layers is None else f" in layers {list(layers)}"
            raise AttndropError(
                f"{self.name} acts on {', '.join(kinds)} attention{where}, and the model has none "
                f"there: set {self.name}.kinds to what it has ({', '.join(there)})"
            )
