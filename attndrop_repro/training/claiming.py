"""Who trains a run, and whether there is anything left to train."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.store import checkpoint
from attndrop_repro.store.lock import Held, locked
from attndrop_repro.store.run_dir import RunDir
from attndrop_repro.training.keeping import final_weights


@contextmanager
def sole_trainer(run: RunDir) -> Iterator[None]:
    """Keeps a run to this process while the block runs.

    Where the file system has no locks, a process of this machine is known by the run's status.

    Raises:
        AttndropError: Another process trains it.
    """
    try:
        with locked(run.path / "lock"):
            status = run.status()
            other = status.get("pid") != os.getpid() and status.get("host") == socket.gethostname()
            if other and run.state() == "running":
                raise Held(f"process {status['pid']}")
            yield
    except Held as held:
        raise AttndropError(
            f"{run.run_id} is being trained by {held}: wait for it or stop it"
        ) from None


def broken(run: RunDir) -> str | None:
    """What is wrong with the weights of a run that says it is finished; None: they are whole."""
    try:
        checkpoint.check(final_weights(run))
    except AttndropError as error:
        return str(error)
    return None


def finished(run: RunDir) -> bool:
    """Whether nothing is left to do.

    Raises:
        AttndropError: The run is finished, but its weights are damaged or gone, and no checkpoint
            is left from which they could be made anew.
    """
    if run.status().get("status") != "finished":
        return False
    problem = broken(run)
    if problem is not None and checkpoint.latest(run.checkpoints).path is None:
        raise AttndropError(
            f"{run.run_id} is finished, but {problem}, and no whole checkpoint is left: "
            "--resume never trains it anew"
        )
    return problem is None
