"""Real processes, killed for real: what they leave behind is gone on from, bit by bit."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest
from support.sitting import started, until_step
from support.tiny_run import ended, spec_of, trained

from attndrop_repro.store import Store
from attndrop_repro.training import train

LONG = {"epochs": 8, "checkpoint_every": 0.34, "snapshots": [0, 5]}


@pytest.mark.parametrize("method", ["dropout", "attentiondrop-blur+consistency"])
def test_sigkill_again_and_again(tmp_path: Path, method: str) -> None:
    spec = spec_of(method, training=LONG)
    whole = trained(tmp_path / "whole", spec)
    root, draw = tmp_path / "killed", random.Random(method)
    step = kills = 0
    while step < 36:
        step += draw.randint(3, 12)
        process = started(root, spec)
        until_step(root, spec, step, process)
        process.join(draw.random() * 0.02)  # somewhere in the writing, or after
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        process.join()
    assert kills >= 3
    train(spec, Store(root), device="cpu")
    assert ended(Store(root), spec).same_as(whole)
    assert [row["epoch"] for row in whole.history] == list(range(1, 9))


@pytest.mark.parametrize(
    ("number", "code", "workers"),
    [(signal.SIGTERM, 143, 0), (signal.SIGTERM, 143, 2), (signal.SIGINT, 130, 0)],
)
def test_signals_leave_a_checkpoint(
    tmp_path: Path, number: signal.Signals, code: int, workers: int
) -> None:
    # no checkpoint is due before the end: the one that is found was written for the signal
    training = {**LONG, "epochs": 20, "checkpoint_every": 100, "snapshots": [1]}
    if workers:
        training["augmentation"] = {"erasing": 0.5}
    spec = spec_of("dropout", training=training)
    process = started(tmp_path / "a", spec, workers=workers)
    run = Store(tmp_path / "a").run_dir(spec.run_id)
    while not run.snapshot(1).exists() and process.is_alive():
        process.join(0.005)
    os.kill(process.pid, number)
    process.join()
    assert process.exitcode == code
    (checkpoint,) = run.checkpoints.glob("step-*")
    status = run.status()
    assert status["status"] == "interrupted"
    assert status["step"] == int(checkpoint.name.removeprefix("step-"))
    train(spec, Store(tmp_path / "a"), device="cpu")
    assert ended(Store(tmp_path / "a"), spec).same_as(trained(tmp_path / "whole", spec))
