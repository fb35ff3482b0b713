"""Measuring changes nothing: modes, buffers, gradients and random state are put back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from attndrop_repro import randomness

SMALLEST = 8


@contextmanager
def untouched(model: nn.Module, seed: int = 0, *, frozen: bool = False) -> Iterator[None]:
    """Lends a model in eval mode; afterwards it is as it was, also when the body raises.

    Every module's own mode is restored (not one mode for all: a model may be part frozen), every
    buffer's values, every parameter's gradient and `requires_grad`, and all random streams.

    Args:
        model: Any model.
        seed: Of the streams inside; a measurement gives its own draws streams of their own.
        frozen: Whether parameters need no gradient meanwhile.
    """
    modes = [(module, module.training) for module in model.modules()]
    parameters = [(p, p.requires_grad, p.grad) for p in model.parameters()]
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    with randomness.stream(seed, "measurement"):
        try:
            model.eval()
            if frozen:
                for parameter, _, _ in parameters:
                    parameter.requires_grad_(False)
            yield
        finally:
            for module, training in modes:
                module.training = training
            for parameter, requires_grad, grad in parameters:
                parameter.requires_grad_(requires_grad)
                parameter.grad = grad
            with torch.no_grad():
                for buffer, before in buffers:
                    if not torch.equal(buffer, before):
                        buffer.copy_(before)


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Runs with so many CPU threads: sums differ in their last bits with the number."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def forward(model: nn.Module, pixels: Tensor) -> Tensor:
    """Logits (B, classes) of pixels (B, C, H, W).

    A few images are filled up to `SMALLEST`: matrix products of very few rows are summed in another
    order than those of many, and a result must not depend on how a set is cut into batches.
    """
    n = len(pixels)
    if n < SMALLEST:
        pixels = torch.cat([pixels, pixels[-1:].expand(SMALLEST - n, *pixels.shape[1:])])
    logits: Tensor = model(pixels)
    return logits[:n]


def place(model: nn.Module) -> tuple[torch.device, torch.dtype]:
    """Where a model's parameters are, and their floating point type."""
    parameter = next(model.parameters(), None)
    if parameter is None:
        return torch.device("cpu"), torch.get_default_dtype()
    return parameter.device, parameter.dtype
