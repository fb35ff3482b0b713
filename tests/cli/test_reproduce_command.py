"""`reproduce` and `report`: from nothing to a report; again does nothing; killed goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from attndrop_repro.store import Store

LONG = """\
name: long
title: One long training
recipes: [long.yaml]
methods: [none]
seeds: [0]
measure: [eval]
"""


def counts(cli, suite: str = "suite.yaml") -> dict[str, tuple[int, ...]]:
    planned = json.loads(cli("reproduce", "--suite", suite, "--plan", "--json").out)
    kinds = ("train", "eval", "calibrate", "attack", "gradvar")
    return {row["method"]: tuple(row[kind] for kind in kinds) for row in planned["methods"]}


def test_from_nothing_to_a_report_and_again_without_any_work(cli, tiny, monkeypatch):
    nothing = {"none": (0, 0, 0, 0, 0), "dropkey+consistency": (0, 0, 0, 0, 0)}
    assert counts(cli) == nothing
    assert not (tiny / "results").exists()
    assert "dropkey+consistency" in cli("reproduce", "--suite", "suite.yaml", "--plan").out

    ran = cli("reproduce", "--suite", "suite.yaml", "--jobs", "1")
    assert ran.code == 0, ran.err
    page = Path(ran.out.splitlines()[-1])
    assert page.is_absolute()
    assert "<html" in page.read_text()
    # the long job, of two passes, starts first; a plain line for each job
    assert "[1/10] train tiny dropkey+consistency seed 0: " in ran.err
    assert "[10/10]" in ran.err
    done = {"none": (1, 1, 1, 1, 1), "dropkey+consistency": (1, 1, 1, 1, 1)}
    assert counts(cli) == done
    assert set(Store(tiny / "results").frame()["suite"]) == {"tiny-suite"}
    assert cli("results", "verify").code == 0

    monkeypatch.setattr("multiprocessing.get_context", lambda how: pytest.fail("started a worker"))
    before = page.read_bytes()
    again = cli("reproduce", "--suite", "suite.yaml")
    assert again.code == 0
    assert again.out == f"{page}\n"
    assert again.err == "tiny-suite: all 10 jobs are done\n"
    assert page.read_bytes() == before

    assert cli("report", "--suite", "suite.yaml", "--check").code == 0
    (page.parent / "report.md").write_text("changed")
    stale = cli("report", "--suite", "suite.yaml", "--check")
    assert (stale.code, stale.out) == (1, "report.md: differs\n")
    assert cli("report", "--suite", "suite.yaml", "--out", "mine").code == 0
    assert (tiny / "mine" / "report.html").is_file()


def test_a_report_of_nothing_says_how_to_make_results(cli, tiny):
    ran = cli("report", "--suite", "suite.yaml")
    assert ran.code == 2
    assert "attndrop reproduce --suite suite.yaml" in ran.err


def test_failures_are_shown_at_the_end_with_their_log_and_the_report_is_built(cli, tiny):
    recipe = (tiny / "tiny.yaml").read_text()
    (tiny / "tiny.yaml").write_text(recipe.replace("lr: 0.01", "lr: 1.0e+30"))
    (tiny / "suite.yaml").write_text(
        "name: s\ntitle: t\nrecipes: [tiny.yaml]\nmethods: [none]\nseeds: [0]\nmeasure: [eval]\n"
    )
    ran = cli("reproduce", "--suite", "suite.yaml", "--jobs", "1")
    assert ran.code == 1
    assert Path(ran.out.splitlines()[-1]).is_file()
    failure, blocked = ran.err.splitlines()[-2:]
    assert failure.startswith("attndrop: error: train tiny none seed 0 failed: ")
    assert "not finite" in failure
    log = Path(failure.rpartition("(log: ")[2].rstrip(")"))
    assert "Traceback" in log.read_text()
    assert "1 measurement was not made" in blocked


def test_stopped_or_killed_half_way_it_goes_on(cli, tiny):
    recipe = (tiny / "tiny.yaml").read_text().replace("name: tiny", "name: long")
    recipe = recipe.replace("epochs: 2, batch", "epochs: 240, checkpoint_every: 20, batch")
    (tiny / "long.yaml").write_text(recipe)
    (tiny / "long-suite.yaml").write_text(LONG)
    store = Store(tiny / "results")

    ended = _start_and(tiny, store, signal.SIGTERM, after=40)
    assert ended.returncode == 143
    (info,) = store.runs()
    assert info.status == "interrupted"
    step = store.run_dir(info.run_id).status()["step"]

    ended = _start_and(tiny, store, signal.SIGKILL, after=step + 40)
    assert ended.returncode == -signal.SIGKILL

    ran = cli("reproduce", "--suite", "long-suite.yaml", "--jobs", "1")
    assert ran.code == 0, ran.err
    assert "train long none seed 0: goes on after epoch" in ran.err
    (info,) = store.runs()
    assert (info.status, info.epoch) == ("finished", 240)
    history = store.run_dir(info.run_id).history()
    assert [row["epoch"] for row in history] == list(range(1, 241))


def _start_and(folder: Path, store: Store, sent: signal.Signals, after: int) -> subprocess.Popen:
    """Starts the suite, sends a signal once its training is so many steps on, waits for all."""
    program = "import sys; from attndrop_repro.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "reproduce", "--suite", "long-suite.yaml"]
    process = subprocess.Popen(
        [*command, "--jobs", "1"], cwd=folder, stderr=subprocess.DEVNULL, env={**os.environ}
    )
    _until(lambda: process.poll() is not None or _step(store) >= after)
    assert process.poll() is None, "it ended by itself"
    process.send_signal(sent)
    process.wait(120)
    _until(lambda: all(info.status != "running" for info in store.runs()))
    return process


def _step(store: Store) -> int:
    return max((store.run_dir(i.run_id).status().get("step") or 0 for i in store.runs()), default=0)


def _until(condition) -> None:
    give_up = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < give_up, "gave up waiting"
        time.sleep(0.05)
