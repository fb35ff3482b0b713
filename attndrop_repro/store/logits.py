"""Per-example logits, kept so that a metric can be computed again without a model; numpy only."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.store.atomic import write_bytes


class Logits(NamedTuple):
    """What a model said of each example of a split.

    Attributes:
        logits: (n, classes), float32.
        labels: (n,), int64.
        ids: (n,), int64: each example's index in its source.
    """

    logits: NDArray[np.float32]
    labels: NDArray[np.int64]
    ids: NDArray[np.int64]


def save_logits(path: Path, logits: Any, labels: Any, ids: Any) -> None:
    """Saves the logits of a split as one safetensors file with a checksum.

    Args:
        path: The file.
        logits: (n, classes).
        labels: (n,).
        ids: (n,).

    Raises:
        ValueError: The shapes do not belong together.
        AttndropError: The disk is full; nothing has changed.
    """
    from safetensors.numpy import save

    content = Logits(
        np.ascontiguousarray(logits, dtype=np.float32),
        np.ascontiguousarray(labels, dtype=np.int64),
        np.ascontiguousarray(ids, dtype=np.int64),
    )
    _check_shapes(content)
    write_bytes(path, save(content._asdict(), metadata={"sha256": _digest(content)}))


def load_logits(path: Path) -> Logits:
    """Loads what `save_logits` saved.

    Raises:
        FileNotFoundError: There is no such file.
        AttndropError: It is damaged.
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise FileNotFoundError(path)
    try:
        with safe_open(path, framework="numpy") as file:
            content = Logits(*(file.get_tensor(name) for name in Logits._fields))
            recorded = (file.metadata() or {}).get("sha256")
        _check_shapes(content)
    except (SafetensorError, ValueError, OSError) as error:
        raise AttndropError(f"{path} is damaged: {' '.join(str(error).split())}") from None
    if recorded != _digest(content):
        raise AttndropError(f"{path} is damaged: its bytes changed; measure with --force")
    return content


def _check_shapes(content: Logits) -> None:
    n = content.labels.shape[0] if content.labels.ndim == 1 else -1
    if content.logits.ndim != 2 or content.logits.shape[0] != n or content.ids.shape != (n,):
        raise ValueError(
            f"logits {content.logits.shape}, labels {content.labels.shape} and ids "
            f"{content.ids.shape} do not belong together"
        )


def _digest(content: Logits) -> str:
    digest = hashlib.sha256()
    for array in content:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
