"""A training in a process of its own, which a test may kill."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
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


def sit_together(
    rank: int, world: int, port: int, root: str, spec: str, out: str, dies_at: int | None
) -> None:
    """One of several processes, as torchrun starts them; its steps go to ``out/<rank>.json``."""
    import json
    import traceback

    from support.tiny_run import Steps

    from attndrop_repro.training import train

    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world}
    os.environ.update({name: str(value) for name, value in place.items()})
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1")
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    steps = Steps()

    def observe(batch: Any, loss: Any, rate: float) -> None:
        steps(batch, loss, rate)
        if batch.step == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        train(RunSpec.from_json(spec), Store(root), device="cpu", observe=observe)
    except Exception:
        (Path(out) / f"{rank}.error").write_text(traceback.format_exc())
        raise
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


@dataclass
class Job:
    """Processes that train one run together.

    Attributes:
        processes: By rank.
        agent: The store by which they find each other, as torchrun's agent has one: no port is
            ever let go and taken again.
        out: Where each process leaves its steps, or its error.
    """

    processes: list[Any]
    agent: Any
    out: Path

    def end(self) -> list[int]:
        """Waits for all of them; their exit statuses."""
        for process in self.processes:
            process.join()
        return [process.exitcode for process in self.processes]

    def errors(self) -> str:
        """What they died of, for a test that fails to show."""
        return "\n".join(path.read_text() for path in sorted(self.out.glob("*.error")))


def together(
    root: Path, spec: RunSpec, out: Path, world: int = 2, dies: Mapping[int, int] | None = None
) -> Job:
    """Starts a training in several processes.

    Args:
        root: Of the store.
        spec: The run.
        out: Folder for what each process tells.
        world: How many.
        dies: By rank, the step after which it is killed, before that step's checkpoint.
    """
    import torch

    agent = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    out.mkdir(parents=True, exist_ok=True)
    for left in out.iterdir():
        left.unlink()
    made = context()
    processes = []
    for rank in range(world):
        at = (dies or {}).get(rank)
        arguments = (rank, world, agent.port, str(root), spec.to_json(), str(out), at)
        processes.append(made.Process(target=sit_together, args=arguments))
    for process in processes:
        process.start()
    return Job(processes, agent, out)


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
