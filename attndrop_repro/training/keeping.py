"""What a run keeps on disk: checkpoints to go on from, snapshots, the best and the final weights.

Order is what makes a kill harmless. The best weights are written before the checkpoint that counts
on them, the final weights before the run is called finished; everything in between is computed
again, to the same bits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.store import checkpoint
from attndrop_repro.store.atomic import remove_folder
from attndrop_repro.store.checkpoint import Checkpoint
from attndrop_repro.store.run_dir import RunDir
from attndrop_repro.training.checkpointing import Progress
from attndrop_repro.training.packing import copied, pack, under, unpack

_FINAL = "weights"


@dataclass(frozen=True)
class Learned:
    """What a training has learned: the network's weights, and what the method has for itself.

    Attributes:
        tensors: Copies on the CPU: ``model/`` and the network's own names, ``method/`` and others.
        method: The JSON half of the method's state.
    """

    tensors: dict[str, Tensor]
    method: Any

    @classmethod
    def taken(cls, weights: Mapping[str, Tensor], method: Mapping[str, Any]) -> Learned:
        """Copies them.

        Args:
            weights: By the network's own names.
            method: What `Handle.state_dict` gave.
        """
        tensors = {f"model/{name}": value for name, value in weights.items()}
        packed = pack(method, "method/", tensors)
        return cls(copied(tensors), packed)

    @property
    def weights(self) -> dict[str, Tensor]:
        """By the network's own names."""
        return under("model", self.tensors)

    @property
    def method_state(self) -> dict[str, Any]:
        """What `Handle.load_state_dict` takes."""
        state: dict[str, Any] = unpack(self.method, self.tensors)
        return state


@dataclass(frozen=True)
class Best:
    """What was best on validation when it was taken."""

    learned: Learned
    epoch: int
    step: int
    accuracy: float


@dataclass
class Keeper:
    """The files of one run.

    Attributes:
        run: Its folder.
        steps_per_epoch: To say an epoch where a checkpoint has a step.
        best: The best weights so far that are not on disk yet.
    """

    run: RunDir
    steps_per_epoch: int
    best: Best | None = None
    _last: str = field(default="none", init=False)

    def checkpoint(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Writes a checkpoint, and before it the best weights and the history that it counts on.

        Raises:
            AttndropError: The disk is full; the checkpoint before this one is still there.
        """
        folder = self.run.checkpoints
        self.run.sync_history()
        if self.best is not None:
            best = self.best
            state_of_best = {"epoch": best.epoch, "validation_accuracy": best.accuracy}
            save_learned(folder / f"best-{best.step:08d}", best.learned, state_of_best)
            self.best = None
        checkpoint.save(folder, tensors, state)
        self._last = self._describe(state["step"])

    def latest(self) -> tuple[Checkpoint | None, list[str]]:
        """The newest whole checkpoint, if there is one, and a line for each damaged one."""
        found = checkpoint.latest(self.run.checkpoints)
        if found.path is None:
            return None, found.skipped
        loaded = checkpoint.load(found.path)
        self._last = self._describe(loaded.state["step"])
        return loaded, found.skipped

    def last_description(self) -> str:
        """The last good checkpoint in words, or "none"."""
        return self._last

    def _describe(self, step: int) -> str:
        epochs, rest = divmod(step, self.steps_per_epoch)
        more = f" and {rest} steps" if rest else ""
        return f"after epoch {epochs}{more} (step {step})"

    def snapshot(self, epoch: int, learned: Learned) -> None:
        """Keeps the weights after an epoch; 0 are the initial ones."""
        save_learned(self.run.snapshot(epoch), learned, {"epoch": epoch})

    def finish(self, learned: Learned, progress: Progress, epochs: int, select: str) -> int:
        """Writes the weights that the run is judged by; returns the epoch that they are of.

        Args:
            learned: After the last epoch.
            progress: Where the run stands.
            epochs: How many there were.
            select: "last", or "best" on validation.
        """
        epoch = epochs
        if select == "best":
            learned, state = load_learned(self.run.checkpoints / self._best_name(progress))
            epoch = int(state["epoch"])
        save_learned(final_weights(self.run), learned, {"epoch": epoch, "select": select})
        return epoch

    def _best_name(self, progress: Progress) -> str:
        return f"best-{progress.best_epoch * self.steps_per_epoch:08d}"

    def forget(self) -> None:
        """Removes checkpoints, snapshots and weights: the run begins anew."""
        for path in (self.run.checkpoints, self.run.path / "snapshots", final_weights(self.run)):
            remove_folder(path)
        self.run.keep_history(lambda row: False)


def final_weights(run: RunDir) -> Path:
    """Where a finished run has the weights that it is judged by."""
    return run.path / _FINAL


def final_epoch(run: RunDir) -> int | None:
    """The epoch that those weights are of; None where there are none, or they are damaged."""
    try:
        return int(json.loads((final_weights(run) / "state.json").read_bytes())["epoch"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def save_learned(path: Path, learned: Learned, state: Mapping[str, Any]) -> None:
    """Writes it in the checkpoint format."""
    checkpoint.save_folder(path, learned.tensors, {**state, "method": learned.method})


def load_learned(path: Path) -> tuple[Learned, dict[str, Any]]:
    """What `save_learned` wrote, with its state.

    Raises:
        AttndropError: It is not there or damaged.
    """
    try:
        tensors, state = checkpoint.load(path)
    except AttndropError as error:
        how = "train the run again with --resume never to make it anew"
        if path.name == _FINAL:
            how = "train the run again: they are made anew from its last checkpoint"
        raise AttndropError(f"{error}; {how}") from None
    return Learned(tensors, state.pop("method")), state
