"""Accuracy and loss on the validation split, every example once, however many processes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch.func import functional_call

from attndrop_repro.data import ImageSplit
from attndrop_repro.data.batches import evaluation_batches
from attndrop_repro.training.trainer import Trainer


@dataclass(frozen=True)
class Validation:
    """What the validation split says.

    Attributes:
        accuracy: Share of right predictions.
        loss: Mean cross-entropy, without smoothing.
    """

    accuracy: float
    loss: float


@torch.no_grad()
def validate(trainer: Trainer, split: ImageSplit, batch_size: int, workers: int) -> Validation:
    """Evaluates the weights that count, in eval mode; the random streams are not touched."""
    machine, model = trainer.machine, trainer.model
    kind = trainer.loss_sum.dtype
    sums = torch.zeros(2, dtype=kind, device=machine.device)
    weights = {f"network.{name}": value for name, value in trainer.weights().items()}
    model.eval()
    batches = evaluation_batches(
        split, batch_size, device=machine.device, dtype=machine.dtype, workers=workers,
        share=machine.share,
    )  # fmt: skip
    for x, y, _ in batches:
        with machine.autocast():
            logits = functional_call(model, weights, (x,)) if trainer.averaged else model(x)
        losses = F.cross_entropy(logits.float() if machine.scaler else logits, y, reduction="sum")
        sums += torch.stack([(logits.argmax(1) == y).sum().to(kind), losses.to(kind)])
    correct, loss = (machine.total(sums) / len(split)).tolist()
    model.train()
    return Validation(correct, loss)
