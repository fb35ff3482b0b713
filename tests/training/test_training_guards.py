"""What stops a training: numbers that are not finite, memory that is not there, too little data."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from support.tiny_run import Steps, ended, spec_of, trained
from torch import Tensor

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.models import PixelModel
from attndrop_repro.store import Store
from attndrop_repro.training import train
from attndrop_repro.training.guards import FiniteGuard, largest_that_fits, out_of_memory


class Spoil(Steps):
    """Makes a weight not finite after a step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: int, where: str) -> None:
        super().__init__()
        true, self.calls = PixelModel.forward, 0

        def forward(model: PixelModel, pixels: Tensor) -> Tensor:
            logits = true(model, pixels)
            if model.training and self.calls == step:
                if where == "loss":
                    logits = logits * float("inf")
                else:
                    logits.register_hook(lambda gradient: gradient * float("nan"))
            self.calls += model.training
            return logits

        monkeypatch.setattr(PixelModel, "forward", forward)


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_numbers_that_are_not_finite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    spec = spec_of(training={"checkpoint_every": 0.5})
    whole = trained(tmp_path / "whole", spec)
    store = Store(tmp_path / "a")
    Spoil(monkeypatch, 8, where)
    with pytest.raises(AttndropError) as caught:
        train(spec, store, device="cpu")
    message = str(caught.value)
    assert f"the {where} is not finite at step 8 (epoch 2;" in message
    assert "last good checkpoint: after epoch 1 (step 6)" in message
    assert "\n" not in message
    run = store.run_dir(spec.run_id)
    status = run.status()
    assert status["status"] == "failed"
    assert status["message"] == message
    assert status["bad_step"] == 8
    assert status["bad_rows"] == whole.steps.rows[8]
    assert len(status["bad_ids"]) == 16
    assert json.dumps(status)
    # what made it so is gone: it goes on from the last good checkpoint
    monkeypatch.undo()
    train(spec, store, device="cpu")
    assert ended(store, spec).same_as(whole)


def test_the_first_bad_step_is_the_one_that_is_told() -> None:
    guard = FiniteGuard(torch.device("cpu"))
    one, nan, inf = torch.tensor(1.0), torch.tensor(float("nan")), torch.tensor(float("inf"))
    guard.note(0, one, one)
    guard.note(1, one, None)
    assert guard.check() is None
    guard.note(2, one, inf)
    guard.note(3, nan, nan)
    assert guard.check() == (2, "gradient")
    other = FiniteGuard(torch.device("cpu"))
    other.note(5, nan, None)
    assert other.check() == (5, "loss")


def test_out_of_memory_says_what_would_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    true = PixelModel.forward

    def forward(model: PixelModel, pixels: Tensor) -> Tensor:
        if model.training and len(pixels) > 5:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return true(model, pixels)

    monkeypatch.setattr(PixelModel, "forward", forward)
    spec = spec_of()
    with pytest.raises(AttndropError, match=r"with 16 images at once; 4 fit.*accumulate=4") as got:
        trained(tmp_path, spec)
    assert "\n" not in str(got.value)
    assert Store(tmp_path).run_dir(spec.run_id).status()["status"] == "failed"
    trained(tmp_path, spec_of(training={"accumulate": 4, "epochs": 1}))


def test_not_even_one_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forward(model: PixelModel, pixels: Tensor) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(PixelModel, "forward", forward)
    with pytest.raises(AttndropError, match="not even one image fits"):
        trained(tmp_path, spec_of())


def test_other_errors_are_not_taken_for_a_lack_of_memory() -> None:
    assert out_of_memory(RuntimeError("DefaultCPUAllocator: not enough memory: you tried"))
    with pytest.raises(RuntimeError) as refused:
        torch.empty(2**50)
    assert out_of_memory(refused.value)
    assert not out_of_memory(RuntimeError("shapes do not fit"))

    def attempt(count: int) -> None:
        raise RuntimeError("shapes do not fit")

    with pytest.raises(RuntimeError, match="shapes"):
        largest_that_fits(attempt, 8)


@pytest.mark.parametrize("method", ["none", "rdrop"])
def test_a_data_set_smaller_than_a_batch_trains(tmp_path: Path, method: str) -> None:
    found = trained(tmp_path, spec_of(method, data={"train_images": 10}))
    assert [len(rows) for rows in found.steps.rows] == [10, 10, 10]


def test_a_batch_of_one(tmp_path: Path) -> None:
    found = trained(
        tmp_path,
        spec_of("dropout", data={"train_images": 3}, training={"batch_size": 1, "epochs": 1}),
    )
    assert [len(rows) for rows in found.steps.rows] == [1, 1, 1]


def test_what_is_not_deterministic_is_recorded_and_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    true = PixelModel.forward

    def forward(model: PixelModel, pixels: Tensor) -> Tensor:
        warnings.warn("some_op does not have a deterministic implementation, but", stacklevel=1)
        warnings.warn("something else", stacklevel=1)
        return true(model, pixels)

    monkeypatch.setattr(PixelModel, "forward", forward)
    spec = spec_of(training={"epochs": 1})
    trained(tmp_path, spec)
    facts = Store(tmp_path).run_dir(spec.run_id).provenance()
    assert facts["resumed"][-1]["nondeterministic"] == ["some_op"]
    assert {str(w.message) for w in recwarn} == {"something else"}


def test_what_is_recorded_of_a_run(tmp_path: Path) -> None:
    spec = spec_of("attentiondrop-hard", settings={"k": 3})
    trained(tmp_path, spec)
    store = Store(tmp_path)
    run = store.run_dir(spec.run_id)
    facts: dict[str, Any] = run.provenance()
    assert facts["open_points"]["A5"]["attentiondrop-hard.k"] == 3
    assert "attentiondrop-hard.k" in facts["open_points"]["A9"]
    assert {f"A{n}" for n in (1, 5, 7, 8, 9, 12, 15, 17, 19)} <= facts["open_points"].keys()
    assert facts["dependencies"]["torch"] == torch.__version__.partition("+")[0]
    assert len(facts["data"]["checksum"]) == 64
    assert facts["threads"] == 1
    assert facts["device"].startswith("cpu: ")
    frame = store.frame()
    assert set(frame["metric"]) == {"train_seconds", "images_per_second"}
    assert (frame["status"] == "finished").all()
    assert (frame["k"] == 3).all()


@pytest.mark.parametrize(
    ("method", "settings", "passes"),
    [
        ("dropkey", {}, 1),
        ("rdrop", {}, 2),
        ("rdrop", {"alpha": 0.0, "p": 0.0}, 1),
        ("dropkey+consistency", {}, 2),
    ],
)
def test_forward_passes_are_recorded(
    tmp_path: Path, method: str, settings: dict[str, Any], passes: int
) -> None:
    spec = spec_of(method, settings=settings, training={"epochs": 1})
    trained(tmp_path, spec)
    assert Store(tmp_path).run_dir(spec.run_id).provenance()["passes"] == passes
