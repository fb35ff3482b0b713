"""Everything a training needs to go on bit by bit, into a checkpoint and back.

The schedule, the order of the data, augmentation and mixing are functions of the step, so the step
is their state. What is left: weights, their average, the optimiser, the loss scaler, the method's
learner, the stream "regulariser" of every process, and the sums that the history is made of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.randomness import regulariser_state, restore_regulariser
from attndrop_repro.training.packing import copied, pack, under, unpack
from attndrop_repro.training.trainer import Trainer

FORMAT = 1


@dataclass
class Progress:
    """Where a training stands.

    Attributes:
        step: Optimiser steps done.
        best: Best validation accuracy so far; -1 before the first.
        best_epoch: After which epoch.
        seconds: Time spent in training steps, over all sittings.
    """

    step: int = 0
    best: float = -1.0
    best_epoch: int = -1
    seconds: float = 0.0

    @property
    def best_or_none(self) -> float | None:
        """`best`, or None before the first validation."""
        return self.best if self.best_epoch >= 0 else None


def capture(trainer: Trainer, progress: Progress) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the JSON of a checkpoint; every process must call it.

    The tensors are copies on the CPU.
    """
    machine = trainer.machine
    tensors: dict[str, Tensor] = {
        f"model/{name}": value for name, value in trainer.model.network.state_dict().items()
    }
    if trainer.averaged is not None:
        tensors |= {f"ema/{name}": value for name, value in trainer.averaged.tensors.items()}
    optimizer = pack(trainer.optimizer.state_dict(), "optimizer/", tensors)
    method = pack(trainer.handle.state_dict(), "method/", tensors)
    # every process draws masks of its own
    for name, value in regulariser_state().items():
        for rank, drawn in enumerate(machine.gathered(value)):
            tensors[f"regulariser/{rank}/{name}"] = drawn
    tensors["sums/loss"] = machine.total(trainer.loss_sum) / machine.share.world
    state = {
        "format": FORMAT,
        "step": progress.step,
        "best": progress.best,
        "best_epoch": progress.best_epoch,
        "seconds": progress.seconds,
        "processes": machine.share.world,
        "optimizer": optimizer,
        "method": method,
        "scaler": None if machine.scaler is None else dict(machine.scaler.state_dict()),
    }
    return copied(tensors), state


def reinstate(trainer: Trainer, tensors: dict[str, Tensor], state: dict[str, Any]) -> Progress:
    """Puts a training where a checkpoint says it was.

    Raises:
        AttndropError: It is of a format that this version does not read.
    """
    if state.get("format") != FORMAT:
        raise AttndropError(
            f"the checkpoint has format {state.get('format')}, this version reads {FORMAT}: "
            "train anew with --resume never"
        )
    machine = trainer.machine
    trainer.model.network.load_state_dict(under("model", tensors))
    if trainer.averaged is not None:
        trainer.averaged.load(under("ema", tensors))
    trainer.optimizer.load_state_dict(unpack(state["optimizer"], tensors))
    trainer.handle.load_state_dict(unpack(state["method"], tensors))
    if machine.scaler is not None:
        machine.scaler.load_state_dict(state["scaler"])
    if state["processes"] == machine.share.world:
        restore_regulariser(under(f"regulariser/{machine.share.rank}", tensors))
    # the mean over processes must be the saved one again, whatever their number is now
    trainer.loss_sum.copy_(tensors["sums/loss"])
    return Progress(state["step"], state["best"], state["best_epoch"], state["seconds"])
