"""One run, one trainer; and what a run that says it is finished really has."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch
from support.sitting import at_once, started, until_step
from support.tiny_run import Said, Steps, ended, spec_of, trained

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.store import Store
from attndrop_repro.store.run_dir import _birth
from attndrop_repro.training import train
from attndrop_repro.training.restore import load_run


@pytest.mark.parametrize("seed", range(6))
def test_of_two_started_together_one_trains(tmp_path: Path, seed: int) -> None:
    spec = spec_of("dropout", seed=seed, training={"epochs": 8})
    (how, said, none), (also, trainer, steps) = at_once(tmp_path, spec)
    assert (how, also) in [("refused", "trained"), ("nothing to do", "trained")]
    assert (none, steps) == (0, 48)
    if how == "refused":
        assert said == (
            f"{spec.run_id} is being trained by process {trainer}: wait for it or stop it"
        )
    run = Store(tmp_path).run_dir(spec.run_id)
    assert run.status()["status"] == "finished"  # not what the other one had to say
    assert [row["epoch"] for row in run.history()] == list(range(1, 9))
    assert not (run.path / "lock").exists()
    assert ended(Store(tmp_path), spec).same_as(trained(tmp_path / "alone", spec))


def test_one_that_is_refused_changes_nothing_of_the_run(tmp_path: Path) -> None:
    spec = spec_of("dropout", training={"epochs": 2000, "checkpoint_every": 1})
    process = started(tmp_path, spec)
    until_step(tmp_path, spec, 12, process)
    run = Store(tmp_path).run_dir(spec.run_id)
    for resume in ("auto", "must", "never"):
        with pytest.raises(AttndropError, match=f"being trained by process {process.pid}"):
            train(spec, Store(tmp_path), device="cpu", resume=resume)
        status = run.status()
        assert (status["status"], status["pid"]) == ("running", process.pid)
        assert "message" not in status
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    # at once: what a killed process leaves blocks nobody
    with pytest.raises(Stop):
        train(spec, Store(tmp_path), device="cpu", observe=stop)


class Stop(BaseException):
    """Enough was seen."""


def stop(*arguments: object) -> None:
    raise Stop


def test_without_locks_the_status_says_who_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attndrop_repro.store.lock._taken", lambda path: None)
    spec = spec_of(training={"epochs": 1})
    run = Store(tmp_path).begin_run(spec, {})
    content = {**run.status(), "pid": os.getppid(), "born": ""}
    content.update(born=_birth(os.getppid()))
    (run.path / "status.json").write_text(json.dumps(content))
    with pytest.raises(AttndropError, match=f"being trained by process {os.getppid()}"):
        trained(tmp_path, spec)
    assert run.status() == content
    content["born"] = "long ago"  # another process has that number now
    (run.path / "status.json").write_text(json.dumps(content))
    trained(tmp_path, spec)


@pytest.mark.parametrize("select", ["last", "best"])
@pytest.mark.parametrize("damage", ["flip", "gone"])
def test_weights_that_are_damaged_are_made_anew(tmp_path: Path, damage: str, select: str) -> None:
    training = {"ema": 0.9, "select": select, "snapshots": [0, 3]}
    spec, store, said = spec_of("attendout", training=training), Store(tmp_path), Said()
    whole = trained(tmp_path, spec)
    weights = store.run_dir(spec.run_id).path / "weights"
    if damage == "flip":
        content = bytearray((weights / "model.safetensors").read_bytes())
        content[-5] ^= 1
        (weights / "model.safetensors").unlink()  # the tensors of `whole` are that file's memory
        (weights / "model.safetensors").write_bytes(content)
    else:
        shutil.rmtree(weights)
    with pytest.raises(AttndropError, match="train the run again: they are made anew"):
        load_run(store, spec.run_id)
    rows = store.frame()
    steps = Steps()
    assert not train(spec, store, device="cpu", progress=said, observe=steps).already_finished
    assert steps.losses == []
    what = "model.safetensors has other bytes" if damage == "flip" else "no manifest.json"
    assert what in said.lines[0]
    assert said.lines[0].endswith("the weights are made anew")
    assert said.lines[1] == "goes on after epoch 3 (step 18)"
    again = ended(store, spec)
    assert again.same_as(whole)
    assert again.status["status"] == "finished"
    assert again.status["weights_epoch"] == whole.status["weights_epoch"]
    kept = ["metric", "value", "n", "epoch", "status"]
    assert store.frame()[kept].equals(rows[kept])
    assert train(spec, store, device="cpu").already_finished


def test_damaged_weights_without_a_checkpoint_are_not_trained_anew_unasked(tmp_path: Path) -> None:
    spec, store = spec_of(training={"epochs": 1}), Store(tmp_path)
    whole = trained(tmp_path, spec)
    run = store.run_dir(spec.run_id)
    shutil.rmtree(run.path / "weights")
    shutil.rmtree(run.checkpoints)
    with pytest.raises(AttndropError) as caught:
        train(spec, store, device="cpu")
    message = str(caught.value)
    assert message.startswith(f"{spec.run_id} is finished, but ")
    assert message.endswith("no whole checkpoint is left: --resume never trains it anew")
    assert run.status() == whole.status
    train(spec, store, device="cpu", resume="never")
    assert all(torch.equal(v, whole.weights[n]) for n, v in ended(store, spec).weights.items())
