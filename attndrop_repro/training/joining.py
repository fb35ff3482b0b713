"""Meeting the other processes of a job, also after a restart.

torchrun keeps one key-value store for all its attempts, in which the addresses of dead processes
stay behind (torch 2.14), so a job that is restarted may look for them in vain. Here every attempt
has a store of its own, kept by its first process; torchrun's only says where that one is.
"""

from __future__ import annotations

import os
import time
from datetime import timedelta

import torch
from torch.distributed import DistError, Store, TCPStore  # type: ignore[attr-defined]

from attndrop_repro.config.errors import AttndropError

_KEY = "attndrop/store"
_PATIENCE_SECONDS = 300.0
_TRY = timedelta(seconds=2)


def join(device: str) -> None:
    """Joins the process group of a job started by torchrun; does nothing in any other process.

    Args:
        device: As chosen, "cpu" or "cuda".

    Raises:
        AttndropError: The first process did not come within five minutes.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return
    if torch.distributed.is_initialized() or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    backend = "nccl" if device == "cuda" else "gloo"
    torch.distributed.init_process_group(
        backend, store=_own_store(rank, world), rank=rank, world_size=world
    )


def _own_store(rank: int, world: int) -> Store:
    host = os.environ["MASTER_ADDR"]
    board = TCPStore(host, int(os.environ["MASTER_PORT"]), is_master=False)
    if rank == 0:
        store = TCPStore(host, 0, world, is_master=True, wait_for_workers=False)
        board.set(_KEY, str(store.port))
        return store
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            board.wait([_KEY], _TRY)
            port = int(board.get(_KEY))
            store = TCPStore(
                host, port, world, is_master=False, timeout=_TRY, wait_for_workers=False
            )
        except (DistError, RuntimeError):
            time.sleep(0.2)  # the port of an attempt that is over; the new one comes
        else:
            store.set_timeout(timedelta(minutes=30))
            return store
    raise AttndropError("the first process of this job did not come: start the job again")
