"""AttendOut, reconstructed: a small generator per layer learns what attention should do without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import field_validator

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.methods.base import Learner
from attndrop_repro.methods.call import AttentionCall, Site, Step
from attndrop_repro.methods.coefficient import CoefficientRange
from attndrop_repro.methods.mask_generator import MaskGenerators
from attndrop_repro.methods.registry import register
from attndrop_repro.methods.scope import Scope, Scoped
from attndrop_repro.methods.settings import setting
from attndrop_repro.methods.strength import StrengthValue

OURS = "reconstruction: the abstract does not say"


class AttendOutSettings(Scope):
    """Settings of `AttendOut`."""

    p: Annotated[StrengthValue, CoefficientRange(0, 1, open_end=True)] = setting(
        0.1, "Target rate: the share of attention elements that every layer drops on average.",
        symbol="p", unit="probability", source=OURS,
    )  # fmt: skip
    rank: int = setting(8, "Rank of the scores, per head.", source=OURS, ge=1)
    lr: float = setting(0.03, "Adam's learning rate for the generators.", source=OURS, gt=0)
    entropy: float = setting(
        0.02, "Weight of the entropy bonus: nats of loss per nat.", source=OURS, ge=0
    )
    hold: float = setting(
        1.0, "Weight of the squared distance from the target rate, in units of p (1 - p).",
        source=OURS, ge=0,
    )  # fmt: skip
    every: int = setting(
        1, "Update the generators at every so many steps.", unit="steps", source=OURS, ge=1
    )

    @field_validator("p")
    @classmethod
    def _a_number(cls, value: StrengthValue) -> StrengthValue:
        if not isinstance(value, float):
            raise ValueError("should be a number: it is the rate that the generators learn to hold")
        return value


@register
class AttendOut(Scoped[AttendOutSettings]):
    """Keys that a generator marks are dropped before the softmax; rows are so re-normalised.

    The generator of a layer scores every element of every head from the tokens, detached, and masks
    are drawn from the scores. It learns on held-out examples, apart from the model, when
    ``handle.update`` is called: see `MaskGenerators`.
    """

    name = "attendout"
    reference = "Reconstruction after Wu et al., arXiv 2104.04692 (AttendOut), abstract only"
    notes = (
        "A reconstruction: the paper is known to us by its abstract. Generators score attention "
        "elements from hidden states and learn by REINFORCE what to drop: the reward is the loss "
        "of held-out examples without dropping minus that with it. Call handle.update with "
        "held-out examples after each step. The generators are not part of the model."
    )
    Settings = AttendOutSettings

    def __init__(self, settings: AttendOutSettings) -> None:
        super().__init__(settings)
        self.rate = settings.p if isinstance(settings.p, float) else 0.0
        self.generators = MaskGenerators(self)

    def prepare(self, attention: Sequence[Site]) -> None:
        """Makes the generators of all layers in scope whose width is known; others at first use."""
        super().prepare(attention)
        for site in attention:
            if site.width and site.heads and self.settings.covers(site):
                self.generators.add(site.layer, site.heads, site.width)

    def begin_step(self, step: Step) -> None:
        """Lets the generators follow the model to its device."""
        super().begin_step(step)
        self.generators.to(step.device)

    def rewrite(self, call: AttentionCall) -> AttentionCall:
        """Drops what the layer's generator marks.

        Raises:
            AttndropError: The adapter cannot see the tokens.
        """
        if not self.settings.covers(call.site):
            return call
        if call.x is None:
            raise AttndropError(
                f"attendout needs the tokens that enter {call.site.path!r}, which this kind of "
                "model does not show: choose other kinds or layers of attention"
            )
        return call.drop_keys(self.generators.keep(call))

    def learner(self) -> Learner:
        """The generators."""
        return self.generators
