"""`attndrop runs`: lists, shows, compares and removes."""

from __future__ import annotations

import json
import shlex

import pytest

from attndrop_repro.store import Store


def run_id(store) -> str:
    (info,) = Store(store).runs()
    return info.run_id


def test_no_runs(cli, tiny):
    ran = cli("runs")
    assert (ran.code, ran.out) == (2, "")
    (tiny / "results" / "measurements").mkdir(parents=True)
    ran = cli("runs")
    assert (ran.code, ran.out, ran.err) == (0, "", "no runs in results\n")
    assert json.loads(cli("runs", "--json").out) == []
    ran = cli("runs", "show", "last")
    assert ran.code == 2
    assert "attndrop train" in ran.err


@pytest.mark.parametrize(
    "words",
    ["runs", "runs --json", "runs show last", "runs diff a b", "runs rm last --yes", "eval",
     "calibrate", "attack --eps 8/255", "gradvar", "eval --run last", "compare a b",
     "export --run last --out f", "results export", "results verify", "results compact",
     "report", "bound --run last"],
)  # fmt: skip
def test_a_mistyped_place_is_no_empty_store(cli, tiny, store, words):
    ran = cli("--results", "reslts", *words.split())
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("attndrop: error: ")
    assert len(ran.err.splitlines()) == 1
    assert "reslts" in ran.err
    assert not (tiny / "reslts").exists()


def test_the_list(cli, store):
    ran = cli("runs")
    assert run_id(store) in ran.out
    assert "finished  100.0 %" in ran.out
    (listed,) = json.loads(cli("runs", "--json").out)
    assert listed["run_id"] == run_id(store)
    assert (listed["status"], listed["method"], listed["seed"]) == ("finished", "none", 0)


def test_one_run_by_last_by_beginning_and_as_json(cli, store):
    assert "finished" in cli("runs", "show", "last").out
    assert "train_seconds" in cli("runs", "show", "tiny--none").out
    shown = json.loads(cli("runs", "show", "last", "--json").out)
    assert shown["spec"]["seed"] == 0
    assert len(shown["history"]) == 2
    assert {row["metric"] for row in shown["measurements"]} >= {"train_seconds"}
    assert "data" in shown["provenance"]


def test_an_interrupted_run_says_how_to_go_on_and_that_command_does(cli, store):
    Store(store).run_dir(run_id(store)).set_status("interrupted", message="by hand", epoch=2)
    listed = cli("runs")
    assert "interrupted" in listed.out
    assert "1 can go on" in listed.err
    shown = cli("runs", "show", "last")
    (line,) = [line for line in shown.out.splitlines() if line.startswith("to go on")]
    start = shown.out.index("attndrop --results")
    command = shlex.split(" ".join(shown.out[start:].split("\n\n")[0].split()))
    assert line
    ran = cli(*command[1:])
    assert ran.code == 0, ran.err
    assert ran.out.strip() == run_id(store)


def test_the_difference_of_two_runs(cli, store):
    assert cli("train", "--recipe", "tiny.yaml", "--method", "dropkey", "--seed", "1").code == 0
    ran = cli("runs", "diff", "tiny--none", "tiny--dropkey", "--json")
    fields = {row["field"]: (row["first"], row["second"]) for row in json.loads(ran.out)}
    assert fields["method"] == ("none", "dropkey")
    assert fields["seed"] == (0, 1)
    assert fields["settings.dropkey.p"] == (None, 0.1)
    assert "recipe.training.lr" not in fields
    assert "settings.dropkey.p" in cli("runs", "diff", "tiny--none", "tiny--dropkey").out
    assert cli("runs", "diff", "tiny--none", "tiny--none").err == "they do not differ\n"


def test_removal_asks_first(cli, store, monkeypatch):
    name = run_id(store)
    refused = cli("runs", "rm", "last")
    assert refused.code == 2
    assert "--yes" in refused.err
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdin", None)  # closed, as by <&-
        assert cli("runs", "rm", "last").code == 2
    assert cli("runs", "rm", name, "--yes").code == 0
    assert Store(store).runs() == []
    assert len(Store(store).frame()) == 0


def test_a_run_at_work_is_not_removed(cli, store):
    Store(store).run_dir(run_id(store)).set_status("running")
    ran = cli("runs", "rm", "last", "--yes")
    assert ran.code == 2
    assert "is running" in ran.err
    assert Store(store).runs()


@pytest.mark.parametrize("name", ["nosuch", "../runs", ""])
def test_names_that_are_none(cli, store, name):
    ran = cli("runs", "show", name)
    assert ran.code == 2
    assert ran.err.count("\n") == 1
