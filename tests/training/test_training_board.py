"""TensorBoard by a setting."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest
from support.tiny_run import Steps, Stopped, spec_of, trained

from attndrop_repro.config.errors import UsageError
from attndrop_repro.store import Store
from attndrop_repro.training import train

ON = {"runtime": {"tensorboard": True}}


class Writer:
    """Stands for TensorBoard's writer: keeps what it is given."""

    made: list[Writer] = []  # noqa: RUF012 - all of a test

    def __init__(self, folder: str, purge_step: int) -> None:
        self.folder, self.purge_step, self.scalars = folder, purge_step, []
        Writer.made.append(self)

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.scalars.append((name, value, step))

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(Writer, "made", [])
    return Writer.made


def test_the_history_is_written_and_goes_on_after_a_kill(
    tmp_path: Path, writers: list[Any]
) -> None:
    spec = spec_of(**ON)
    with pytest.raises(Stopped):
        train(spec, Store(tmp_path), device="cpu", observe=Steps(stop_after=8))
    found = trained(tmp_path, spec)
    first, second = writers
    assert (first.purge_step, second.purge_step) == (1, 7)
    assert first.folder.endswith(f"{spec.run_id}/tensorboard")
    assert all(writer.closed for writer in writers)
    expected = [
        (name, row[name], row["step"])
        for row in found.history
        for name in ("lr", "train_loss", "validation_loss", "validation_accuracy")
    ]
    assert first.scalars + second.scalars == expected


def test_it_makes_no_other_run() -> None:
    assert spec_of(**ON).run_id == spec_of().run_id


def test_without_the_package_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UsageError, match="pip install tensorboard"):
        trained(tmp_path, spec_of(**ON))
