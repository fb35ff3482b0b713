"""`bench`: four kinds of benchmark, their options, what is stored, and how they are stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from attndrop_repro.store import Store


def test_bench_prints_a_list_of_methods_and_ratios(cli):
    ran = cli(
        "bench", "--recipe", "digits-vit", "--method", "dropkey", "--batch-size", "2",
        "--threads", "1", "--rounds", "3", "--no-memory", "--json",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    rows = {row["label"]: row for row in json.loads(ran.out)}
    assert rows["none"]["ratio"] == 1
    assert rows["dropkey"]["method"] == "dropkey"
    assert rows["dropkey"]["ratio"] > 0


def test_bench_wants_a_recipe_or_a_model(cli):
    ran = cli("bench", "--recipe", "digits-vit", "--model", "vit_tiny_patch16_224")
    assert ran.code == 2


def test_bench_refuses_an_unknown_method_before_it_builds_anything(cli):
    ran = cli("bench", "--method", "dropkye")
    assert ran.code == 2
    assert "did you mean 'dropkey'" in ran.err


def test_every_row_is_kept_apart_in_the_store(cli, tmp_path):
    for _ in range(2):
        ran = cli(
            "bench", "--method", "dropkey", "--batch-size", "2", "--threads", "1",
            "--rounds", "3", "--no-memory",
        )  # fmt: skip
        assert ran.code == 0, ran.err
    assert "1 thread, 3 rounds; plain against plain: " in ran.err
    frame = Store(tmp_path / "results").frame()
    ratios = frame[frame["metric"] == "step_time_ratio"]
    labels = [json.loads(detail)["label"] for detail in ratios["detail"]]
    assert sorted(labels) == ["dropkey", "none", "none (again)", "none (unfused)"]
    assert set(frame["recipe"]) == {"digits-vit"}
    assert set(frame["precision"]) == {"fp32"}


def test_attention_prints_time_and_added_memory(cli, tmp_path):
    ran = cli(
        "bench", "--attention", "16", "--heads", "2", "--width", "4", "--method", "dropkey",
        "--rounds", "3", "--json",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    plain, dropkey = json.loads(ran.out)
    assert (plain["label"], dropkey["method"]) == ("none (again)", "dropkey")
    assert dropkey["ratio"] > 0
    assert {"added_memory_mb", "memory_ratio", "milliseconds"} <= set(dropkey)
    kept = Store(tmp_path / "results").frame()
    assert set(kept["metric"]) == {"attention_time_ratio", "attention_memory_mb"}


def test_loop_and_data_train_by_a_recipe(cli, tiny):
    recipe = ("--recipe", "tiny.yaml", "--rounds", "3")
    loop = cli("bench", "--loop", *recipe, "--set", "training.batch_size=16", "--threads", "1")
    assert loop.code == 0, loop.err
    assert [line.split()[0] for line in loop.out.splitlines()[1:]] == [
        "bare", "bare", "training", "training,",
    ]  # fmt: skip
    assert "tiny, none, cpu, fp32, 1 thread, 3 rounds of 4 steps" in loop.err
    data = cli("bench", "--data", *recipe, "--method", "dropkey")
    assert data.code == 0, data.err
    assert len(data.out.splitlines()) == 1
    assert " is the limit: the loader gives " in data.out
    (found,) = json.loads(cli("bench", "--data", *recipe, "--json").out)
    assert (found["method"], found["workers_needed"]) == ("none", None)
    assert found["ratio"] == found["loader_images_per_second"] / found["model_images_per_second"]
    metrics = set(Store(tiny / "results").frame()["metric"])
    assert metrics == {
        "loop_time_ratio", "loader_images_per_second", "model_images_per_second",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--attention", "8", "--loop"], "--attention and --loop are different benchmarks"),
        (["--loop", "--data"], "--loop and --data are different benchmarks"),
        (["--attention", "8", "--recipe", "digits-vit"], "--recipe means nothing with --attention"),
        (["--attention", "8", "--no-memory"], "--memory means nothing with --attention"),
        (["--loop", "--compile"], "--compile means nothing with --loop"),
        (["--loop", "--batch-size", "4"], "--batch-size means nothing with --loop"),
        (["--data", "--model", "vit_tiny_patch16_224"], "--model means nothing with --data"),
        (["--workers", "2"], "--workers goes with --loop or --data only"),
        (["--heads", "2"], "--heads goes with --attention only"),
        (["--set", "training.lr=1"], "--set goes with --loop or --data only"),
        (["--loop", "--method", "none", "--method", "dropkey"], "give one --method"),
        (["--attention", "8", "--method", "rdrop"], "rdrop does nothing inside an attention"),
        (["--attention", "8", "--device", "gpu"], "unknown device 'gpu'"),
        (["--data", "--recipe", "vit7-cifar10", "--data-dir", "nowhere"], "nowhere"),
    ],
)
def test_what_does_not_go_together_is_one_line(cli, tmp_path, arguments, words):
    ran = cli("bench", *arguments)
    assert ran.code in (1, 2)
    assert ran.out == ""
    assert words in ran.err
    assert len(ran.err.strip().splitlines()) == 1
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("number", "code", "word", "arguments", "sign"),
    [
        (signal.SIGTERM, 143, "terminated", ["--attention", "1500"], "attention none"),
        (signal.SIGINT, 130, "interrupted", ["--no-memory", "--rounds", "9999"], "method "),
        (signal.SIGTERM, 143, "stopped: interrupted", ["--loop", "--rounds", "9999"], "loss "),
    ],
)
def test_it_can_be_stopped_and_promises_nothing(tmp_path, number, code, word, arguments, sign):
    # the whole group gets it, as from a terminal: children must not speak
    process = subprocess.Popen(
        [sys.executable, "-m", "attndrop_repro", "bench", *arguments],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if sign in line:
            break
    os.killpg(process.pid, number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == code, said
    assert out == ""
    last = [line for line in err.splitlines() if not line.startswith("bench")]
    assert len(last) == 1
    assert word in last[0]
    assert "go" not in last[0].split()


@pytest.mark.parametrize(
    ("ratio", "low", "high", "noisy"),
    [
        (1.0, 0.95, 1.05, False),
        (0.37, 0.29, 0.69, True),
        (1.0, 0.8, 1.4, True),
        (1.2, 1.2, 1.2, True),
    ],
)
def test_what_a_busy_machine_measures_is_doubted(ratio, low, high, noisy):
    from attndrop_repro.cli.benching import _noisy

    assert _noisy(ratio, low, high) is noisy


@pytest.mark.parametrize("kind", ["--loop", "--data"])
def test_epochs_mean_nothing_there(cli, kind):
    ran = cli("bench", kind, "--set", "training.epochs=2")
    assert ran.code == 2
    assert "--rounds" in ran.err
