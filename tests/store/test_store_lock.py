"""A lock that one process has, and that nothing stale ever keeps from the next."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from support.locking import compete, hold, look

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.store.lock import Held, locked
from attndrop_repro.store.merge import merge
from attndrop_repro.store.store import Store

context = multiprocessing.get_context("forkserver")


def held_by(path: Path, child: Any = None) -> Any:
    ready = context.Event()
    process = context.Process(target=hold, args=(path, ready, child))
    process.start()
    ready.wait()
    return process


def test_it_says_who_has_it_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run" / "lock"
    process = held_by(path)
    for _ in range(2):  # to be refused takes nothing away
        with pytest.raises(Held, match=f"^process {process.pid}$"), locked(path):
            pass
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert path.exists()  # what a killed holder leaves
    with locked(path) as real:
        assert real
    assert not path.exists()


def test_a_child_of_a_killed_holder_does_not_hold_it(tmp_path: Path) -> None:
    child = context.Value("i")
    process = held_by(tmp_path / "lock", child)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    with locked(tmp_path / "lock") as real:
        assert real
    os.kill(child.value, signal.SIGKILL)  # it was there all the time


def test_twice_in_one_process(tmp_path: Path) -> None:
    with locked(tmp_path / "lock"):
        with pytest.raises(Held, match=f"process {os.getpid()}"), locked(tmp_path / "lock"):
            pass
        process = context.Process(target=look, args=(tmp_path / "lock",))
        process.start()
        process.join()
        assert process.exitcode == 7  # and it was not let go on the way


def test_never_two_at_a_time(tmp_path: Path) -> None:
    start = context.Barrier(4)
    processes = [
        context.Process(target=compete, args=(tmp_path / "lock", start, 300)) for _ in range(4)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0, 0]


def test_a_holder_on_another_machine_and_one_that_has_not_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(*arguments: object) -> None:
        raise OSError(errno.EAGAIN, "taken")

    monkeypatch.setattr(fcntl, "lockf", taken)
    (tmp_path / "lock").write_text('{"host": "far-away", "pid": 7}')
    with pytest.raises(Held, match=r"^process 7 on far-away$"), locked(tmp_path / "lock"):
        pass
    (tmp_path / "lock").write_text("")
    with pytest.raises(Held, match=r"^another process$"), locked(tmp_path / "lock"):
        pass


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*arguments: object) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "lockf", none)
    with locked(tmp_path / "lock") as real:
        assert not real


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(AttndropError, match=r"cannot write .*lock: "),
        locked(tmp_path / "file" / "lock"),
    ):
        pass


def test_a_merge_takes_no_lock_along(tmp_path: Path) -> None:
    from support.tiny_run import spec_of

    spec = spec_of()
    run = Store(tmp_path / "there").begin_run(spec, {})
    (run.path / "lock").write_text("")
    merge(Store(tmp_path / "here"), [Store(tmp_path / "there")])
    copy = Store(tmp_path / "here").run_dir(spec.run_id)
    assert copy.exists()
    assert not (copy.path / "lock").exists()
