"""The history for TensorBoard, where the recipe asks for it; the record is the store's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attndrop_repro.config.errors import UsageError


class Board:
    """Writes event files.

    Args:
        folder: Where; `tensorboard --logdir` on it or on any folder above shows the run.
        step: Events from this step on, left by a sitting that was killed, are hidden.

    Raises:
        UsageError: TensorBoard is not installed.
    """

    def __init__(self, folder: Path, step: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise UsageError(
                "runtime.tensorboard needs TensorBoard: pip install tensorboard, or leave it out"
            ) from None
        self._writer: Any = SummaryWriter(str(folder), purge_step=step)

    def add(self, row: dict[str, Any]) -> None:
        """A row of the history, at its step."""
        for name, value in row.items():
            if name not in ("step", "epoch"):
                self._writer.add_scalar(name, value, row["step"])
        self._writer.flush()

    def close(self) -> None:
        """No more rows come."""
        self._writer.close()
