"""A learned strength: parameters and optimiser of its own, never in the model's state dict."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from attndrop_repro.methods.base import Task


class LearnedStrength:
    """A strength as a function of a free parameter: sigmoid into a finite range, exp otherwise.

    The parameter is part of the training graph, so the model's own backward pass leaves its
    gradient; `update` only steps. Adam's step does not depend on a constant factor of the gradient,
    so a loss scaler changes nothing; a gradient that is not finite is skipped.

    Args:
        name: The setting's name.
        init: Where it starts: a number, or one a layer, or one a layer and head.
        lr: Adam's learning rate.
        low: Lower end of the range, never reached.
        high: Upper end of the range, never reached; may be infinite.
    """

    held_out = False  # it follows the gradient of the training loss

    def __init__(
        self, name: str, init: float | Sequence[Any], lr: float, low: float, high: float
    ) -> None:
        self.name, self.low, self.high = name, low, high
        value = torch.tensor(init, dtype=torch.float32) - low
        free = value.log() if math.isinf(high) else torch.logit(value / (high - low))
        self._module = nn.ParameterDict({name: nn.Parameter(free)})
        self._optimizer = torch.optim.Adam([self._module[name]], lr=lr)

    def value(self) -> Tensor:
        """The strength, differentiable: (), (layers,) or (layers, heads)."""
        free: Tensor = self._module[self.name]
        if math.isinf(self.high):
            return self.low + free.exp()
        return self.low + (self.high - self.low) * free.sigmoid()

    def at(self, layer: int) -> Tensor:
        """The strength of a layer, differentiable: () or (heads, 1, 1)."""
        value = self.value()
        if value.dim() == 0:
            return value
        return value[layer] if value.dim() == 1 else value[layer].view(-1, 1, 1)

    def modules(self) -> nn.Module:
        """The free parameters, by setting."""
        return self._module

    def update(
        self, evaluate: Callable[..., Tensor], x: Any, y: Any, task: Task
    ) -> dict[str, float]:
        """One step of Adam along the gradient that the model's backward pass left."""
        free = self._module[self.name]
        if free.grad is not None:
            if torch.distributed.is_available() and torch.distributed.is_initialized():
                torch.distributed.all_reduce(free.grad)
                free.grad /= torch.distributed.get_world_size()
            if bool(free.grad.isfinite().all()):
                self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=True)
        return {self.name: float(self.value().detach().mean())}

    def state_dict(self) -> dict[str, Any]:
        """The parameters and Adam's moments, by flat name."""
        free = self._module[self.name]
        state = {f"{self.name}.free": free.detach().clone()}
        for key, value in self._optimizer.state.get(free, {}).items():
            state[f"{self.name}.adam.{key}"] = torch.as_tensor(value).clone()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what `state_dict` gave."""
        free = self._module[self.name]
        with torch.no_grad():
            free.copy_(state[f"{self.name}.free"])
        prefix = f"{self.name}.adam."
        moments = {
            key.removeprefix(prefix): value.clone()
            for key, value in state.items()
            if key.startswith(prefix)
        }
        self._optimizer.state.clear()
        if moments:
            self._optimizer.state[free].update(moments)
