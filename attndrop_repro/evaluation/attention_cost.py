"""What one attention costs under a method: time and added memory, forward and backward.

Meant to run in a process of its own for each method: a process that has held much memory hides
what the next method takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from attndrop_repro import randomness
from attndrop_repro.config.errors import AttndropError
from attndrop_repro.evaluation.memory_cost import added_memory_mb
from attndrop_repro.evaluation.step_cost import Clock, Contender
from attndrop_repro.methods import AttentionCall, Site, Step, build

DTYPES = {
    "fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16,
}  # fmt: skip
_SHORT = 512  # tokens of the first call, which loads what every call needs


@dataclass(frozen=True)
class Attention:
    """Self-attention on random numbers; small enough to be sent to another process.

    Attributes:
        tokens: N.
        batch: B.
        heads: H.
        width: Features of a head, D.
        device: "cpu", "cuda", ...
        precision: Of queries, keys and values.
        threads: CPU threads.
    """

    tokens: int
    batch: int = 1
    heads: int = 4
    width: int = 64
    device: str = "cpu"
    precision: str = "fp32"
    threads: int = 1

    def lane(self, contender: Contender | None, tokens: int) -> Callable[[], None]:
        """Forward and backward as a call.

        Args:
            contender: The method; None: torch's fused attention itself.
            tokens: N.
        """
        shape = (self.batch, self.heads, tokens, self.width)
        try:
            generator = randomness.torch_stream(0, "attention", tokens)
            # made in their own dtype: room that a copy leaves behind would be used unseen
            q, k, v, grad = (
                torch.empty(shape, dtype=DTYPES[self.precision])
                .normal_(generator=generator)
                .to(self.device)
                for _ in range(4)
            )
        except (RuntimeError, AssertionError) as error:
            reason = str(error).strip().splitlines()[0]
            raise AttndropError(f"device {self.device!r} cannot be used: {reason}") from None
        x = q.transpose(1, 2).flatten(2)
        for tensor in (q, k, v):
            tensor.requires_grad_()

        def plain() -> None:
            F.scaled_dot_product_attention(q, k, v).backward(grad)  # type: ignore[no-untyped-call]
            q.grad = k.grad = v.grad = None

        if contender is None:
            return plain
        site = Site("attention", 0, 1, "attention", heads=self.heads, width=x.shape[-1])
        call = AttentionCall(q, k, v, site, scale=1 / math.sqrt(self.width), x=x)
        method = build(contender.method, contender.settings)
        method.prepare([site])

        def perturbed() -> None:
            method.begin_step(Step(attention=[site], device=q.device))
            method.attend(method.rewrite(call)).backward(grad)  # type: ignore[no-untyped-call]
            q.grad = k.grad = v.grad = None

        return perturbed


@dataclass(frozen=True)
class AttentionCost:
    """What one attention took under a method.

    Attributes:
        seconds: Of every timed call.
        ratio: Median over rounds of the call over torch's fused attention in the same round.
        low: Lower quartile of these ratios.
        high: Upper quartile.
        added_mb: Peak memory in MiB beyond what the inputs take.
    """

    seconds: tuple[float, ...]
    ratio: float
    low: float
    high: float
    added_mb: float


def attention_cost(
    attention: Attention, contender: Contender | None, rounds: int = 15
) -> AttentionCost:
    """Weighs and times one method against torch's fused attention.

    Args:
        attention: Sizes and place.
        contender: The method; None: the fused attention again, whose ratio is the noise.
        rounds: Timed calls of each.
    """
    torch.set_num_threads(attention.threads)
    attention.lane(contender, max(1, min(_SHORT, attention.tokens // 8)))()
    ours = attention.lane(contender, attention.tokens)
    added = added_memory_mb(ours, torch.device(attention.device))
    plain = attention.lane(None, attention.tokens)
    clock = Clock(torch.device(attention.device))
    plain()
    pairs = []
    for turn in range(rounds):
        # who goes first finds other caches
        first, second = (ours, plain) if turn % 2 else (plain, ours)
        times = clock.time(first), clock.time(second)
        pairs.append(times if turn % 2 else times[::-1])
    own, theirs = np.asarray(pairs).T
    low, middle, high = np.quantile(own / theirs, (0.25, 0.5, 0.75))
    return AttentionCost(tuple(own), float(middle), float(low), float(high), added)
