"""What is benchmarked: a model, a batch of random pixels, a device and a precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attndrop_repro import models, randomness
from attndrop_repro.config.errors import AttndropError
from attndrop_repro.config.recipe import Model

PRECISIONS = {"fp64": torch.float64, "fp32": torch.float32, "bf16": None, "fp16": None}
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Workload:
    """A model with its batch; small enough to be sent to another process.

    Attributes:
        model: Name and arguments of the model.
        classes: How many.
        image_size: Pixels a side.
        channels: 1 or 3.
        batch_size: Images a step.
        device: "cpu", "cuda", ...
        precision: "fp64", "fp32", or "bf16" and "fp16" by autocast.
        threads: CPU threads.
        compiled: Whether `torch.compile` is used.
    """

    model: Model
    classes: int
    image_size: int
    channels: int
    batch_size: int
    device: str = "cpu"
    precision: str = "fp32"
    threads: int = 1
    compiled: bool = False

    def make(self) -> tuple[nn.Module, Tensor, Tensor]:
        """The model, in the workload's dtype and place, pixels (B, C, H, W), targets (B,)."""
        torch.set_num_threads(self.threads)
        dtype = PRECISIONS[self.precision] or torch.float32
        model = models.build(
            self.model, classes=tuple(str(i) for i in range(self.classes)),
            image_size=self.image_size, channels=self.channels, mean=(0.5,) * self.channels,
            std=(0.25,) * self.channels, seed=0,
        )  # fmt: skip
        shape = (self.batch_size, self.channels, self.image_size, self.image_size)
        generator = randomness.torch_stream(0, "workload")
        x = torch.rand(shape, generator=generator, dtype=dtype)
        y = torch.randint(self.classes, (self.batch_size,), generator=generator)
        try:
            return model.to(self.device, dtype), x.to(self.device), y.to(self.device)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).strip().splitlines()[0]
            raise AttndropError(f"device {self.device!r} cannot be used: {reason}") from None

    @property
    def autocast(self) -> torch.dtype | None:
        """The precision of `torch.autocast`, or None."""
        return AUTOCAST.get(self.precision)

    @property
    def facts(self) -> dict[str, Any]:
        """What a result should say of it."""
        return {
            "model": self.model.name, "model_args": self.model.args,
            "batch_size": self.batch_size, "image_size": self.image_size,
            "compile": self.compiled,
        }  # fmt: skip
