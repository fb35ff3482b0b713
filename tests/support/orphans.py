"""A trainer and its loader worker, for a test that kills the trainer."""

from __future__ import annotations

import multiprocessing
import time
from typing import Any

FAR = multiprocessing.get_context("forkserver")


def work(ready: Any) -> None:
    """A loader worker with nothing to do."""
    from attndrop_repro.data.loading import _quiet

    _quiet(0)
    ready.set()
    time.sleep(600)


def boss(number: Any, ready: Any) -> None:
    """Starts a worker through a fork server of its own, and waits to be killed."""
    worker = FAR.Process(target=work, args=(ready,))
    worker.start()
    number.value = worker.pid
    worker.join()
