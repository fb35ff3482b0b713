"""R-Drop: two passes with dropout, pulled together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from torch import Tensor

from attndrop_repro.functional.rdrop import ConventionName, rdrop_objective
from attndrop_repro.methods.base import Task
from attndrop_repro.methods.call import Step
from attndrop_repro.methods.coefficient import Coefficient, at_work, now
from attndrop_repro.methods.dropout import ActivationDropout, DropoutSettings
from attndrop_repro.methods.registry import register
from attndrop_repro.methods.settings import setting


class RDropSettings(DropoutSettings):
    """Settings of `RDrop`: its dropout's, and its own."""

    alpha: Coefficient = setting(
        1.0, "Weight of the divergence; it means nothing without the convention.",
        symbol="alpha", source="Liang et al. 2021, section 2", open_point="A16",
    )  # fmt: skip
    convention: ConventionName = setting(
        "paper",
        "How terms are weighed. paper: NLL1 + NLL2 + alpha/2 (KL12 + KL21), KL averaged over the "
        "batch. readme: half the NLLs, KL summed over the batch. bert: the KL of the paper, "
        "summed. vit: twice that.",
        source="Liang et al. 2021 and github.com/dropreg/R-Drop",
    )  # fmt: skip
    tokens: Literal["mean", "sum"] = setting(
        "mean", "On sequences: mean over real tokens, or sum over those of an example.",
        open_point="A13",
    )  # fmt: skip


@register
class RDrop(ActivationDropout[RDropSettings]):
    """Dropout, two passes, and the symmetric KL between them; gradients reach both."""

    name = "rdrop"
    reference = "Liang et al., NeurIPS 2021 (R-Drop)"
    notes = (
        "Brings its own dropout. With another perturbation in its place, as in dropkey+rdrop, set "
        "its p to 0. Alphas do not carry over between the published conventions, which differ by "
        "factors of 2 and by summing the KL over the batch."
    )
    Settings = RDropSettings
    passes = 2

    def __init__(self, settings: RDropSettings) -> None:
        super().__init__(settings)
        self._alpha = at_work(settings.alpha, "alpha")
        if super().idle:
            self.needs = frozenset()

    @property
    def idle(self) -> bool:
        """Whether it neither drops nor compares."""
        return super().idle and self._alpha.is_zero

    def begin_step(self, step: Step) -> None:
        """Lets schedules follow the step."""
        super().begin_step(step)
        self._alpha.begin(step)

    def objective(self, outputs: Sequence[Tensor], y: Any, task: Task) -> Tensor:
        """NLL1 + NLL2 + alpha/2 (KL12 + KL21), in the chosen convention."""
        first, second = outputs
        return rdrop_objective(
            (task.criterion(first, y), task.criterion(second, y)), first, second,
            now(self._alpha), convention=self.settings.convention, real=task.real,
            reduction=self.settings.tokens,
        )  # fmt: skip
