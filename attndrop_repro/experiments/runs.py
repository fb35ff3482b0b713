"""Runs of a store described for people: one of them whole, two of them compared, how to go on."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attndrop_repro.config.errors import AttndropError

if TYPE_CHECKING:
    from attndrop_repro.store import RunDir, RunInfo, Store
    from attndrop_repro.store.logits import Logits

RESUMABLE = frozenset({"interrupted", "dead", "failed"})


def brief(info: RunInfo) -> dict[str, Any]:
    """A run in one flat record."""
    spec = info.spec
    return {
        "run_id": info.run_id,
        "status": info.status,
        "recipe": spec and spec.recipe.name,
        "method": spec and spec.method,
        "seed": spec and spec.seed,
        "epoch": info.epoch,
        "epochs": spec and spec.recipe.training.epochs,
        "progress": info.progress,
        "best_validation_accuracy": info.best,
        "updated_at": info.updated,
        "message": info.message,
    }


def whole(store: Store, run: RunDir) -> dict[str, Any]:
    """Everything that is known of a run but its large files."""
    status = run.status()
    frame = store.frame()
    rows = frame[frame["run_id"] == run.run_id]
    kept = [
        "metric", "split", "epoch", "attack", "norm", "eps_label", "steps", "restarts", "value",
        "n",
    ]  # fmt: skip
    measurements = rows[kept].astype(object).where(rows[kept].notna(), None).to_dict("records")
    return {
        "run_id": run.run_id,
        "path": str(run.path),
        "status": run.state(),
        "state": status,
        "spec": run.spec().model_dump(mode="json"),
        "provenance": run.provenance(),
        "history": run.history(),
        "measurements": measurements,
    }


def stored_logits(run: RunDir, split: str) -> Logits:
    """The logits behind a run's metrics.

    Raises:
        AttndropError: They were not kept.
    """
    from attndrop_repro.store.logits import load_logits

    try:
        return load_logits(run.logits(split))
    except FileNotFoundError:
        raise AttndropError(
            f"{run.run_id} has no logits of {split}: attndrop eval --run {run.run_id} "
            f"--split {split} makes them"
        ) from None


def resume_command(run: RunDir, results: str) -> str:
    """The command that goes on with a run; its own recipe file says everything about it.

    Args:
        run: The run.
        results: The store's folder as the user wrote it.
    """
    words = ["attndrop", "--results", results, "train"]
    words += ["--recipe", str(run.path / "recipe.yaml"), "--seed", str(run.spec().seed)]
    return shlex.join(words)


def difference(one: RunDir, other: RunDir) -> list[dict[str, Any]]:
    """Where two runs differ: recipe, settings, seed, and provenance.

    Returns:
        Records of `field` (a dotted path), `first`, `second`; None where a run has no such field.
    """
    records = []
    flat = [
        {**_flat(run.spec().model_dump(mode="json")), **_flat({"provenance": run.provenance()})}
        for run in (one, other)
    ]
    for field in dict.fromkeys([*flat[0], *flat[1]]):
        first, second = (values.get(field) for values in flat)
        if first != second:
            records.append({"field": field, "first": first, "second": second})
    return records


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat
