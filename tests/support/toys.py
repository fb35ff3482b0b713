"""Methods for tests of adapters; none is registered."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attndrop_repro.methods import AttentionCall, Method, Settings, Site, Step, Taps

PLACES = frozenset({"attention"})


class Spy(Method[Settings]):
    """Looks at every attention and changes none."""

    name = "spy"
    reference = "test"
    needs = PLACES

    def __init__(self) -> None:
        super().__init__(Settings())
        self.steps: list[Step] = []
        self.calls: list[AttentionCall] = []

    def begin_step(self, step: Step) -> None:
        self.steps.append(step)

    def rewrite(self, call: AttentionCall) -> AttentionCall:
        self.calls.append(call)
        return call


class ByHand(Spy):
    """Computes every attention from the parts of its call alone, in float64."""

    name = "by-hand"

    def attend(self, call: AttentionCall) -> Tensor:
        logits = call.q.double() @ call.k.double().transpose(-2, -1) * call.scale
        if call.bias is not None:
            logits = logits + call.bias.double()
        visible = call.visible()
        if visible is not None:
            logits = logits.masked_fill(~visible, float("-inf"))
        return (logits.softmax(-1).nan_to_num() @ call.v.double()).to(call.v.dtype)


class Shake(Method[Settings]):
    """Scales the keys by a number of the step, and drops each key of each query now and then."""

    name = "shake"
    reference = "test"
    needs = PLACES

    def __init__(self, strength: float = 0.3) -> None:
        super().__init__(Settings())
        self.strength = strength

    def begin_step(self, step: Step) -> None:
        self.factor = torch.rand((), device=step.device)

    def rewrite(self, call: AttentionCall) -> AttentionCall:
        keep = torch.rand(call.shape, device=call.q.device) >= self.strength
        keep = keep | torch.eye(*call.shape[-2:], dtype=torch.bool)
        return call.replace(k=call.k * (1 + self.factor)).drop_keys(keep)


class Places(Method[Settings]):
    """Looks at weights and activations wherever there is a place, and can double what it sees."""

    name = "places"
    reference = "test"
    stochastic = False
    needs = PLACES

    def __init__(self, double: str = "") -> None:
        super().__init__(Settings())
        self.double = double
        self.weights: list[tuple[Site, tuple[int, ...]]] = []
        self.activations: list[tuple[Site, tuple[int, ...]]] = []

    def weight(self, site: Site, weight: Tensor) -> Tensor:
        self.weights.append((site, tuple(weight.shape)))
        return weight * 2 if site.place == self.double else weight

    def hidden(self, site: Site, x: Tensor) -> Tensor:
        self.activations.append((site, tuple(x.shape)))
        return x * 2 if site.place == self.double else x

    def seen(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for site, _ in [*self.weights, *self.activations]:
            counts[site.place] = counts.get(site.place, 0) + 1
        return counts


class Watch(Method[Settings]):
    """A penalty that keeps its taps."""

    name = "watch"
    reference = "test"
    stochastic = False
    needs = PLACES

    def __init__(self, *places: str) -> None:
        super().__init__(Settings())
        self.wanted = frozenset(places or ("attention", "fc1", "fc2"))
        self.kept: list[Any] = []

    def taps(self) -> frozenset[str]:
        return self.wanted

    def penalty(self, taps: Taps) -> Tensor:
        self.kept.append(taps)
        return torch.zeros(())


def states(model: torch.nn.Module) -> dict[str, Any]:
    """Class and attributes of every module, to compare before and after."""
    return {
        path: (
            type(module),
            {k: dict(v) if hasattr(v, "items") else v for k, v in module.__dict__.items()},
        )
        for path, module in model.named_modules()
    }
