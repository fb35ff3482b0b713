"""Resumed training is the training that was never interrupted, bit by bit (public bug P10)."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.tiny_run import Ended, Said, Steps, Stopped, ended, spec_of, trained

from attndrop_repro.config.errors import AttndropError, UsageError
from attndrop_repro.config.spec import RunSpec
from attndrop_repro.store import Store
from attndrop_repro.training import train

# checkpoints in the middle of epochs and at their ends
OFTEN = {"checkpoint_every": 0.34, "epochs": 4}

CASES: dict[str, dict[str, Any]] = {
    "none": {},
    "dropout": {"method": "dropout"},
    "dropconnect": {"method": "dropconnect"},
    "rdrop": {"method": "rdrop"},
    "hard": {"method": "attentiondrop-hard"},
    "blur": {"method": "attentiondrop-blur+consistency"},
    "learned": {"method": "attendout"},
    "explicit": {"method": "explicit-dropout"},
    "averaged": {"training": {"ema": 0.9, "select": "best"}},
    "sgd": {"training": {"optimizer": "sgd", "clip_grad": 1.0}},
    "augmented": {
        "method": "dropout",
        "training": {"augmentation": {"shift": 1, "flip": True, "mixup": 0.2, "cutmix": 0.2}},
    },
    "by image": {"training": {"augmentation": {"erasing": 0.5, "shift": 1}, "accumulate": 2}},
}


def case(name: str) -> RunSpec:
    options = CASES[name]
    training = {**OFTEN, **options.get("training", {})}
    return spec_of(options.get("method", "none"), training=training)


def killed(root: Path, spec: RunSpec, after: list[int], **options: Any) -> tuple[Ended, Steps]:
    """Dies after so many steps each time, then runs to its end; the steps of the last sitting."""
    store = Store(root)
    for steps in after:
        with pytest.raises(Stopped):
            train(spec, store, device="cpu", observe=Steps(stop_after=steps), **options)
    last = Steps()
    train(spec, store, device="cpu", observe=last, **options)
    return ended(store, spec), last


def test_a_learning_method_learns_and_is_kept(tmp_path: Path) -> None:
    spec = spec_of("attendout", training={"snapshots": [0]})
    found = trained(tmp_path, spec)
    from attndrop_repro.training.restore import load_run

    store = Store(tmp_path)
    handles = [load_run(store, spec.run_id, epoch=epoch).make_handle() for epoch in (0, None)]
    first, last = (handle.state_dict() for handle in handles)
    changed = [n for n, v in first.items() if hasattr(v, "shape") and n in last]
    assert changed
    assert any(not (first[n] == last[n]).all() for n in changed)
    assert found.learned.method_state.keys() == last.keys()


@pytest.mark.parametrize("name", CASES)
def test_killed_often_ends_the_same(tmp_path: Path, name: str) -> None:
    spec = case(name)
    whole = trained(tmp_path / "whole", spec)
    broken, last = killed(tmp_path / "broken", spec, [1, 3, 7, 8])
    assert whole.same_as(broken)
    assert len(last.losses) < 24
    count = len(last.losses)
    assert last.losses == whole.steps.losses[-count:]
    assert last.rates == whole.steps.rates[-count:]
    assert last.rows == whole.steps.rows[-count:]
    assert last.pixels == whole.steps.pixels[-count:]


def test_workers_on_or_off(tmp_path: Path) -> None:
    spec = case("by image")
    whole = trained(tmp_path / "whole", spec)
    broken, _ = killed(tmp_path / "broken", spec, [5, 9], workers=2)
    assert whole.same_as(broken)


def test_history_has_each_epoch_once_and_rates_begin_with_the_warm_up(tmp_path: Path) -> None:
    spec = case("dropout")
    broken, _ = killed(tmp_path, spec, [8, 8, 8])
    assert [row["epoch"] for row in broken.history] == [1, 2, 3, 4]
    assert [row["step"] for row in broken.history] == [6, 12, 18, 24]
    whole = trained(tmp_path / "whole", spec)
    assert whole.steps.rates[0] == spec.recipe.training.warmup_lr
    assert whole.steps.rates[6] == spec.recipe.training.lr


@pytest.mark.parametrize("damage", ["truncate", "flip", "state", "manifest", "gone"])
def test_a_damaged_checkpoint_is_passed_over_and_said(tmp_path: Path, damage: str) -> None:
    spec, said = case("dropout"), Said()
    store = Store(tmp_path / "a")
    with pytest.raises(Stopped):
        train(spec, store, device="cpu", observe=Steps(stop_after=9))
    folder = store.run_dir(spec.run_id).checkpoints
    newest = sorted(folder.glob("step-*"))[-1]
    model = newest / "model.safetensors"
    if damage == "truncate":
        model.write_bytes(model.read_bytes()[:-1])
    elif damage == "flip":
        content = bytearray(model.read_bytes())
        content[-5] ^= 1
        model.write_bytes(content)
    elif damage == "gone":
        model.unlink()
    else:
        (newest / f"{damage}.json").write_text("{")
    train(spec, store, device="cpu", progress=said)
    assert any("passed over" in line and newest.name in line for line in said.lines)
    assert any("goes on after" in line for line in said.lines)
    assert ended(store, spec).same_as(trained(tmp_path / "whole", spec))


def test_all_damaged_begins_anew_and_says_so(tmp_path: Path) -> None:
    spec, said = case("none"), Said()
    store = Store(tmp_path / "a")
    with pytest.raises(Stopped):
        train(spec, store, device="cpu", observe=Steps(stop_after=9))
    for path in store.run_dir(spec.run_id).checkpoints.glob("step-*"):
        shutil.rmtree(path)
        path.mkdir()
    train(spec, store, device="cpu", progress=said)
    assert any("begins anew" in line for line in said.lines)
    assert ended(store, spec).same_as(trained(tmp_path / "whole", spec))


def test_keeps_the_last_two_and_the_best(tmp_path: Path) -> None:
    spec = case("none")
    trained(tmp_path, spec)
    run = Store(tmp_path).run_dir(spec.run_id)
    names = sorted(path.name for path in run.checkpoints.iterdir())
    best = max(run.history(), key=lambda row: (row["validation_accuracy"], -row["epoch"]))
    assert names == [f"best-{best['step']:08d}", "step-00000022", "step-00000024"]


def test_the_best_weights_can_be_the_ones_that_count(tmp_path: Path) -> None:
    spec = spec_of(training={**OFTEN, "select": "best", "snapshots": [0, 1, 2, 3, 4]})
    trained(tmp_path, spec)
    from attndrop_repro.training.restore import load_run

    store = Store(tmp_path)
    run = store.run_dir(spec.run_id)
    best = max(run.history(), key=lambda row: (row["validation_accuracy"], -row["epoch"]))
    subject = load_run(store, spec.run_id)
    assert subject.epoch == best["epoch"]
    kept = load_run(store, spec.run_id, epoch=best["epoch"]).model.state_dict()
    assert all((value == kept[n]).all() for n, value in subject.model.state_dict().items())


def test_finished_is_said_and_never_begins_anew(tmp_path: Path) -> None:
    spec, said = spec_of(training={"epochs": 1}), Said()
    store = Store(tmp_path)
    assert not train(spec, store, device="cpu").already_finished
    steps = Steps()
    assert train(spec, store, device="cpu", progress=said, observe=steps).already_finished
    assert "finished already" in said.lines[0]
    assert steps.losses == []
    assert not train(spec, store, device="cpu", resume="never", observe=steps).already_finished
    assert len(steps.losses) == 6
    assert len(store.run_dir(spec.run_id).history()) == 1


def test_must_resume_wants_something_to_resume(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing to resume"):
        train(spec_of(), Store(tmp_path), device="cpu", resume="must")


def test_a_full_disk_is_one_line_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = case("dropout")
    store = Store(tmp_path / "a")
    calls = []

    def full(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) > 40:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(AttndropError, match="No space left") as caught:
        train(spec, store, device="cpu")
    assert "\n" not in str(caught.value)
    monkeypatch.undo()
    train(spec, store, device="cpu")
    assert ended(store, spec).same_as(trained(tmp_path / "whole", spec))
