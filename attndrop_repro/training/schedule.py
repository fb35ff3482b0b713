"""The learning rate, by optimiser step; timm's schedulers, which are functions of the step alone.

So nothing of the schedule has to be saved: a resumed run asks for the rate of its next step.
"""

from __future__ import annotations

from typing import Any

import torch

from attndrop_repro.config.recipe import Training


class Schedule:
    """Linear warm-up inside the training's length, then cosine or constant.

    The first step has `warmup_lr`, the first after the warm-up the base rate, and the cosine would
    reach `min_lr` one step after the last.

    Args:
        optimizer: Whose rate is set.
        training: The recipe's section.
        steps_per_epoch: Optimiser steps an epoch.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, training: Training, steps_per_epoch: int
    ) -> None:
        from timm.scheduler import CosineLRScheduler, MultiStepLRScheduler

        total = training.epochs * steps_per_epoch
        warmup = min(round(training.warmup_epochs * steps_per_epoch), total - 1)
        self.optimizer = optimizer
        common = {
            "warmup_t": warmup, "warmup_lr_init": training.warmup_lr, "warmup_prefix": True,
            "t_in_epochs": False,
        }  # fmt: skip
        self._scheduler: Any
        if training.schedule == "cosine" and total - warmup > 1:
            self._scheduler = CosineLRScheduler(
                optimizer, t_initial=total - warmup, lr_min=training.min_lr, **common
            )
        else:
            self._scheduler = MultiStepLRScheduler(optimizer, decay_t=[], **common)

    def set(self, step: int) -> float:
        """Sets the rate of an optimiser step, from 0, and returns it."""
        self._scheduler.step_update(step)
        return float(self.optimizer.param_groups[0]["lr"])
