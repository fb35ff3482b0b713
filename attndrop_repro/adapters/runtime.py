"""What all perturbed sites of one model share: the method, the step, and the taps of this pass."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from attndrop_repro.methods import AttentionCall, Method, Site, Step, Taps
from attndrop_repro.methods.call import AttentionTap, LinearTap


@dataclass
class Runtime:
    """One per model; deep copies of the model get a copy of it, so nothing is shared by accident.

    Attributes:
        method: The method or composition.
        attention: The attention sites, in order of depth.
        index: Optimiser step, from 0.
        total: Steps of the training, 0 when not known.
        pass_index: Which pass over the same batch comes next.
        off: Switches the method off while True (for the plain pass of a learner's reward).
    """

    method: Method[Any]
    attention: list[Site] = field(default_factory=list)
    index: int = 0
    total: int = 0
    pass_index: int = 0
    off: bool = False
    taps: Taps = field(default_factory=Taps)

    def __post_init__(self) -> None:
        self.wanted = self.method.taps()

    @property
    def idle(self) -> bool:
        """Whether the sites must run the library's own code."""
        return self.off or self.method.idle

    def begin_pass(self, device: torch.device) -> None:
        """Forgets the last pass's taps and lets the method draw for this one."""
        self.taps = Taps()
        if not self.idle:
            self.method.begin_step(
                Step(self.index, self.total, self.pass_index, self.attention, device)
            )

    def attention_output(self, call: AttentionCall, tap: AttentionTap | None) -> Tensor | None:
        """The method's output for an attention; None: it left the call as it was."""
        if tap is not None:
            self.taps.attention.append(tap)
        changed = self.method.rewrite(call)
        if self.method_attends:
            return self.method.attend(changed)
        return None if changed is call else changed.run()

    @property
    def method_attends(self) -> bool:
        """Whether some part takes attention over."""
        from attndrop_repro.methods import parts_of

        return any(part.overrides("attend") and not part.idle for part in parts_of(self.method))

    def linear_tap(self, site: Site, x: Tensor, weight: Tensor) -> None:
        """Keeps what a linear layer saw, if the penalty wants it."""
        if site.place in self.wanted:
            self.taps.linear.append(LinearTap(site, x, weight))


class BeginPass:
    """Forward pre-hook of the root module: a training forward is a pass, whoever calls it."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    def __call__(self, module: nn.Module, args: Any) -> None:
        """Called by torch before the model's forward."""
        if module.training:
            device = next((p.device for p in module.parameters()), torch.device("cpu"))
            self.runtime.begin_pass(device)
