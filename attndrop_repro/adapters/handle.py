"""`apply`: one line that puts a method into a model, and the handle that trains and removes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from attndrop_repro.adapters import timm as timm_adapter
from attndrop_repro.adapters.runtime import BeginPass, Runtime
from attndrop_repro.adapters.swap import is_swapped, restore, swap
from attndrop_repro.config.errors import AttndropError, UsageError
from attndrop_repro.methods import Method, Site, Task, build


def apply(
    model: nn.Module,
    method: str | Method[Any],
    settings: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> Handle:
    """Puts a method into a model: from now on its training forwards are regularised.

    In eval mode the model is the plain one, bit for bit. No parameter is added or renamed.

    Args:
        model: A model of timm (others: see `attndrop methods`).
        method: A name or composition as in ``"attentiondrop-blur+consistency"``, or a built one.
        settings: Settings by name, or by method and name.
        keywords: The same, as keywords: ``sigma_max=0.5``, ``dropkey={"p": 0.1}``.

    Returns:
        The handle: ``handle.loss(x, y, criterion)``, ``handle.remove()``.

    Raises:
        UsageError: Unknown method or setting, or a value out of range.
        AttndropError: The model has no site that the method needs, or already has a method.
    """
    if any(is_swapped(module) for module in model.modules()):
        raise AttndropError("this model already has a method: call remove() on its handle first")
    if isinstance(method, str):
        method = build(method, {**(settings or {}), **keywords})
    elif settings or keywords:
        raise UsageError("settings go with the name of a method, not with a method already built")
    return Handle(model, method)


class Handle:
    """A method at work in a model.

    Attributes:
        model: The model.
        method: The method or composition.
        parts: Terms of the last loss, detached: "objective", "penalty".
    """

    def __init__(self, model: nn.Module, method: Method[Any]) -> None:
        self.model, self.method = model, method
        self.runtime = Runtime(method)
        self.parts: dict[str, Tensor] = {}
        self._swapped: list[nn.Module] = []
        self._install()
        self._hook = model.register_forward_pre_hook(BeginPass(self.runtime))

    def _install(self) -> None:
        found = list(timm_adapter.find(self.model))
        totals = Counter(place for item in found for place in item.places.values())
        missing = self.method.needs - set(totals)
        if missing:
            raise AttndropError(
                f"{type(self.model).__name__} has no place that {self.method.name} needs: "
                + ", ".join(sorted(missing))
            )
        counts: Counter[str] = Counter()
        for item in found:
            sites: dict[str, Site] = {}
            for role, place in item.places.items():
                sites[role] = Site(
                    place, counts[place], totals[place], item.path,  # type: ignore[arg-type]
                    heads=item.heads, prefix_tokens=item.prefix_tokens,
                )  # fmt: skip
                counts[place] += 1
            if sites["site"].place == "attention":
                self.runtime.attention.append(sites["site"])
            outputs = (sites["output"],) if "output" in sites else ()
            bound = timm_adapter.Bound(self.runtime, sites["site"], sites.get("input"), outputs)
            swap(item.module, item.make, bound)
            self._swapped.append(item.module)

    @property
    def passes(self) -> int:
        """Forward passes of a training step."""
        return self.method.passes

    def at(self, step: int, total: int) -> None:
        """Says which optimiser step comes next, of how many: schedules of strength follow it."""
        self.runtime.index, self.runtime.total = step, total

    def loss(
        self,
        x: Any,
        y: Any,
        criterion: Callable[[Tensor, Any], Tensor],
        *,
        real: Tensor | None = None,
        forward: Callable[..., Any] | None = None,
    ) -> Tensor:
        """The training loss of a batch: one pass or two, penalties included.

        Args:
            x: Inputs: a tensor, or a tuple or mapping of arguments.
            y: Targets.
            criterion: Task loss of outputs and targets, a scalar mean.
            real: True where a position of the outputs counts (sequences); None: all do.
            forward: What to call in place of the model (DDP, compiled).

        Returns:
            A scalar. In eval mode the plain task loss.
        """
        outputs = self.outputs(x, forward=forward)
        return self.objective(outputs, y, criterion, real=real)

    def outputs(self, x: Any, *, forward: Callable[..., Any] | None = None) -> list[Tensor]:
        """The outputs of all passes of a step; penalties are kept for `objective`."""
        run = self.model if forward is None else forward
        passes = self.passes if self.model.training else 1
        outputs, self._penalties = [], []
        for index in range(passes):
            self.runtime.pass_index = index
            outputs.append(_logits(_call(run, x)))
            if self.model.training and self.runtime.wanted and not self.runtime.idle:
                self._penalties.append(self.method.penalty(self.runtime.taps))
        self.runtime.pass_index = 0
        return outputs

    def objective(
        self,
        outputs: list[Tensor],
        y: Any,
        criterion: Callable[[Tensor, Any], Tensor],
        *,
        real: Tensor | None = None,
    ) -> Tensor:
        """The loss from the outputs of `outputs`."""
        task = Task(criterion, real)
        if not self.model.training or self.method.idle:
            return criterion(outputs[0], y)
        loss = self.method.objective(outputs, y, task)
        self.parts = {"objective": loss.detach()}
        if self._penalties:
            penalty = sum(self._penalties[1:], self._penalties[0]) / len(self._penalties)
            self.parts["penalty"] = penalty.detach()
            loss = loss + penalty
        return loss

    def remove(self) -> None:
        """Gives the model back as it was."""
        self._hook.remove()
        for module in self._swapped:
            restore(module)
        self._swapped.clear()


def _call(run: Callable[..., Any], x: Any) -> Any:
    if isinstance(x, Mapping):
        return run(**x)
    return run(*x) if isinstance(x, tuple) else run(x)


def _logits(output: Any) -> Tensor:
    if isinstance(output, Tensor):
        return output
    logits = getattr(output, "logits", None)
    if isinstance(logits, Tensor):
        return logits
    raise AttndropError(f"the model returns a {type(output).__name__} without logits")
