"""Two processes train as one does (public bug P16)."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
from support.sitting import context, meet, together
from support.tiny_run import ended, spec_of, trained

from attndrop_repro.store import Store

EXACT = {"runtime": {"precision": "fp64"}}


def steps_of(out: Path, rank: int) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((out / f"{rank}.json").read_text())
    return content


@pytest.mark.parametrize(
    ("method", "training"),
    [
        ("none", {"ema": 0.9, "clip_grad": 1.0, "accumulate": 2}),
        ("explicit-dropout", {}),
        ("attentiondrop-blur+consistency", {}),
    ],
)
def test_two_processes_give_the_losses_of_one(
    tmp_path: Path, method: str, training: dict[str, Any]
) -> None:
    # 101 validation images: shares are uneven
    data = {"validation": 0.075}
    spec = spec_of(method, data=data, training={"epochs": 2, **training}, **EXACT)
    alone = trained(tmp_path / "one", spec)
    two = together(tmp_path / "two", spec, tmp_path / "out")
    assert two.end() == [0, 0], two.errors()
    first, second = (steps_of(tmp_path / "out", rank) for rank in (0, 1))
    means = [(a + b) / 2 for a, b in zip(first["losses"], second["losses"], strict=True)]
    assert means == pytest.approx(alone.steps.losses, abs=1e-6)
    assert first["losses"] != second["losses"]
    assert [a + b for a, b in zip(first["rows"], second["rows"], strict=True)] == alone.steps.rows
    both = ended(Store(tmp_path / "two"), spec)
    for name, value in alone.weights.items():
        assert (value - both.weights[name]).abs().max() < 1e-6, name
    for mine, theirs in zip(alone.history, both.history, strict=True):
        assert mine["validation_accuracy"] == theirs["validation_accuracy"]
        assert mine["train_loss"] == pytest.approx(theirs["train_loss"], abs=1e-6)
    assert len(Store(tmp_path / "two").frame(dedupe=False)) == 2  # only one process wrote
    assert alone.steps.rows[:6] != alone.steps.rows[6:]


def test_masks_differ_by_process(tmp_path: Path) -> None:
    spec = spec_of("dropout", data={"train_images": 2}, training={"batch_size": 2, "epochs": 1})
    job = together(tmp_path, spec, tmp_path / "out")
    assert job.end() == [0, 0], job.errors()
    run = Store(tmp_path).run_dir(spec.run_id)
    from attndrop_repro.training.keeping import Keeper

    found, _ = Keeper(run, 1).latest()
    assert found is not None
    assert not (found.tensors["regulariser/0/cpu"] == found.tensors["regulariser/1/cpu"]).all()


def test_two_processes_killed_go_on_to_the_same_end(tmp_path: Path) -> None:
    spec = spec_of("dropout", training={"epochs": 4, "checkpoint_every": 0.5}, **EXACT)
    whole = together(tmp_path / "whole", spec, tmp_path / "out")
    assert whole.end() == [0, 0], whole.errors()
    killed = together(tmp_path / "a", spec, tmp_path / "killed", dies={1: 10})
    # the other one notices that its peer is gone and ends in an error by itself
    assert killed.end() == [1, -signal.SIGKILL]
    assert "lost contact with another process of this job" in killed.errors()
    assert "it goes on after epoch 1 and 3 steps (step 9)" in killed.errors()
    assert Store(tmp_path / "a").run_dir(spec.run_id).status()["status"] == "failed"
    again = together(tmp_path / "a", spec, tmp_path / "out")
    assert again.end() == [0, 0], again.errors()
    assert ended(Store(tmp_path / "a"), spec).same_as(ended(Store(tmp_path / "whole"), spec))


def test_a_restarted_job_is_not_misled_by_its_last_attempt() -> None:
    """torchrun's store still has the address of the attempt that was killed."""
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))
        agent = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        agent.set("attndrop/store", str(dead.getsockname()[1]))
        processes = [context().Process(target=meet, args=(r, agent.port)) for r in (1, 0)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
    assert [process.exitcode for process in processes] == [2, 2]


def test_one_process_can_go_on_where_two_stopped(tmp_path: Path) -> None:
    spec = spec_of(training={"epochs": 4, "checkpoint_every": 0.5}, **EXACT)
    killed = together(tmp_path / "a", spec, tmp_path / "out", dies={0: 10, 1: 10})
    assert -signal.SIGKILL in killed.end()
    found = trained(tmp_path / "a", spec)
    assert len(found.steps.losses) == 24 - 9
    whole = trained(tmp_path / "whole", spec)
    for mine, theirs in zip(whole.history, found.history, strict=True):
        assert mine["train_loss"] == pytest.approx(theirs["train_loss"], abs=1e-6)


def test_micro_batches_without_an_image_still_meet_the_other_process(tmp_path: Path) -> None:
    # six images for two processes: the last of four micro-batches is empty in both
    spec = spec_of(data={"train_images": 6}, training={"epochs": 4, "accumulate": 4}, **EXACT)
    alone = trained(tmp_path / "one", spec)
    two = together(tmp_path / "two", spec, tmp_path / "out")
    assert two.end() == [0, 0], two.errors()
    both = ended(Store(tmp_path / "two"), spec)
    for name, value in alone.weights.items():
        assert (value - both.weights[name]).abs().max() < 1e-6, name
