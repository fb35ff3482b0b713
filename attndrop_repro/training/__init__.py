"""Training: the loop, optimisers and schedules, processes, checkpoints."""

from attndrop_repro.training.signals import Interrupted
from attndrop_repro.training.train import RunResult, train

__all__ = ["Interrupted", "RunResult", "train"]
