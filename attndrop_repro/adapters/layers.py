"""The layers around attention: linear ones, and others whose input or output is a place."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from attndrop_repro.adapters.found import Bound
from attndrop_repro.adapters.swap import BOUND
from attndrop_repro.methods.taps import Mapped


def at_work(module: nn.Module) -> bool:
    """Whether a swapped module must let the method in now."""
    bound: Bound | None = module.__dict__.get(BOUND)
    if bound is None or not module.training or bound.runtime.idle:
        return False
    return bound.runtime.training or not bound.runtime.inside


def running(module: nn.Module) -> bool:
    """Whether the training forward of a swapped attention is running."""
    bound: Bound | None = module.__dict__.get(BOUND)
    return bound is not None and bound.running


def linear_class(base: type[nn.Module]) -> type[nn.Module]:
    """A linear layer whose weight, input and output the method may change in training."""
    plain = issubclass(base, nn.Linear) and base.forward is nn.Linear.forward

    class Linear(base):  # type: ignore[misc, valid-type]
        def forward(self, x: Tensor) -> Tensor:
            if not at_work(self):
                return super().forward(x)  # type: ignore[no-any-return]
            bound: Bound = self.__dict__[BOUND]
            runtime = bound.runtime
            runtime.enter(bound.site, x)
            layout = {"sequence_first": bound.sequence_first, "windows": bound.windows}
            x = runtime.hidden(bound.inputs, x, **layout)
            mapped = None
            if runtime.weighs and bound.site is not None:
                weight = runtime.method.weight(bound.site, self.weight)
                bound.weighed = True
                y = F.linear(x, weight, self.bias)
                bound.weighed = False
            else:
                y = super().forward(x)
                if plain and runtime.taps_at(bound.site):
                    mapped = Mapped.of(y, self.bias)
            runtime.linear_tap(bound.site, x, self.weight, mapped)
            return runtime.hidden(bound.outputs, y, **layout)

    return Linear


def activation_class(base: type[nn.Module]) -> type[nn.Module]:
    """Any other module, whose input and output the method may change in training."""

    class Activation(base):  # type: ignore[misc, valid-type]
        def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
            if not at_work(self):
                return super().forward(x, *args, **kwargs)
            bound: Bound = self.__dict__[BOUND]
            bound.runtime.enter(bound.site, x)
            layout = {"sequence_first": bound.sequence_first, "windows": bound.windows}
            x = bound.runtime.hidden(bound.inputs, x, **layout)
            y = super().forward(x, *args, **kwargs)
            return bound.runtime.hidden(bound.outputs, y, **layout)

    return Activation


def keeps_linear(module: nn.Module) -> bool:
    """Whether a module computes what `nn.Linear` does, so that its weight can be exchanged."""
    return isinstance(module, nn.Linear) and type(module).forward is nn.Linear.forward
