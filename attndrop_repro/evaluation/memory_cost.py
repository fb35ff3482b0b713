"""Peak memory of training steps; meant to run in a process of its own for each contender."""

from __future__ import annotations

import resource
import sys

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
    with lanes.at_work(contender) as step:
        for _ in range(steps):
            step()
    if x.device.type == "cuda":
        return torch.cuda.max_memory_allocated(x.device) / 2**20
    return resident_peak_mb()


def resident_peak_mb() -> float:
    """The most memory that this process ever held, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
