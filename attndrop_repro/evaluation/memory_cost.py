"""Peak memory of training steps; meant to run in a process of its own for each contender."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch

from attndrop_repro.evaluation.step_cost import Contender, Steps
from attndrop_repro.evaluation.workload import Workload


def peak_memory_mb(workload: Workload, contender: Contender, steps: int = 2) -> float:
    """Peak memory in MiB: of the process on a CPU, of torch's allocator on a GPU.

    A process never gives its peak back, so a second contender in the same process would get the
    larger of both: call this in a fresh one.

    Args:
        workload: The model and its batch.
        contender: The method.
        steps: Training steps; the second has the optimiser's state from its beginning.
    """
    model, x, y = workload.make()
    lanes = Steps(model, x, y, autocast=workload.autocast, compiled=workload.compiled)
    lanes.prepare([contender])
    if x.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(x.device)
    else:
        _forget_peak()  # importing libraries takes more than the steps of a small model
    with lanes.at_work(contender) as step:
        for _ in range(steps):
            step()
    if x.device.type == "cuda":
        return torch.cuda.max_memory_allocated(x.device) / 2**20
    return _peak_so_far_mb()


def resident_peak_mb() -> float:
    """The most memory that this process ever held, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def added_memory_mb(call: Callable[[], None], device: torch.device) -> float:
    """Peak memory in MiB that a call adds to what is held before it.

    On a CPU it is that of the process, so whatever else the call loads counts too: let something
    small of the same kind run first.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        call()
        torch.cuda.synchronize(device)
        return (torch.cuda.max_memory_allocated(device) - before) / 2**20
    _forget_peak()
    before_mb = _peak_so_far_mb()
    call()
    return _peak_so_far_mb() - before_mb


def _forget_peak() -> None:
    """Lets the peak begin anew where the system can: Linux."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak_so_far_mb() -> float:
    """As `resident_peak_mb`, but since the peak began anew where the system lets it."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) / 2**10 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return resident_peak_mb()
