"""A run's weights as a file for others: the network's own state dict, in safetensors."""

from __future__ import annotations

import json
from pathlib import Path

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.store.atomic import check_target, write_bytes
from attndrop_repro.store.run_dir import RunDir
from attndrop_repro.training.keeping import load_learned
from attndrop_repro.training.restore import kept_weights


def export(run: RunDir, out: Path, *, epoch: int | None = None) -> int:
    """Writes the weights of a run; timm loads them into the recipe's model, strictly.

    Pixels must be normalised outside then: the mean and standard deviation are in the run's
    provenance, and the file's metadata name the run.

    Args:
        run: A finished run, or one that kept the epoch.
        out: The file; it must not exist yet.
        epoch: A snapshot's epoch; None: the final weights.

    Returns:
        How many parameters and buffers were written.

    Raises:
        UsageError: The file's folder is not there.
        AttndropError: The file exists, the run has no such weights, or the disk is full.
    """
    from safetensors.torch import save

    check_target(out)
    if out.exists():
        raise AttndropError(f"{out} exists: name another file, or remove it first")
    learned, state = load_learned(kept_weights(run, epoch))
    tensors = {name: value.contiguous() for name, value in learned.weights.items()}
    model = run.spec().recipe.model
    metadata = {
        "format": "pt", "run_id": run.run_id, "epoch": str(state["epoch"]),
        "model": model.name, "model_args": json.dumps(model.args),
    }  # fmt: skip
    write_bytes(out, save(tensors, metadata=metadata))
    return len(tensors)
