"""The consistency objective of AttentionDrop (arXiv 2504.12088, section 3.3)."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

TaskLoss = Literal["first", "both"]


def consistency_objective(
    task_losses: tuple[Tensor, Tensor], divergence: Tensor, lam: float | Tensor, task_loss: TaskLoss
) -> Tensor:
    """Task loss + lambda * divergence between two perturbed passes.

    Args:
        task_losses: The task loss of either pass, scalar means.
        divergence: `divergence.directed_divergence` of the passes.
        lam: Weight lambda of the divergence.
        task_loss: "first": the task loss of pass 1 alone (the paper's equation and listings);
            "both": the mean of the two, which keeps its scale (A4).

    Returns:
        A scalar.

    Raises:
        ValueError: `task_loss` is neither.
    """
    if task_loss not in ("first", "both"):
        raise ValueError(f"task_loss is first or both, not {task_loss!r}")
    task = task_losses[0] if task_loss == "first" else (task_losses[0] + task_losses[1]) / 2
    return task + lam * divergence
