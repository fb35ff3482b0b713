"""What stops a training early: numbers that are not finite, memory that is not there."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from math import isfinite

import torch
from torch import Tensor


class FiniteGuard:
    """Remembers, on the device, the first step whose loss or gradient was not finite.

    Args:
        device: Of the losses.
    """

    def __init__(self, device: torch.device) -> None:
        self._first = torch.full((2,), -1, dtype=torch.int64, device=device)

    def note(self, step: int, loss: Tensor, norm: Tensor | None) -> None:
        """Looks at a step without waiting for the device.

        Args:
            step: The optimiser step.
            loss: Scalar.
            norm: Of the gradient; None where the loss scaler handles what is not finite.
        """
        numbers = [loss] if norm is None else [loss, norm]
        if loss.device.type == "cpu" and all(isfinite(number.item()) for number in numbers):
            return  # reading them costs no waiting there
        values = loss if norm is None else torch.stack([loss, norm.to(loss.dtype)])
        bad = ~torch.isfinite(values).flatten()
        which = bad.to(torch.int64).argmax()  # 0: the loss, 1: the gradient
        now = torch.stack([torch.full_like(which, step), which])
        self._first = torch.where((self._first[0] < 0) & bad.any(), now, self._first)

    def check(self) -> tuple[int, str] | None:
        """Waits for the device: the first bad step and what was not finite, or None."""
        step, which = self._first.tolist()
        return None if step < 0 else (step, ("loss", "gradient")[which])


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on a device or on the CPU."""
    # torch on a CPU: on Windows, and elsewhere
    words = ("not enough memory", "can't allocate memory")
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and any(word in str(error) for word in words)
    )


def largest_that_fits(attempt: Callable[[int], None], below: int) -> int:
    """The largest batch, halving from `below`, for which `attempt` finds enough memory; 0: none.

    Args:
        attempt: Runs one step on so many images, raising when memory runs out.
        below: The batch that did not fit.
    """
    size = below // 2
    while size >= 1:
        try:
            attempt(size)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            traceback.clear_frames(error.__traceback__)
        else:
            return size
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        size //= 2
    return 0
