"""DropKey: keys dropped before the soft-max."""

from __future__ import annotations

import torch

from attndrop_repro.methods.call import AttentionCall
from attndrop_repro.methods.key_dropping import drop_keys
from attndrop_repro.methods.registry import register
from attndrop_repro.methods.scope import Scoped, TokenScope
from attndrop_repro.methods.settings import setting
from attndrop_repro.methods.strength import Probability


class DropKeySettings(TokenScope):
    """Settings of DropKey."""

    p: Probability = setting(
        0.1,
        "Probability that a query loses a key.",
        symbol="p",
        unit="probability",
        source="DropKey (CVPR 2023), section 3.2",
    )


@register
class DropKey(Scoped[DropKeySettings]):
    """Each key of each query and head is excluded with probability p, never a whole row."""

    name = "dropkey"
    reference = "Li et al., DropKey for Vision Transformer, CVPR 2023"
    notes = (
        "Weights are not rescaled: the soft-max does it. A row that would lose all its keys keeps "
        "one drawn at random, so p = 1 leaves one key a row."
    )
    Settings = DropKeySettings

    def rewrite(self, call: AttentionCall) -> AttentionCall:
        """Excludes keys."""
        p = self.here(call.site)
        if p is None:
            return call
        return drop_keys(
            call,
            torch.rand,
            p,
            self.settings.open_to_change(call),
            relaxed=self.strength.is_learned,
        )
