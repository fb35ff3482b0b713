"""What all perturbed sites of one model share: the method, the step, and the taps of this pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from attndrop_repro.adapters.swap import BOUND
from attndrop_repro.methods import AttentionCall, Method, Site, Step, Taps, parts_of
from attndrop_repro.methods.taps import AttentionTap, LinearTap, Mapped


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
        batch: Size of the running batch, 0 when not known.
        inside: Whether a forward of the whole model is running.
        training: Whether that forward is one of training.
        begun: Whether some pass began.
        taps: What the sites saw in this pass.
    """

    method: Method[Any]
    attention: list[Site] = field(default_factory=list)
    index: int = 0
    total: int = 0
    pass_index: int = 0
    off: bool = False
    batch: int = 0
    inside: bool = False
    training: bool = False
    begun: bool = False
    taps: Taps = field(default_factory=Taps)

    def __post_init__(self) -> None:
        self.wanted = self.method.taps()
        self.attends = self.overrides("attend")
        self.hides = self.overrides("hidden")
        self.weighs = self.overrides("weight")

    def __getstate__(self) -> dict[str, Any]:
        # taps hold the graph of the last pass, which can be neither copied nor pickled
        return {**self.__dict__, "taps": Taps()}

    @property
    def idle(self) -> bool:
        """Whether the sites must run the library's own code."""
        return self.off or self.method.idle

    def enter(self, site: Site | None, x: Tensor) -> None:
        """Called by every site before the method acts there on activations (B, ...).

        A part of the model may be called by itself (`forward_features`; the encoder, when text is
        generated): then its first attention begins the pass.
        """
        if self.inside:
            return
        first = bool(self.attention) and site is self.attention[0]
        # a backward pass that computes activations again must find the draws of its forward
        if not self.begun or (first and torch._C._current_graph_task_id() == -1):
            self.begin_pass(x.device, x.shape[0])

    def overrides(self, hook: str) -> bool:
        """Whether some part at work has its own version of a hook."""
        return any(part.overrides(hook) and not part.idle for part in parts_of(self.method))

    def begin_pass(self, device: torch.device, batch: int = 0) -> None:
        """Forgets the last pass's taps and lets the method draw for this one."""
        self.taps, self.batch, self.begun = Taps(batch=batch), batch, True
        if not self.idle:
            self.method.begin_step(
                Step(self.index, self.total, self.pass_index, self.attention, device)
            )

    def end_pass(self, output: Any) -> None:
        """The model's forward is over; its backward, when it comes, finds this pass's draws again.

        Activation checkpointing computes a pass anew while its gradients are taken, and by then
        another pass may have drawn. Gradients meet the outputs of a pass before anything inside.
        """
        self.inside = False
        if not self.training or self.idle or not torch.is_grad_enabled():
            return
        if torch.compiler.is_compiling() or torch._C._functorch.maybe_current_level() is not None:
            return
        drawn = [(part, part.drawn()) for part in parts_of(self.method)]
        drawn = [(part, draws) for part, draws in drawn if draws is not None]
        if not drawn:
            return

        def recall(gradient: Tensor) -> None:
            for part, draws in drawn:
                part.recall(draws)

        for tensor in _tensors(output):
            if tensor.requires_grad:
                tensor.register_hook(recall)  # type: ignore[no-untyped-call]

    def attention_output(
        self, call: AttentionCall, tap: AttentionTap | None = None
    ) -> Tensor | None:
        """The method's output for an attention, (B, H, Q, D); None: it left the call as it was."""
        if tap is not None:
            self.taps.attention.append(tap)
        changed = self.method.rewrite(call)
        if self.attends:
            return self.method.attend(changed)
        return None if changed is call else changed.run()

    def attention_weights(
        self, call: AttentionCall, tap: AttentionTap | None = None
    ) -> tuple[Tensor, Tensor]:
        """The output and the weights as they were applied, (B, H, Q, D) and (B, H, Q, K).

        The identity stands beside the values, so that both come out of the one attention and its
        draws, whatever the method does inside.
        """
        width = call.v.shape[-1]
        keys = call.k.shape[-2]
        eye = torch.eye(keys, dtype=call.v.dtype, device=call.v.device)
        wide = call.replace(v=torch.cat([call.v, eye.expand(*call.v.shape[:-2], keys, keys)], -1))
        output = self.attention_output(wide, tap)
        output = wide.run() if output is None else output
        return output[..., :width], output[..., width:]

    def hidden(
        self,
        sites: tuple[Site, ...],
        x: Tensor,
        *,
        sequence_first: bool = False,
        windows: bool = False,
    ) -> Tensor:
        """Activations of any layout through the method, which sees (B, N, C) with B the images.

        Args:
            sites: Places that coincide here, in order.
            x: (B, N, C), (N, B, C), a map (B, height, width, C), or without N or B.
            sequence_first: N comes first; without B, x is (N, C) instead of (B, C).
            windows: The first dimension may be B * windows, with B the slower one.
        """
        if not sites or not self.hides:
            return x
        shape = x.shape
        if x.dim() == 2:
            x = x.unsqueeze(0 if sequence_first else 1)
        elif sequence_first:
            x = x.transpose(0, 1)
        elif windows and x.dim() == 3 and self.batch and x.shape[0] % self.batch == 0:
            x = x.reshape(self.batch, -1, shape[-1])
        else:
            x = x.flatten(1, -2)
        for site in sites:
            x = self.method.hidden(site, x)
        if sequence_first and len(shape) > 2:
            return x.transpose(0, 1)
        return x.reshape(shape)

    def taps_at(self, site: Site | None) -> bool:
        """Whether the penalty wants to know what a linear layer saw."""
        return site is not None and site.place in self.wanted

    def linear_tap(
        self, site: Site | None, x: Tensor, weight: Tensor, mapped: Mapped | None
    ) -> None:
        """Keeps what a linear layer saw, if the penalty wants it."""
        if site is not None and self.taps_at(site):
            real = self.taps.real(tuple(x.shape[:-1]))
            self.taps.linear.append(LinearTap(site, x, weight, real, mapped))


class BeginPass:
    """Forward pre-hook of the root module: a training forward is a pass, whoever calls it."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    def __call__(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """Called before the model's forward."""
        runtime = self.runtime
        runtime.inside, runtime.training = True, module.training
        if module.training:
            first = next(_tensors((args, kwargs)), None)
            device = next((p.device for p in module.parameters()), torch.device("cpu"))
            batch = first.shape[0] if first is not None and first.dim() else 0
            runtime.begin_pass(device, batch)


class EndPass:
    """Forward hook of the root module, called after an exception too."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:
        """Called after the model's forward."""
        self.runtime.end_pass(output)


def pass_class(base: type[nn.Module]) -> type[nn.Module]:
    """The same for a root module that must have no hooks: it is bound to its runtime."""

    class Root(base):  # type: ignore[misc, valid-type]
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            runtime: Runtime = self.__dict__[BOUND]
            BeginPass(runtime)(self, args, kwargs)
            output = None
            try:
                output = super().forward(*args, **kwargs)
            finally:
                runtime.end_pass(output)
            return output

    return Root


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
