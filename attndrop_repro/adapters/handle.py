"""`apply`: one line that puts a method into a model, and the handle that trains and removes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from attndrop_repro.adapters.install import install
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
        model: A Transformer of timm, torchvision or Hugging Face, or any model whose attentions are
            `nn.MultiheadAttention` or call torch's `scaled_dot_product_attention`.
        method: A name or composition as in ``"attentiondrop-blur+consistency"``, or a built one.
        settings: Settings by name, or by method and name.
        keywords: The same, as keywords: ``sigma_max=0.5``, ``dropkey={"p": 0.1}``.

    Returns:
        The handle: ``handle.loss(x, y, criterion)``, ``handle.remove()``.

    Raises:
        UsageError: Unknown method or setting, or a value out of range.
        AttndropError: The model has no site that the method needs, or already has a method.
    """
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
        self.parts: dict[str, Tensor] = {}
        self._penalties: list[Tensor] = []
        self._installed = install(model, method)
        self.runtime = self._installed.runtime

    def __repr__(self) -> str:
        where = type(self.model).__name__
        return f"<{self.method.name} at work in {where}: {len(self.sites)} places>"

    @property
    def sites(self) -> tuple[Site, ...]:
        """Every place of the model where a method can act, in order of depth."""
        return tuple(self._installed.sites)

    @property
    def passes(self) -> int:
        """Forward passes of a training step."""
        return 1 if self.method.idle else self.method.passes

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

    @property
    def held_out(self) -> bool:
        """Whether `update` must be given examples that the model is not trained on."""
        learner = self.method.learner()
        return learner is not None and learner.held_out

    def update(
        self,
        x: Any,
        y: Any,
        criterion: Callable[[Tensor, Any], Tensor],
        *,
        real: Tensor | None = None,
    ) -> dict[str, float]:
        """What the method learns for itself; call it after each step of the model's optimiser.

        Without a learning method it does nothing. The model itself is left as it is.

        Args:
            x: Inputs, as for `loss`; not from the training data where `held_out` says so.
            y: Targets.
            criterion: Task loss of outputs and targets, a scalar mean.
            real: True where a position of the outputs counts; None: all do.

        Returns:
            What to log.
        """
        learner = self.method.learner()
        if learner is None or self.method.idle:
            return {}
        return learner.update(self._evaluate, x, y, Task(criterion, real))

    def state_dict(self) -> dict[str, Any]:
        """What the method has learned, flat: tensors and plain numbers; empty without a learner."""
        learner = self.method.learner()
        return {} if learner is None else learner.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` gave.

        Raises:
            AttndropError: It is the state of another method.
        """
        learner = self.method.learner()
        try:
            if learner is not None:
                learner.load_state_dict(dict(state))
        except KeyError as missing:
            raise AttndropError(
                f"this is no state of {self.method.name}: {missing} is not in it"
            ) from None
        if learner is None and state:
            raise AttndropError(f"{self.method.name} learns nothing, so it has no state to load")

    def _evaluate(self, x: Any, method: Method[Any] | None) -> Tensor:
        """Outputs in eval mode but for the places where `method`, and no other part, is at work."""
        modes = [(module, module.training) for module in self.model.modules()]
        kept = dict(self.runtime.__dict__)
        try:
            self.model.eval()
            if method is not None:
                self.runtime.method = method
                self.runtime.__post_init__()
                self.model.training = True  # the root's flag alone: a forward is a pass
                for module in self._installed.swapped:
                    module.training = True
            with torch.no_grad():
                return _logits(_call(self.model, x))
        finally:
            self.runtime.__dict__.update(kept)
            for module, mode in modes:
                module.training = mode

    def remove(self) -> None:
        """Gives the model back as it was; a second call changes nothing."""
        self._installed.remove()


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
