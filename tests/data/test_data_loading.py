"""Loader workers end with the training that they work for, however it ends."""

from __future__ import annotations

import os
import signal
import time

from support.orphans import FAR, boss


def test_the_worker_of_a_killed_training_ends_where_a_fork_server_started_it() -> None:
    number, ready = FAR.Value("i"), FAR.Event()
    process = FAR.Process(target=boss, args=(number, ready))
    process.start()
    assert ready.wait(120)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    deadline = time.monotonic() + 60
    while os.path.exists(f"/proc/{number.value}") and time.monotonic() < deadline:  # noqa: PTH110
        time.sleep(0.05)
    ended = not os.path.exists(f"/proc/{number.value}")  # noqa: PTH110
    if not ended:
        os.kill(number.value, signal.SIGKILL)
    assert ended
