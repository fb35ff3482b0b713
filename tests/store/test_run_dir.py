"""A run's folder: what it says of itself, and whether the run is alive."""

import json
import os
import socket
import subprocess
import sys

import pytest

from attndrop_repro.config.errors import AttndropError, UsageError
from attndrop_repro.config.load import load_recipe
from attndrop_repro.store.run_dir import RunDir
from attndrop_repro.store.store import Store


@pytest.fixture
def run(make):
    store, run_id = make()
    return store.run_dir(run_id)


def test_what_is_written_at_the_start(run, spec):
    assert run.spec() == spec()
    assert load_recipe(run.path / "recipe.yaml") == spec().resolved_recipe
    assert run.provenance() == {"code_version": "0.1.0"}
    status = run.status()
    assert status["status"] == "running"
    assert (status["pid"], status["host"]) == (os.getpid(), socket.gethostname())
    assert run.state() == "running"


def test_begun_again_notes_what_is_different(run, spec):
    run.begin(spec(), {"code_version": "0.1.0"})
    assert "resumed" not in run.provenance()
    for _ in range(2):
        run.begin(spec(), {"code_version": "0.2.0"})
    run.begin(spec(), {"code_version": "0.3.0"})
    assert run.provenance() == {
        "code_version": "0.1.0",
        "resumed": [{"code_version": "0.2.0"}, {"code_version": "0.3.0"}],
    }


def test_rows_after_resuming_have_the_code_version_of_then(make, spec):
    store, run_id = make()
    for version in ("0.1.0", "0.2.0"):
        store.begin_run(spec(), {"code_version": version})
        store.write(run_id, [{"metric": "accuracy", "value": 0.5, "detail": {"v": version}}])
    assert store.frame(dedupe=False)["code_version"].tolist() == ["0.1.0", "0.2.0"]


def test_another_run_of_the_same_name_is_refused(run, spec):
    with pytest.raises(AttndropError, match="holds another run") as error:
        run.begin(spec(label_noise=0.5), {})
    assert "\n" not in str(error.value)
    assert run.spec() == spec()


def test_status_keeps_fields_and_drops_old_messages(run):
    run.set_status("failed", epoch=3, message="loss is not finite")
    assert run.status()["message"] == "loss is not finite"
    run.set_status("interrupted", step=5)
    assert (run.status()["epoch"], run.status()["step"]) == (3, 5)
    run.set_status("running")
    assert "message" not in run.status()


def test_heartbeats_are_few(run):
    run.set_status("running", step=0)
    run.heartbeat(step=1)
    assert run.status()["step"] == 0
    run.heartbeat(step=2, force=True)
    assert run.status()["step"] == 2


def test_a_run_whose_process_is_gone_is_dead(run):
    done = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    content = {**run.status(), "pid": int(done.stdout)}
    (run.path / "status.json").write_text(json.dumps(content))
    assert run.state() == "dead"


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ({"born": "1"}, "dead"),  # the number was used again
        ({"pid": 0}, "dead"),
        ({"pid": "x"}, "dead"),
        ({"host": "elsewhere"}, "running"),
        ({"host": "elsewhere", "updated_at": "2001-01-01T00:00:00.000000+00:00"}, "dead"),
        ({"host": "elsewhere", "updated_at": "?"}, "dead"),
        ({"status": "finished", "pid": 0}, "finished"),
    ],
)
def test_states(run, change, state):
    (run.path / "status.json").write_text(json.dumps({**run.status(), **change}))
    assert run.state() == state


def test_history_survives_a_kill_in_the_middle_of_a_row(run):
    run.append_history({"epoch": 1, "loss": 0.1})
    with (run.path / "history.jsonl").open("ab") as file:
        file.write(b'{"epoch": 2, "lo')
    assert run.history() == [{"epoch": 1, "loss": 0.1}]
    run.append_history({"epoch": 2, "loss": float("nan")})
    rows = run.history()
    assert [row["epoch"] for row in rows] == [1, 2]
    assert rows[1]["loss"] != rows[1]["loss"]


def test_history_goes_back_to_a_checkpoint(run):
    assert run.history() == []
    for epoch in (1, 2, 3):
        run.append_history({"epoch": epoch})
    run.keep_history(lambda row: row["epoch"] <= 2)
    run.keep_history(lambda row: True)
    run.append_history({"epoch": 3, "again": True})
    assert run.history() == [{"epoch": 1}, {"epoch": 2}, {"epoch": 3, "again": True}]


def test_snapshots(run):
    assert run.snapshots() == []
    for epoch in (10, 0):
        run.snapshot(epoch).mkdir(parents=True)
    assert run.snapshots() == [0, 10]
    assert run.snapshot(10).name == "epoch-0010"


def test_a_folder_in_which_no_run_has_begun(tmp_path):
    run = RunDir(tmp_path / "x")
    assert not run.exists()
    assert run.status() == run.provenance() == {}
    assert run.state() == "new"
    with pytest.raises(AttndropError, match="no run has begun"):
        run.spec()


def test_list_of_runs(make, spec):
    store, first = make(seed=0)
    _, second = make(seed=1)
    _, third = make(seed=2)
    store.run_dir(second).set_status("finished", epoch=4, best=0.9)
    store.run_dir(third).set_status("failed", step=5, steps=20, message="disk full")
    store.run_dir(first).set_status("interrupted", epoch=1)
    (store.root / "runs" / "broken").mkdir()
    broken, two, three, one = store.runs()
    assert (broken.run_id, broken.status, broken.spec) == ("broken", "damaged", None)
    assert (two.status, two.epoch, two.best, two.progress) == ("finished", 4, 0.9, 1.0)
    assert (three.status, three.progress, three.message) == ("failed", 0.25, "disk full")
    assert (one.run_id, one.progress, one.spec) == (first, 0.25, spec(seed=0))


def test_finding_runs(make):
    store, first = make(seed=1)
    _, second = make(seed=2)
    assert store.find_run("last").run_id == second
    store.run_dir(first).set_status("finished")
    assert store.find_run("last").run_id == first
    assert store.find_run(second).run_id == second
    assert store.find_run("tiny--none--s2").run_id == second
    with pytest.raises(UsageError, match="begins the names of 2 runs"):
        store.find_run("tiny")
    with pytest.raises(UsageError, match="did you mean"):
        store.find_run(first[:-1] + "z")
    with pytest.raises(UsageError):
        store.find_run("")


def test_finding_runs_where_there_are_none(tmp_path):
    with pytest.raises(UsageError, match="there is no run"):
        Store(tmp_path).find_run("last")


def test_history_reaches_the_disk_when_a_checkpoint_is_to_count_on_it(tmp_path, monkeypatch):
    run = RunDir(tmp_path / "run")
    run.sync_history()  # nothing to sync
    synced = []
    monkeypatch.setattr("attndrop_repro.store.run_dir.sync", synced.append)
    run.append_history({"epoch": 1})
    assert synced == []
    run.sync_history()
    assert synced == [tmp_path / "run" / "history.jsonl"]
