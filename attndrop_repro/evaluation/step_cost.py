"""What a method costs: whole training steps of all methods, interleaved in one process.

Machines are noisy, and drift: so every round times one step of each contender, in an order that
turns from round to round, and a cost is the median over rounds of the ratio to the plain model's
step *of the same round*. The plain model also runs a second time under another name; its ratio is
the noise of the measurement.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attndrop_repro.adapters import Handle, apply
from attndrop_repro.config.progress import Progress, Silent
from attndrop_repro.methods import build

PLAIN = "none"
NOISE = "none (again)"
UNFUSED = "none (unfused)"


@dataclass(frozen=True)
class Contender:
    """One row of the comparison.

    Attributes:
        label: As shown; unique.
        method: A method or composition.
        settings: Its settings.
        fused: Whether the model's own attention is the fused one.
    """

    label: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    fused: bool = True


@dataclass(frozen=True)
class Cost:
    """What the steps of one contender took.

    Attributes:
        contender: Whose.
        seconds: Of every timed step, in order of rounds.
        ratio: Median over rounds of its step over the plain step of the same round.
        low: Lower quartile of these ratios.
        high: Upper quartile.
        unfused_ratio: As `ratio`, over the plain model with unfused attention; NaN if not timed.
        images_per_second: From the median step.
    """

    contender: Contender
    seconds: tuple[float, ...]
    ratio: float
    low: float
    high: float
    unfused_ratio: float
    images_per_second: float


@contextmanager
def attention_form(model: nn.Module, fused: bool) -> Iterator[None]:
    """Has timm's attentions run fused or not, as long as this lasts."""
    kept = {m: m.__dict__["fused_attn"] for m in model.modules() if "fused_attn" in m.__dict__}
    for module in kept:
        module.fused_attn = fused  # type: ignore[assignment]
    try:
        yield
    finally:
        for module, value in kept.items():
            module.fused_attn = value


class Steps:
    """Training steps of any contender on one model, with one optimiser.

    All contenders share the weights: a model each would not fit beside twenty others. The optimiser
    has a learning rate of 0, so that no contender hands the next one other weights; its arithmetic
    is that of a real step.

    Args:
        model: In any mode.
        x: Inputs of the batch.
        y: Targets, (B,) int64.
        autocast: A precision for `torch.autocast`, or None.
        compiled: Whether each contender's model is compiled, as its own copy.
    """

    def __init__(
        self,
        model: nn.Module,
        x: Tensor,
        y: Tensor,
        *,
        autocast: torch.dtype | None = None,
        compiled: bool = False,
    ) -> None:
        self.model, self.x, self.y, self.autocast, self.compiled = model, x, y, autocast, compiled
        self._methods: dict[str, Any] = {}
        self._copies: dict[str, tuple[Handle, Callable[..., Any]]] = {}
        self._optimizers: dict[nn.Module, torch.optim.Optimizer] = {}

    @contextmanager
    def at_work(self, contender: Contender) -> Iterator[Callable[[], None]]:
        """Gives one whole training step of a contender, as often as it is called."""
        if self.compiled:
            with attention_form(self._copies[contender.label][0].model, contender.fused):
                yield lambda: self._step(*self._copies[contender.label])
            return
        method = self._methods.setdefault(
            contender.label, build(contender.method, contender.settings)
        )
        with attention_form(self.model, contender.fused):
            handle = apply(self.model, method)
            try:
                self.model.train()
                yield lambda: self._step(handle, None)
            finally:
                handle.remove()

    def prepare(self, contenders: Sequence[Contender]) -> None:
        """Compiles a copy of the model for each contender, where that was asked for."""
        if not self.compiled:
            return
        # every copy compiles the same code again; past its limit dynamo would silently run eagerly
        torch._dynamo.config.recompile_limit = 64 * len(contenders)
        torch._dynamo.config.accumulated_recompile_limit = 256 * len(contenders)
        for contender in contenders:
            model = copy.deepcopy(self.model).train()
            handle = apply(model, contender.method, contender.settings)
            self._copies[contender.label] = (handle, torch.compile(model))

    def _step(self, handle: Handle, forward: Callable[..., Any] | None) -> None:
        handle.model.zero_grad(set_to_none=True)
        with torch.autocast(self.x.device.type, self.autocast, enabled=self.autocast is not None):
            loss = handle.loss(self.x, self.y, F.cross_entropy, forward=forward)
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer(handle.model).step()
        handle.update(self.x, self.y, F.cross_entropy)

    def _optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        if model not in self._optimizers:
            parameters = [p for p in model.parameters() if p.requires_grad]
            self._optimizers[model] = torch.optim.AdamW(parameters, lr=0.0, fused=True)
        return self._optimizers[model]


class Clock:
    """Seconds of a call; on a GPU by events."""

    def __init__(self, device: torch.device) -> None:
        self.cuda = device.type == "cuda"

    def time(self, call: Callable[[], object]) -> float:
        """Runs a call and says how long it took."""
        if not self.cuda:
            start = time.perf_counter()
            call()
            return time.perf_counter() - start
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end)) / 1e3


def interleaved(
    steps: Steps,
    contenders: Sequence[Contender],
    *,
    rounds: int = 15,
    warmup: int = 2,
    progress: Progress | None = None,
) -> list[Cost]:
    """Times contenders against the plain model.

    Args:
        steps: The model and its batch.
        contenders: What to time; the plain model, and that again, are added where they are missing.
        rounds: Timed steps of each.
        warmup: Steps of each before that.
        progress: What to report to.

    Returns:
        One cost for each contender, the plain model first.
    """
    wanted = {PLAIN: Contender(PLAIN, PLAIN), NOISE: Contender(NOISE, PLAIN)}
    wanted.update({c.label: c for c in contenders})
    everyone = list(wanted.values())
    report, clock = progress or Silent(), Clock(steps.x.device)
    steps.prepare(everyone)
    seconds: dict[str, list[float]] = {c.label: [] for c in everyone}
    total = (rounds + 1) * len(everyone)
    for turn in range(-1, rounds):
        for index in range(len(everyone)):
            contender = everyone[(index + turn) % len(everyone)]
            with steps.at_work(contender) as step:
                if turn < 0:
                    for _ in range(warmup):
                        step()
                else:
                    seconds[contender.label].append(clock.time(step))
            report.update((turn + 1) * len(everyone) + index + 1, total, method=contender.label)
    return [_cost(contender, seconds, len(steps.y)) for contender in everyone]


def _cost(contender: Contender, seconds: Mapping[str, Sequence[float]], batch: int) -> Cost:
    own = np.asarray(seconds[contender.label])
    ratios = own / np.asarray(seconds[PLAIN])
    low, middle, high = np.quantile(ratios, (0.25, 0.5, 0.75))
    unfused = np.nan
    if UNFUSED in seconds:
        unfused = float(np.median(own / np.asarray(seconds[UNFUSED])))
    return Cost(
        contender, tuple(own), float(middle), float(low), float(high), unfused,
        batch / float(np.median(own)),
    )  # fmt: skip
