"""A training in a process of its own, which a test may kill."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from pathlib import Path
from typing import Any

from attndrop_repro.config.spec import RunSpec
from attndrop_repro.store import Store


def sit(root: str, spec: str, options: dict[str, Any]) -> None:
    """Trains to the end; leaves with the status that a signal asks for."""
    from attndrop_repro.training import Interrupted, train

    sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 - a killed process owes no traceback
    os.fsync = lambda descriptor: None  # a kill is no power cut
    try:
        train(RunSpec.from_json(spec), Store(root), device="cpu", **options)
    except Interrupted as interruption:
        os._exit(interruption.exit_code)


def context() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["attndrop_repro.training", "timm", "accelerate", "sklearn"])
    return context


def started(root: Path, spec: RunSpec, **options: Any) -> Any:
    """Starts a training in a fresh process that need not import torch again."""
    process = context().Process(target=sit, args=(str(root), spec.to_json(), options))
    process.start()
    return process


def until_step(root: Path, spec: RunSpec, step: int, process: Any) -> None:
    """Waits until a checkpoint at or after a step is being written, or the process ends."""
    folder = Store(root).run_dir(spec.run_id).checkpoints
    while process.is_alive():
        names = [path.name for path in folder.glob("*step-*")] if folder.exists() else []
        if any(int(name.rpartition("-")[2]) >= step for name in names):
            return
        time.sleep(0.001)


def sit_together(rank: int, world: int, port: int, root: str, spec: str, out: str) -> None:
    """One of several processes, as torchrun starts them; its steps go to ``out/<rank>.json``."""
    import json

    from support.tiny_run import Steps

    from attndrop_repro.training import train

    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world}
    os.environ.update({name: str(value) for name, value in place.items()})
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1")
    steps = Steps()
    train(RunSpec.from_json(spec), Store(root), device="cpu", observe=steps)
    (Path(out) / f"{rank}.json").write_text(json.dumps(steps.__dict__))


def meet(rank: int, port: int) -> None:
    """Joins a job as torchrun's workers do; leaves with how many are in it."""
    import torch

    from attndrop_repro.training.joining import join

    os.environ.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    join("cpu")
    total = torch.ones(())
    torch.distributed.all_reduce(total)
    os._exit(int(total))


def together(root: Path, spec: RunSpec, out: Path, world: int = 2) -> list[Any]:
    """Starts a training in several processes; returns them."""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    out.mkdir(parents=True, exist_ok=True)
    made = context()
    processes = [
        made.Process(
            target=sit_together, args=(rank, world, port, str(root), spec.to_json(), str(out))
        )
        for rank in range(world)
    ]
    for process in processes:
        process.start()
    return processes


def sit_at_once(start: Any, root: str, spec: str, told: Any) -> None:
    """Trains when all others are ready to; tells how it ended and how many steps it made."""
    from support.tiny_run import Said, Steps

    from attndrop_repro.config.errors import AttndropError
    from attndrop_repro.training import train

    os.fsync = lambda descriptor: None
    said, steps = Said(), Steps()
    start.wait()
    try:
        result = train(
            RunSpec.from_json(spec), Store(root), device="cpu", progress=said, observe=steps
        )
    except AttndropError as error:
        told.put(("refused", str(error), len(steps.losses)))
    else:
        how = "nothing to do" if result.already_finished else "trained"
        told.put((how, str(os.getpid()), len(steps.losses)))


def at_once(root: Path, spec: RunSpec, count: int = 2) -> list[tuple[str, str, int]]:
    """Trains one run in several processes started together: how each ended, what it said."""
    made = context()
    start, told = made.Barrier(count), made.SimpleQueue()
    arguments = (start, str(root), spec.to_json(), told)
    processes = [made.Process(target=sit_at_once, args=arguments) for _ in range(count)]
    for process in processes:
        process.start()
    ends: list[tuple[str, str, int]] = [told.get() for _ in processes]
    for process in processes:
        process.join()
    return sorted(ends)
