"""What other processes do with a lock, for tests that start and kill them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from attndrop_repro.store.lock import Held, locked


def hold(path: Path, ready: Any, child: Any) -> None:
    """Takes it and sits on it; `child`, if there is one, becomes the number of a fork of it."""
    with locked(path):
        if child is not None:
            number = os.fork()
            if number == 0:
                time.sleep(60)
                os._exit(0)
            child.value = number
        ready.set()
        time.sleep(60)


def look(path: Path) -> None:
    """Leaves with 7 if it is taken, else 0."""
    try:
        with locked(path):
            os._exit(0)
    except Held:
        os._exit(7)


def compete(path: Path, start: Any, rounds: int) -> None:
    """Takes it again and again; leaves with 1 if somebody else was inside, else 0."""
    inside = path.with_name("inside")
    start.wait()
    for _ in range(rounds):
        try:
            with locked(path):
                try:
                    os.close(os.open(inside, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    os._exit(1)
                inside.unlink()
        except Held:
            pass
    os._exit(0)
