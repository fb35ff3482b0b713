"""One training step, and the state that steps change: weights, optimiser, average, learner."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor

from attndrop_repro.adapters import Handle
from attndrop_repro.config.recipe import Training
from attndrop_repro.data import mixing
from attndrop_repro.data.batches import Batch, HeldOut
from attndrop_repro.models import PixelModel
from attndrop_repro.training.guards import FiniteGuard
from attndrop_repro.training.machine import Machine
from attndrop_repro.training.optimisation import Averaged, clip, gradient_norm, optimizer
from attndrop_repro.training.schedule import Schedule


class Trainer:
    """A model in training.

    Attributes:
        total: Optimiser steps of the whole training.
        loss_sum: Sum of the losses of this epoch's steps so far, on the device.
        averaged: The moving average of the weights, if the recipe has one.

    Args:
        model: On the machine's device and in its dtype.
        handle: The method in it.
        training: The recipe's section.
        machine: Where it runs.
        steps_per_epoch: Optimiser steps an epoch.
        held_out: Gives a learning method examples that the model is not trained on; without it
            such a method does not learn.
    """

    def __init__(
        self,
        model: PixelModel,
        handle: Handle,
        training: Training,
        machine: Machine,
        steps_per_epoch: int,
        held_out: HeldOut | None = None,
    ) -> None:
        self.held_out = held_out
        self.model, self.handle, self.training, self.machine = model, handle, training, machine
        self.total = training.epochs * steps_per_epoch
        self.optimizer = optimizer(model.network, training)
        self.schedule = Schedule(self.optimizer, training, steps_per_epoch)
        self.averaged = None
        if training.ema is not None:
            self.averaged = Averaged(model.network, training.ema)
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.forward = machine.parallel(model)
        self.guard = FiniteGuard(machine.device)
        self.criterion = criterion(training)
        # mps has no float64
        kind = torch.float32 if machine.device.type == "mps" else torch.float64
        self.loss_sum = torch.zeros((), dtype=kind, device=machine.device)

    def step(self, batch: Batch) -> tuple[Tensor, float]:
        """One optimiser step.

        Args:
            batch: This process's part of the batch.

        Returns:
            The loss, a detached scalar that nobody has waited for, and the learning rate.
        """
        machine = self.machine
        if not self.model.training:
            self.model.train()
        self.handle.at(batch.step, self.total)
        rate = self.schedule.set(batch.step)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.gradients(batch)
        if machine.scaler is not None:
            machine.scaler.unscale_(self.optimizer)
        norm = gradient_norm(self.parameters)
        # fp16 meets infinite gradients now and then; its scaler leaves such a step out
        self.guard.note(batch.step, loss, norm if machine.scaler is None else None)
        if self.training.clip_grad is not None:
            clip(self.parameters, norm, self.training.clip_grad)
        if machine.scaler is None:
            self.optimizer.step()
        else:
            machine.scaler.step(self.optimizer)
            machine.scaler.update()
        if self.averaged is not None:
            self.averaged.update()
        self._teach(batch)
        self.loss_sum += loss
        return loss, rate

    def _teach(self, batch: Batch) -> None:
        """Lets a learning method learn, the same on all processes."""
        learner = self.handle.method.learner()
        if learner is None:
            return
        x, y = batch.x, batch.y
        if self.handle.held_out:
            if self.held_out is None:
                return
            x, y = self.held_out(batch.step, device=x.device, dtype=x.dtype)
        with self.machine.autocast():
            self.handle.update(x, y, self.criterion)
        self.machine.same(learner.modules().parameters())

    def gradients(self, batch: Batch, parts: int | None = None) -> Tensor:
        """Forward and backward of a batch in its micro-batches; gradients are those of their mean.

        Args:
            batch: This process's part of the batch.
            parts: Micro-batches, if not the recipe's number.

        Returns:
            The mean loss, detached.
        """
        parts = parts or self.training.accumulate
        parts = min(parts, len(batch.x))  # what is left empty would be the last, which is synced
        xs, ys = batch.x.tensor_split(parts), batch.y.tensor_split(parts)
        losses = []
        for index, (x, y) in enumerate(zip(xs, ys, strict=True)):
            share = len(x) / len(batch.x)
            last = index == parts - 1
            with nullcontext() if last else self.machine.without_sync():
                with self.machine.autocast():
                    loss = self.handle.loss(x, y, self.criterion, forward=self.forward)
                loss = loss if share == 1 else loss * share
                self.machine.backward(loss)
            losses.append(loss.detach())
        return losses[0] if len(losses) == 1 else torch.stack(losses).sum()

    def weights(self) -> dict[str, Tensor]:
        """The weights that count, by the network's own names: the average where there is one."""
        if self.averaged is not None:
            return self.averaged.tensors
        return self.model.network.state_dict()


def criterion(training: Training) -> Callable[[Tensor, Tensor], Tensor]:
    """Cross-entropy with the recipe's smoothing; mixed labels bring theirs along."""
    smoothing = 0.0 if mixing.wanted(training.augmentation) else training.label_smoothing

    def loss(outputs: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(outputs, y, label_smoothing=smoothing)

    return loss
