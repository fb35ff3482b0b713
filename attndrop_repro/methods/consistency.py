"""AttentionDrop's consistency regularisation, on top of any stochastic method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from torch import Tensor

from attndrop_repro.functional.consistency import TaskLoss, consistency_objective
from attndrop_repro.functional.divergence import Direction, directed_divergence
from attndrop_repro.methods.base import Method, Task
from attndrop_repro.methods.call import Step
from attndrop_repro.methods.coefficient import Coefficient, at_work, now
from attndrop_repro.methods.registry import register
from attndrop_repro.methods.settings import Settings, setting

SECTION = "arXiv 2504.12088, section 3.3"


class ConsistencySettings(Settings):
    """Settings of `Consistency`."""

    lam: Coefficient = setting(
        1.0, "Weight of the divergence between the two passes; a number or a schedule.",
        symbol="lambda", source=SECTION, open_point="A5",
    )  # fmt: skip
    direction: Direction = setting(
        "equation",
        "KL(1 || 2) as in the equation; KL(2 || 1) as the appendix computes it; half their sum.",
        source=SECTION + " and appendix C", open_point="A3",
    )  # fmt: skip
    task_loss: TaskLoss = setting(
        "first", "The task loss of the first pass alone, or the mean of both.",
        source=SECTION, open_point="A4",
    )  # fmt: skip
    tokens: Literal["mean", "sum"] = setting(
        "mean", "On sequences: mean over real tokens, or sum over those of an example.",
        open_point="A13",
    )  # fmt: skip


@register
class Consistency(Method[ConsistencySettings]):
    """Two passes over the same batch, each with its own draws, and the KL between their outputs.

    Both passes receive gradients, also through the distribution on the left of the KL: neither is
    detached in the paper's equation or listings. The KL is averaged over the batch, as the task
    loss is.
    """

    name = "consistency"
    reference = "AttentionDrop, arXiv 2504.12088, section 3.3"
    notes = (
        "Needs a stochastic method beside it, as in attentiondrop-blur+consistency. The equation "
        "has KL(1 || 2), the paper's PyTorch listing computes KL(2 || 1) (E4), its TensorFlow "
        "listing nearly nothing (E5). Gradients reach both passes."
    )
    Settings = ConsistencySettings
    passes = 2
    stochastic = False

    def __init__(self, settings: ConsistencySettings) -> None:
        super().__init__(settings)
        self._lam = at_work(settings.lam, "lam")

    @property
    def idle(self) -> bool:
        """Whether nothing of the second pass counts: then there is none."""
        return self._lam.is_zero and self.settings.task_loss == "first"

    def begin_step(self, step: Step) -> None:
        """Lets a schedule of lambda follow the step."""
        self._lam.begin(step)

    def objective(self, outputs: Sequence[Tensor], y: Any, task: Task) -> Tensor:
        """Task loss + lambda KL."""
        first, second = outputs
        losses = (task.criterion(first, y), task.criterion(second, y))
        lam = now(self._lam)
        divergence = first.new_zeros(())
        if lam:
            divergence = directed_divergence(
                first, second, self.settings.direction,
                real=task.real, reduction=self.settings.tokens,
            )  # fmt: skip
        return consistency_objective(losses, divergence, lam, self.settings.task_loss)
