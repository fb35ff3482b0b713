"""Metrics from stored logits, without the model or its data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from attndrop_repro.config.errors import AttndropError, unknown
from attndrop_repro.config.spec import RunSpec
from attndrop_repro.evaluation import metrics
from attndrop_repro.evaluation.options import CalibrateOptions, EvalOptions
from attndrop_repro.store.logits import Logits, load_logits
from attndrop_repro.store.schema import OUTSIDE, Measurement

if TYPE_CHECKING:
    from attndrop_repro.store import Store

_OF_THE_MODEL = (
    "run_id", "suite", "task", "dataset", "model", "method", "settings", "precision", "device",
    "threads", "status", "config_hash", "code_version",
)  # fmt: skip


def logits_path(
    store: Store, run_id: str, label: str, spec: RunSpec | None, epoch: int | None
) -> Path:
    """Where the logits of a split are kept.

    Args:
        store: The store.
        run_id: The run, or the name of a model from elsewhere.
        label: The split, with its corruption if any.
        spec: The run's; None for a model from elsewhere.
        epoch: Whose weights they are of; snapshots have files of their own.
    """
    if spec is None:
        return store.root / "outside" / run_id / "logits" / f"{label}.safetensors"
    training = spec.recipe.training
    if epoch is not None and epoch != training.epochs and epoch in training.snapshots:
        label = f"{label}-epoch-{epoch:04d}"
    return store.run_dir(run_id).logits(label)


def recompute(
    run_id: str,
    store: Store,
    options: EvalOptions,
    *,
    epoch: int | None = None,
    suite: str = "",
) -> list[Measurement]:
    """Computes the metrics of `eval`, or with `CalibrateOptions` of `calibrate`, and writes them.

    Args:
        run_id: The run.
        store: Where it is.
        options: What and how.
        epoch: A snapshot's epoch; None: the final weights.
        suite: On whose behalf.

    Raises:
        AttndropError: The logits were not kept, are damaged or not finite.
    """
    spec = store.run_dir(run_id).spec()
    at, device = _written(store, run_id, options.label, spec, epoch)

    def stored(label: str) -> Logits:
        return _stored(store, run_id, label, spec, at)

    rows: list[Measurement] = [{**row, "epoch": at} for row in _rows(stored, options, spec.seed)]
    store.write(run_id, rows, suite=suite, device=device)
    return rows


def recompute_outside(
    run_id: str, store: Store, options: EvalOptions
) -> tuple[str, list[Measurement]]:
    """The same for a model from elsewhere that was measured before.

    Args:
        run_id: What its rows are called, ``outside--...``, or a beginning of it.
        store: Where they are.
        options: What and how.

    Returns:
        The model's whole name, and what was computed.

    Raises:
        UsageError: The store has no such model, or several.
        AttndropError: The logits were not kept, are damaged or not finite.
    """
    kept = [path.name for path in (store.root / "outside").glob(f"{OUTSIDE}*")]
    meant = [name for name in kept if name == run_id] or [n for n in kept if n.startswith(run_id)]
    if len(meant) != 1:
        raise unknown("model", run_id, kept)
    run_id = meant[0]
    written = [row for row in store.table().to_pylist() if row["run_id"] == run_id]
    if not written:
        raise AttndropError(f"{store.root} has logits of {run_id}, but no rows: measure it again")
    last = written[-1]
    about = json.loads(last["detail"] or "{}").get("model")

    def stored(label: str) -> Logits:
        return _stored(store, run_id, label, None, None)

    rows = _rows(stored, options, 0)
    if about is not None:
        rows = [{**row, "detail": {**row["detail"], "model": about}} for row in rows]
    store.write_outside({name: last[name] for name in _OF_THE_MODEL if last[name]}, rows)
    return run_id, rows


def _rows(stored: Callable[[str], Logits], options: EvalOptions, seed: int) -> list[Measurement]:
    content = stored(options.label)
    if isinstance(options, CalibrateOptions):
        fitted_on = stored(options.fit_split)
        rows = metrics.calibration_rows(content, fitted_on, options, seed=seed)
    else:
        rows = metrics.accuracy_rows(content, options, seed=seed)
    return [{**row, "split": options.label} for row in rows]


def _stored(
    store: Store, run_id: str, label: str, spec: RunSpec | None, epoch: int | None
) -> Logits:
    try:
        return load_logits(logits_path(store, run_id, label, spec, epoch))
    except FileNotFoundError:
        raise AttndropError(
            f"{run_id} has no logits of {label}: run attndrop eval --force on it first"
        ) from None


def _written(
    store: Store, run_id: str, label: str, spec: RunSpec, epoch: int | None
) -> tuple[int, str]:
    """Epoch and device that the logits were measured with, by the rows that came with them."""
    table = store.table().select(["run_id", "split", "metric", "epoch", "device"])
    rows = [
        row
        for row in table.to_pylist()
        if row["run_id"] == run_id
        and row["split"] == label
        and row["epoch"] is not None
        and (epoch is None or row["epoch"] == epoch)
    ]
    if not rows:
        return spec.recipe.training.epochs if epoch is None else epoch, "cpu"
    last = max(rows, key=lambda row: row["epoch"])
    return int(last["epoch"]), str(last["device"])
