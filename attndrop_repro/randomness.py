"""The random streams: one seed, independent streams. Nothing else in the product touches seeds.

The stream ``regulariser`` *is* torch's default generator, because fused dropout and compiled code
can draw from no other; nothing but a method draws from it. Every other stream is a pure function of
(seed, name, counters), so nothing that one stream draws can shift another, and a run that goes on
from a checkpoint needs only its counters.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

Key = int | str


def derive(seed: int, *key: Key) -> int:
    """A 63-bit seed for the stream named by ``key``; the same on every machine and version.

    Args:
        seed: The run's seed.
        key: Name and counters of the stream, as in ``("augmentation", epoch)``.
    """
    text = "\x1f".join([str(int(seed)), *(f"{type(part).__name__}:{part}" for part in key)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def numpy_stream(seed: int, *key: Key) -> np.random.Generator:
    """A numpy generator of its own for ``key`` (Philox: counter-based, any platform)."""
    return np.random.Generator(np.random.Philox(derive(seed, *key)))


def torch_stream(seed: int, *key: Key) -> torch.Generator:
    """A CPU torch generator of its own for ``key``."""
    import torch

    return torch.Generator().manual_seed(derive(seed, *key))


def seed_regulariser(seed: int, rank: int = 0) -> None:
    """Starts the stream ``regulariser``: torch's default generators, on every device.

    Args:
        seed: The run's seed.
        rank: Which of several processes this is: their element masks must differ.
    """
    import torch

    key = ("regulariser",) if rank == 0 else ("regulariser", rank)
    torch.manual_seed(derive(seed, *key))


def regulariser_state() -> dict[str, torch.Tensor]:
    """The state of the stream ``regulariser``, one uint8 tensor for each device in use."""
    import torch

    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore_regulariser(state: dict[str, torch.Tensor]) -> None:
    """Puts the stream ``regulariser`` back to what `regulariser_state` returned."""
    import torch

    torch.set_rng_state(state["cpu"].cpu())
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"].cpu())


@contextmanager
def stream(seed: int, *key: Key) -> Iterator[None]:
    """Lends the global generators (torch, numpy, random) to code that knows no others.

    Inside, they are seeded from ``key``; afterwards they are as they were, also after an exception.
    For libraries that take no generator: timm's initialisation and augmentation, torchattacks.
    """
    import torch

    python_state = random.getstate()
    numpy_state: Any = np.random.get_state()
    value = derive(seed, *key)
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices):
        try:
            torch.manual_seed(value)
            np.random.seed(value % 2**32)
            random.seed(value)
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)


@contextmanager
def light_stream(seed: int, *key: Key) -> Iterator[None]:
    """As `stream`, for code that runs once an image or batch and draws on the CPU only.

    Devices are left alone: reading and writing their generators so often would make them wait.
    """
    import torch

    python_state = random.getstate()
    numpy_state: Any = np.random.get_state()
    torch_state = torch.get_rng_state()
    value = derive(seed, *key)
    try:
        torch.default_generator.manual_seed(value)
        np.random.seed(value % 2**32)
        random.seed(value)
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        torch.set_rng_state(torch_state)
