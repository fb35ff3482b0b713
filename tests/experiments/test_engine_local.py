"""The local engine: order, failures, dead workers, interruption. Jobs are toys without torch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from attndrop_repro.experiments.engine_local import run

TOYS = """
import os, signal, sys, time
from dataclasses import dataclass
from pathlib import Path
from attndrop_repro.config.errors import AttndropError


@dataclass(frozen=True)
class Toy:
    key: str
    do: str = "ok"
    after: tuple = ()
    cost: float = 1.0


def perform(job, progress):
    folder = Path(os.environ["TOY_FOLDER"])
    with (folder / "order").open("a") as file:
        file.write(f"{job.key} {os.getpid()}\\n")
    if job.do == "known":
        raise AttndropError("the disk is full: make room")
    if job.do == "unknown":
        print("some output")
        raise ValueError("three\\nlines\\nlong")
    if job.do == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if job.do == "exit":
        os._exit(7)
    if job.do == "report":
        for step in range(3):
            progress.update(step + 1, 3, loss=0.5)
        progress.say("half way")
    if job.do == "sleep":
        try:
            (folder / f"{job.key}.pid").write_text(str(os.getpid()))
            time.sleep(60)
        finally:
            progress.say("no longer heard")
            (folder / f"{job.key}.checkpoint").write_text("saved")
"""


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "engine_toys.py").write_text(TOYS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("TOY_FOLDER", str(tmp_path))
    import engine_toys

    yield engine_toys
    sys.modules.pop("engine_toys")


@dataclass
class Watch:
    events: list[tuple] = field(default_factory=list)

    def started(self, job):
        self.events.append(("started", job.key))

    def progress(self, job, done, total, fields):
        self.events.append(("progress", job.key, done, total, fields))

    def said(self, job, message):
        self.events.append(("said", job.key, message))

    def finished(self, job, seconds):
        self.events.append(("finished", job.key))

    def failed(self, job, error, log):
        self.events.append(("failed", job.key, error))


def go(toys, tmp_path, jobs, workers=1):
    watch = Watch()
    outcome = run(
        jobs,
        toys.perform,
        workers=workers,
        log=lambda job: tmp_path / "logs" / f"{job.key}.log",
        observer=watch,
    )
    return outcome, watch.events


def ran(tmp_path: Path) -> list[str]:
    return [line.split()[0] for line in (tmp_path / "order").read_text().splitlines()]


def test_no_jobs_start_no_worker(toys, tmp_path, monkeypatch):
    monkeypatch.setattr("multiprocessing.get_context", lambda how: pytest.fail("started a worker"))
    outcome, events = go(toys, tmp_path, [])
    assert outcome.done == outcome.failures == outcome.blocked == ()
    assert events == []


def test_long_jobs_first_but_after_what_they_need_in_one_warm_process(toys, tmp_path):
    jobs = [
        toys.Toy("short", cost=1),
        toys.Toy("measure", after=("long",), cost=99),
        toys.Toy("long", do="report", cost=5),
        toys.Toy("also", after=("not-among-these",), cost=2),
    ]
    outcome, events = go(toys, tmp_path, jobs)
    assert ran(tmp_path) == ["long", "measure", "also", "short"]
    assert len({line.split()[1] for line in (tmp_path / "order").read_text().splitlines()}) == 1
    assert {job.key for job in outcome.done} == {"short", "measure", "long", "also"}
    assert ("progress", "long", 3, 3, {"loss": 0.5}) in events
    assert ("said", "long", "half way") in events
    assert not list((tmp_path / "logs").iterdir())  # an empty log is not kept


def test_failures_stop_only_what_needs_them_and_keep_their_log(toys, tmp_path):
    jobs = [
        toys.Toy("known", do="known", cost=9),
        toys.Toy("unknown", do="unknown", cost=8),
        toys.Toy("needs", after=("known",)),
        toys.Toy("needs-needs", after=("needs",)),
        toys.Toy("fine"),
    ]
    outcome, _ = go(toys, tmp_path, jobs)
    assert [job.key for job in outcome.done] == ["fine"]
    assert [job.key for job in outcome.blocked] == ["needs", "needs-needs"]
    known, unknown = outcome.failures
    assert known.error == "the disk is full: make room"
    assert unknown.error == "ValueError: three lines long"
    assert "some output" in unknown.log.read_text()
    assert "Traceback" in unknown.log.read_text()


def test_a_dead_worker_fails_its_job_and_is_replaced(toys, tmp_path):
    jobs = [toys.Toy("kill", do="kill", cost=3), toys.Toy("exit", do="exit", cost=2)]
    outcome, _ = go(toys, tmp_path, [*jobs, toys.Toy("fine")])
    killed, gone = outcome.failures
    assert "SIGKILL" in killed.error
    assert "memory" in killed.error
    assert "exit status 7" in gone.error
    assert [job.key for job in outcome.done] == ["fine"]


MAIN = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import engine_toys
from test_watch import Watch
from attndrop_repro.cli.entry import _sigterm_raises
from attndrop_repro.experiments.engine_local import run

if __name__ == "__main__":
    with _sigterm_raises():
        run([engine_toys.Toy("a", do="sleep"), engine_toys.Toy("b", do="sleep")],
            engine_toys.perform, workers=2, observer=Watch(),
            log=lambda job: Path(sys.argv[1]) / f"{job.key}.log")
"""

WATCH = """
class Watch:
    def __getattr__(self, name):
        return lambda *args: None
"""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_the_parent_and_an_interrupted_job_unwinds(toys, tmp_path, sent):
    (tmp_path / "main.py").write_text(MAIN)
    (tmp_path / "test_watch.py").write_text(WATCH)
    parent = subprocess.Popen(
        [sys.executable, str(tmp_path / "main.py"), str(tmp_path)],
        stderr=subprocess.DEVNULL,
        # a shell's background jobs ignore SIGINT, and would hand that on
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    pids = [tmp_path / "a.pid", tmp_path / "b.pid"]
    _until(lambda: all(path.exists() and path.read_text() for path in pids))
    parent.send_signal(sent)
    assert parent.wait(60) != 0
    _until(lambda: not any(_alive(int(path.read_text())) for path in pids))
    if sent != signal.SIGKILL:
        assert (tmp_path / "a.checkpoint").read_text() == "saved"
        assert (tmp_path / "b.checkpoint").read_text() == "saved"


def _until(condition) -> None:
    give_up = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up, "gave up waiting"
        time.sleep(0.05)


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return not Path("/proc").exists()
    return state != "Z"
