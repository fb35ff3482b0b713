"""Gradients of single examples, or of single batches, with torch.func.

Shapes: U units (examples or batches), B examples in a unit, P numbers of a parameter.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from attndrop_repro.adapters import Handle
from attndrop_repro.config.errors import AttndropError
from attndrop_repro.evaluation.draws import ExampleDraws
from attndrop_repro.methods.taps import Taps

Gradients = dict[str, Tensor]  # by parameter, (U, P)
Criterion = Callable[[Tensor, Tensor], Tensor]


def refuse_batch_norm(model: nn.Module) -> None:
    """Refuses models in which one example's gradient depends on the others.

    Raises:
        AttndropError: There is a batch norm; the message names it.
    """
    for path, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            raise AttndropError(
                f"the model has batch norm ({path!r}): in training its examples share statistics, "
                "so none has a gradient of its own; choose a model without"
            )


Loss = Callable[[dict[str, Tensor], Tensor, Tensor, Tensor], Tensor]


@dataclass
class PerSample:
    """Computes per-unit gradients of one model, in chunks.

    Attributes:
        handle: The method in the model.
        criterion: Task loss of outputs and targets, a scalar mean.
        chunk: Units at a time; changes nothing but memory.
        reason: Why gradients are computed one by one; "" where they are not.
    """

    handle: Handle
    criterion: Criterion
    chunk: int
    reason: str = ""

    def blocks(
        self, x: Tensor, y: Tensor, draws: ExampleDraws, *, share: int = 1, plain: bool = False
    ) -> Iterator[Gradients]:
        """Gradients of all units, in order, chunk after chunk.

        Args:
            x: Pixels (U, B, C, H, W).
            y: Targets (U, B).
            draws: Not used before.
            share: So many neighbouring units get the same draws.
            plain: The model's own loss, without the method.

        Raises:
            AttndropError: The method draws in a way that cannot be given an example's own numbers.
        """
        parameters = self._parameters()
        for start in range(0, len(x), self.chunk):
            units = range(start, min(start + self.chunk, len(x)))
            with self._pass(plain):
                if not self.reason:
                    spare = copy.deepcopy(draws) if start == 0 else draws
                    try:
                        block = self._together(parameters, x, y, draws, units, share, plain)
                    except (RuntimeError, NotImplementedError, ValueError) as error:
                        if start > 0:
                            raise
                        self.reason = " ".join(str(error).split())[:300] or type(error).__name__
                        draws = spare  # what was drawn until then is drawn again
                if self.reason:
                    block = self._one_by_one(parameters, x, y, draws, units, share, plain)
            yield {name: value.detach().flatten(1) for name, value in block.items()}

    def _parameters(self) -> dict[str, Tensor]:
        named = self.handle.model.named_parameters()
        return {name: p.detach() for name, p in named if p.requires_grad}

    def _loss(self, draws: ExampleDraws, plain: bool) -> Loss:
        def loss(weights: dict[str, Tensor], x: Tensor, y: Tensor, owner: Tensor) -> Tensor:
            draws.choose(owner)

            def forward(pixels: Tensor) -> Tensor:
                output: Tensor = functional_call(self.handle.model, weights, (pixels,))
                return output

            if plain:
                return self.criterion(forward(x), y)
            return self.handle.loss(x, y, self.criterion, forward=forward)

        return loss

    def _together(
        self, parameters: dict[str, Tensor], x: Tensor, y: Tensor, draws: ExampleDraws,
        units: range, share: int, plain: bool,
    ) -> dict[str, Tensor]:  # fmt: skip
        owners = range(units[0] // share, units[-1] // share + 1)
        index = torch.arange(units.start, units.stop, device=x.device) // share - owners.start
        many: Callable[..., dict[str, Tensor]] = vmap(
            grad(self._loss(draws, plain)), in_dims=(None, 0, 0, 0), randomness="different"
        )
        draws.begin(owners)
        with draws, warnings.catch_warnings():
            # operations that vmap has no rule for run as loops: slower, and right
            warnings.filterwarnings("ignore", message=".*performance drop.*")
            block = many(
                parameters, x[units.start : units.stop], y[units.start : units.stop], index
            )
        draws.check()
        return block

    def _one_by_one(
        self, parameters: dict[str, Tensor], x: Tensor, y: Tensor, draws: ExampleDraws,
        units: range, share: int, plain: bool,
    ) -> dict[str, Tensor]:  # fmt: skip
        one = grad(self._loss(draws, plain))
        first = torch.zeros((), dtype=torch.long, device=x.device)
        found = []
        for unit in units:
            draws.begin(range(unit // share, unit // share + 1))
            with draws:
                found.append(one(parameters, x[unit], y[unit], first))
            draws.check()
        return {name: torch.stack([each[name] for each in found]) for name in parameters}

    @contextmanager
    def _pass(self, plain: bool) -> Iterator[None]:
        runtime = self.handle.runtime
        runtime.off = plain
        try:
            yield
        finally:
            # tensors of torch.func do not outlive their transform
            runtime.off, runtime.taps, self.handle.parts = False, Taps(), {}
