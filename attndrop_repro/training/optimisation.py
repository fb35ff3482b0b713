"""The optimiser, and what is done to gradients and weights around its step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from attndrop_repro.config.recipe import Training


def optimizer(network: nn.Module, training: Training) -> torch.optim.Optimizer:
    """The recipe's optimiser over a network's parameters.

    Weight decay leaves biases, norms and what the network calls `no_weight_decay` (class token,
    position embedding) alone, as timm groups them.
    """
    from timm.optim import param_groups_weight_decay

    spared: set[str] = getattr(network, "no_weight_decay", set)()
    groups = param_groups_weight_decay(network, training.weight_decay, no_weight_decay_list=spared)
    if training.optimizer == "sgd":
        return torch.optim.SGD(groups, training.lr, momentum=training.momentum, fused=True)
    kind = torch.optim.AdamW if training.optimizer == "adamw" else torch.optim.Adam
    return kind(groups, training.lr, betas=training.betas, fused=True)


def gradient_norm(parameters: Iterable[Tensor]) -> Tensor:
    """The 2-norm of all gradients together, a scalar that stays on the device."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    if len({(g.device, g.dtype) for g in gradients}) == 1:
        # as torch's own, without its search for groups, which takes longer than the norms
        norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    else:
        norm = nn.utils.get_total_norm(gradients)
    return norm


def clip(parameters: Iterable[Tensor], norm: Tensor, limit: float) -> None:
    """Scales gradients down to a total norm of `limit`, given their norm."""
    nn.utils.clip_grads_with_norm_(parameters, limit, norm)


class Averaged:
    """An exponential moving average of a network's parameters (EMA); buffers are copied.

    Args:
        network: Whose.
        decay: Weight of the past at each update.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        from torch.optim.swa_utils import get_ema_multi_avg_fn

        self.network = network
        self._update: Any = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
        self.tensors = {
            name: value.detach().clone() for name, value in network.state_dict().items()
        }

    @torch.no_grad()
    def update(self) -> None:
        """Takes the network's weights in, after an optimiser step."""
        current = self.network.state_dict()
        floating = [name for name, value in current.items() if value.is_floating_point()]
        self._update([self.tensors[name] for name in floating], [current[n] for n in floating], 0)
        for name, value in current.items():
            if name not in floating:
                self.tensors[name].copy_(value)

    @torch.no_grad()
    def load(self, tensors: dict[str, Tensor]) -> None:
        """Goes on from a saved average."""
        for name, value in self.tensors.items():
            value.copy_(tensors[name])
