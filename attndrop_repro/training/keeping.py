"""What a run keeps on disk: checkpoints to go on from, snapshots, the best and the final weights.

Order is what makes a kill harmless. The best weights are written before the checkpoint that counts
on them, the final weights before the run is called finished; everything in between is computed
again, to the same bits.
"""

from __future__ import annotations

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
from attndrop_repro.training.packing import under


@dataclass(frozen=True)
class Best:
    """Weights that were best on validation when they were taken."""

    weights: dict[str, Tensor]
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
        """Writes a checkpoint, and before it the best weights that it counts on.

        Raises:
            AttndropError: The disk is full; the checkpoint before this one is still there.
        """
        folder = self.run.checkpoints
        if self.best is not None:
            best = self.best
            checkpoint.save_folder(
                folder / f"best-{best.step:08d}",
                {f"model/{name}": value for name, value in best.weights.items()},
                {"epoch": best.epoch, "step": best.step, "validation_accuracy": best.accuracy},
            )
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

    def snapshot(self, epoch: int, weights: dict[str, Tensor]) -> None:
        """Keeps the weights after an epoch; 0 are the initial ones."""
        save_weights(self.run.snapshot(epoch), weights, {"epoch": epoch})

    def finish(
        self, weights: dict[str, Tensor], progress: Progress, epochs: int, select: str
    ) -> int:
        """Writes the weights that the run is judged by; returns the epoch that they are of.

        Args:
            weights: After the last epoch.
            progress: Where the run stands.
            epochs: How many there were.
            select: "last", or "best" on validation.
        """
        epoch = epochs
        if select == "best":
            weights, state = load_weights(self.run.checkpoints / self._best_name(progress))
            epoch = int(state["epoch"])
        save_weights(final_weights(self.run), weights, {"epoch": epoch, "select": select})
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
    return run.path / "weights"


def save_weights(path: Path, weights: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Weights under the network's own names, in the checkpoint format."""
    checkpoint.save_folder(path, {f"model/{name}": t for name, t in weights.items()}, state)


def load_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `save_weights` wrote, with its state.

    Raises:
        AttndropError: It is not there or damaged.
    """
    try:
        tensors, state = checkpoint.load(path)
    except AttndropError as error:
        raise AttndropError(
            f"{error}; train the run again with --resume never to make it anew"
        ) from None
    return under("model", tensors), state
