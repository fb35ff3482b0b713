"""Device, precision and processes, through accelerate: the loop never asks where it runs."""

from __future__ import annotations

import atexit
import inspect
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from attndrop_repro.config.errors import AttndropError, UsageError
from attndrop_repro.config.recipe import Runtime
from attndrop_repro.data.batches import Share
from attndrop_repro.training.joining import join

_MIXED = {"fp64": "no", "fp32": "no", "bf16": "bf16", "fp16": "fp16"}


class Machine:
    """Where a training runs.

    Attributes:
        device: Of this process.
        dtype: Of weights and pixels: float64 or float32; bf16 and fp16 are autocast.
        share: This process's rank and how many there are.
        scaler: Loss scaler of fp16, else None.

    Args:
        runtime: The recipe's section.
        device: "auto", "cpu", "cuda", "cuda:1", "mps".

    Raises:
        UsageError: The device is not there, or cannot compute in this precision.
    """

    def __init__(self, runtime: Runtime, device: str = "auto") -> None:
        device = chosen_device(device)
        if runtime.precision == "fp64" and device.startswith("mps"):
            raise UsageError("mps has no float64: use --precision fp32 or --device cpu")
        if runtime.precision == "fp16" and device == "cpu":
            raise UsageError("fp16 needs a GPU: on the CPU use --precision bf16 or fp32")
        if runtime.deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before CUDA starts
        self.accelerator = _accelerator(device, _MIXED[runtime.precision])
        self.device: torch.device = self.accelerator.device
        self.dtype = torch.float64 if runtime.precision == "fp64" else torch.float32
        self.share = Share(self.accelerator.process_index, self.accelerator.num_processes)
        self.scaler: Any = self.accelerator.scaler
        self.compiled = runtime.compile

    @property
    def main(self) -> bool:
        """Whether this process writes."""
        return self.share.rank == 0

    @property
    def alone(self) -> bool:
        """Whether there is one process only."""
        return self.share.world == 1

    @property
    def synchronous(self) -> bool:
        """Whether reading a number from the device costs no waiting."""
        return self.device.type == "cpu"

    def autocast(self) -> AbstractContextManager[Any]:
        """Mixed precision, where the recipe asks for it."""
        context: AbstractContextManager[Any] = self.accelerator.autocast()
        return context

    def parallel(self, model: nn.Module) -> Callable[..., Tensor]:
        """What a training forward calls: the model, its gradients averaged over processes.

        accelerate's own `prepare` would put a closure in place of the model's forward, which a
        copy of the model would share.
        """
        run: Any = model
        if not self.alone:
            devices = [self.device] if self.device.type == "cuda" else None
            # normalisation buffers never change: sending them would be an in-place write between
            # the two passes of a step
            wrap: Any = nn.parallel.DistributedDataParallel
            # renamed in torch 2.14
            names = inspect.signature(wrap).parameters
            old = "forward_sync_buffers" not in names
            option = "broadcast_buffers" if old else "forward_sync_buffers"
            run = wrap(model, device_ids=devices, **{option: False})
        self._without_sync = getattr(run, "no_sync", nullcontext)
        if self.compiled:
            torch.compiler.reset()  # what earlier runs of this process compiled is of no use
            # the draws of eager mode, so that compiling changes bits but not the run
            run = torch.compile(run, options={"fallback_random": True})
        return run  # type: ignore[no-any-return]

    def without_sync(self) -> AbstractContextManager[Any]:
        """Inside, gradients stay local: for all micro-batches of a step but the last."""
        context: AbstractContextManager[Any] = self._without_sync()
        return context

    def backward(self, loss: Tensor) -> None:
        """Adds the gradients of a loss, scaled where fp16 needs it."""
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()

    def total(self, value: Tensor) -> Tensor:
        """The sum of a tensor over all processes."""
        if self.alone:
            return value
        summed: Tensor = self.accelerator.reduce(value, reduction="sum")
        return summed

    def gathered(self, value: Tensor) -> list[Tensor]:
        """A tensor of every process, by rank; all have the same shape."""
        if self.alone:
            return [value]
        stacked: Tensor = self.accelerator.gather(value[None].to(self.device))
        return list(stacked)

    @torch.no_grad()
    def same(self, tensors: Iterable[Tensor]) -> None:
        """Makes tensors what they are in the first process."""
        if not self.alone:
            for tensor in tensors:
                torch.distributed.broadcast(tensor, 0)

    def any(self, flag: bool) -> bool:
        """Whether any process says so; all of them must ask."""
        if self.alone:
            return flag
        return bool(self.total(torch.tensor(int(flag), device=self.device)))

    def wait(self) -> None:
        """Until all processes are here."""
        if not self.alone:
            self.accelerator.wait_for_everyone()

    def agree(self, attempt: Callable[[], None]) -> None:
        """Lets the writing process do something, and all fail together if it fails.

        Raises:
            Exception: What `attempt` raised, in the process that ran it.
            AttndropError: In the others.
        """
        error: Exception | None = None
        if self.main:
            try:
                attempt()
            except Exception as problem:
                error = problem
        failed = self.any(error is not None)
        if error is not None:
            raise error
        if failed:
            raise AttndropError("the writing process failed; its message says why")


def lost_contact(error: BaseException) -> bool:
    """Whether an error says that another process of the job is gone."""
    distributed = isinstance(error, torch.distributed.DistError)
    return distributed or (isinstance(error, RuntimeError) and "gloo" in str(error))


def chosen_device(name: str) -> str:
    """The device to use: what was asked for if it is there, or the best one.

    Raises:
        UsageError: It is not there, or is not one of the names.
    """
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if name == "auto":
        return "cuda" if cuda else "mps" if mps else "cpu"
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda", "mps") or (number and not (kind == "cuda" and number.isdigit())):
        raise UsageError(f"unknown device {name!r}; there are: auto, cpu, cuda, cuda:N, mps")
    if (kind == "cuda" and not cuda) or (kind == "mps" and not mps):
        raise UsageError(f"no {kind} device here: use --device cpu, or auto to take what there is")
    if number and int(number) >= torch.cuda.device_count():
        raise UsageError(f"no device {name}: there are {torch.cuda.device_count()}, from cuda:0")
    return name


def _accelerator(device: str, mixed_precision: str) -> Any:
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    # accelerate keeps one state a process; a worker that trains run after run must begin afresh,
    # though never leave a process group that is up
    grouped = torch.distributed.is_available() and torch.distributed.is_initialized()
    AcceleratorState._reset_state(reset_partial_state=not grouped)
    if ":" in device:
        torch.cuda.set_device(device)
    join(device)
    accelerator = Accelerator(cpu=device == "cpu", mixed_precision=mixed_precision)
    if not grouped and torch.distributed.is_available() and torch.distributed.is_initialized():
        atexit.register(torch.distributed.destroy_process_group)
    return accelerator


@contextmanager
def numerics(runtime: Runtime) -> Iterator[None]:
    """Thread count and deterministic algorithms as the recipe says; afterwards as they were."""
    memory: Any = torch.utils.deterministic
    threads = torch.get_num_threads()
    deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    fill = memory.fill_uninitialized_memory
    benchmark = torch.backends.cudnn.benchmark
    torch.set_num_threads(runtime.threads)
    if runtime.deterministic:
        torch.use_deterministic_algorithms(True, warn_only=True)
        memory.fill_uninitialized_memory = False  # finds bugs; costs time
        torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
        memory.fill_uninitialized_memory = fill
        torch.backends.cudnn.benchmark = benchmark
