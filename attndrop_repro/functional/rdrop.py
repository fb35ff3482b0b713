"""R-Drop (Liang et al., NeurIPS 2021): two passes with dropout, and their divergence.

The paper and the code published with it weigh the terms differently and sum the divergence over
other things, so that an alpha means nothing without its convention (dropreg/R-Drop, issues 6, 24
and 29).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from attndrop_repro.functional.divergence import Reduction, kl_divergence

ConventionName = Literal["paper", "readme", "bert", "vit"]


@dataclass(frozen=True)
class Convention:
    """How the four terms are put together.

    Attributes:
        task: Factor on NLL1 + NLL2, each a mean over the batch.
        divergence: Factor, beside alpha, on KL(1||2) + KL(2||1).
        total: Whether the divergences are summed over the whole batch instead of averaged.
        source: Where it was published.
    """

    task: float
    divergence: float
    total: bool
    source: str


CONVENTIONS: dict[ConventionName, Convention] = {
    "paper": Convention(1.0, 0.5, False, "Liang et al. 2021, section 2; published RoBERTa code"),
    "readme": Convention(0.5, 0.5, True, "README of the published code"),
    "bert": Convention(1.0, 0.5, True, "published BERT code (issue 24)"),
    "vit": Convention(1.0, 1.0, True, "published ViT code (issue 29)"),
}


def rdrop_objective(
    task_losses: tuple[Tensor, Tensor],
    first: Tensor,
    second: Tensor,
    alpha: float | Tensor,
    *,
    convention: ConventionName = "paper",
    real: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """NLL1 + NLL2 + alpha/2 (KL(1||2) + KL(2||1)), or a published variant of it.

    Args:
        task_losses: The task loss of either pass, scalar means.
        first: Logits of the first pass, (B, ..., C); gradients go to both passes.
        second: Logits of the second pass.
        alpha: Weight of the divergence.
        convention: A key of `CONVENTIONS`.
        real: Boolean (B, ...): False at padding; None: all positions count.
        reduction: Of the divergence, where the convention averages it: "mean" over real positions,
            or "sum" over those of an example (A13).

    Returns:
        A scalar.

    Raises:
        ValueError: There is no such convention.
    """
    if convention not in CONVENTIONS:
        raise ValueError(f"convention is one of {', '.join(CONVENTIONS)}, not {convention!r}")
    how = CONVENTIONS[convention]
    over: Reduction = "total" if how.total else reduction
    divergence = kl_divergence(first, second, real=real, reduction=over) + kl_divergence(
        second, first, real=real, reduction=over
    )
    return how.task * (task_losses[0] + task_losses[1]) + alpha * how.divergence * divergence
