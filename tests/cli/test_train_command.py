"""`attndrop train`: dry runs, seeds, resuming, what is printed where."""

from __future__ import annotations

import yaml


def test_a_dry_run_prints_a_recipe_that_can_be_used_and_writes_nothing(cli, tiny):
    ran = cli(
        "train", "--recipe", "tiny.yaml", "--dry-run", "--method", "dropkey", "--set", "p=0.3"
    )
    assert ran.code == 0
    head = [line for line in ran.out.splitlines() if line.startswith("#")]
    assert head[0].startswith("# run:        tiny--dropkey--s0--")
    assert head[1] == "# steps:      4 (2 epochs of 2)"
    assert head[2].startswith("# parameters: ")
    assert "a run (cpu, 1 thread; measured on" in head[3]
    resolved = yaml.safe_load(ran.out)
    assert resolved["method"] == "dropkey"
    assert resolved["settings"]["dropkey"]["p"] == 0.3
    assert not (tiny / "results").exists()

    (tiny / "again.yaml").write_text(ran.out)
    again = cli("train", "--recipe", "again.yaml", "--dry-run")
    assert again.out.splitlines()[0] == head[0]  # the same run: same hash


def test_training_prints_run_ids_on_stdout_and_everything_else_on_stderr(cli, tiny):
    ran = cli("train", "--recipe", "tiny.yaml", "--seed", "1", "--seed", "2")
    assert ran.code == 0
    first, second = ran.out.splitlines()
    assert first.startswith("tiny--none--s1--")
    assert second.startswith("tiny--none--s2--")
    assert "4/4" in ran.err
    assert (tiny / "results" / "runs" / first / "weights").is_dir()


def test_a_finished_run_is_said_to_be_so(cli, store):
    ran = cli("train", "--recipe", "tiny.yaml")
    assert ran.code == 0
    assert "finished already" in ran.err
    assert ran.err.count("\n") == 1


def test_must_resume_what_is_not_there_is_an_error(cli, tiny):
    ran = cli("--results", "elsewhere", "train", "--recipe", "tiny.yaml", "--resume", "must")
    assert ran.code == 2
    assert "nothing to resume" in ran.err


def test_results_come_from_the_option_then_the_environment(cli, tiny, monkeypatch):
    monkeypatch.setenv("ATTNDROP_RESULTS", "from-environment")
    assert cli("train", "--recipe", "tiny.yaml", "--set", "training.epochs=1",
               "--set", "training.snapshots=[]",
               "--set", "evaluation.gradient_variance.epochs=[]").code == 0  # fmt: skip
    assert (tiny / "from-environment" / "runs").is_dir()
    assert "no results store at given:" in cli("--results", "given", "runs").err


def test_weights_to_start_from_that_are_not_there(cli, tiny):
    ran = cli("train", "--recipe", "tiny.yaml", "--init-from", "no.safetensors")
    assert ran.code == 1
    assert "no.safetensors" in ran.err
    assert not (tiny / "results").exists()


def test_quiet_is_quiet(cli, tiny):
    ran = cli("--quiet", "train", "--recipe", "tiny.yaml")
    assert ran.code == 0
    assert ran.err == ""


def test_short_options_are_recipe_fields(cli, tiny):
    ran = cli("train", "--recipe", "tiny.yaml", "--precision", "fp64", "--compile", "--dry-run")
    assert ran.code == 0
    assert "precision: fp64" in ran.out
    assert "compile: true" in ran.out
    assert "compile: false" in cli("train", "--recipe", "tiny.yaml", "--dry-run").out
