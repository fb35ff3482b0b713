"""What a training borrows from its process and gives back: generators and warnings."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

_EXCEPTION = re.compile(
    r"(.+?) (does not have a deterministic implementation|defaults to a non-deterministic)", re.S
)


@contextmanager
def borrowed_generators() -> Iterator[set[str]]:
    """Gives a caller from Python its default generator back; collects what is not deterministic.

    Where there is no deterministic algorithm torch warns and takes another: that belongs into the
    provenance, not on the screen.
    """
    found: set[str] = set()
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices), warnings.catch_warnings():
        shown = warnings.showwarning

        def note(message: Warning | str, *rest: Any, **more: Any) -> None:
            match = _EXCEPTION.match(str(message))
            if match:
                found.add(match[1])
            else:
                shown(message, *rest, **more)

        warnings.showwarning = note
        yield found
