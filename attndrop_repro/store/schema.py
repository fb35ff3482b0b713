"""The tidy table: one measurement a row. Columns, order and types; no torch here."""

from __future__ import annotations

import re
from typing import Any, TypedDict

import pyarrow as pa

# Major.minor: a reader knows every layout of its major version; missing columns are null.
SCHEMA_VERSION = "1.0"

SCHEMA = pa.schema(
    [
        ("run_id", pa.string()),
        ("suite", pa.string()),
        ("recipe", pa.string()),
        ("task", pa.string()),
        ("dataset", pa.string()),
        ("split", pa.string()),
        ("model", pa.string()),
        ("method", pa.string()),
        ("seed", pa.int64()),
        ("epoch", pa.int64()),
        ("metric", pa.string()),
        ("value", pa.float64()),
        ("n", pa.int64()),
        ("attack", pa.string()),
        ("norm", pa.string()),
        ("eps", pa.float64()),
        ("eps_label", pa.string()),
        ("steps", pa.int64()),
        ("step_size", pa.float64()),
        ("restarts", pa.int64()),
        ("p", pa.float64()),
        ("k", pa.int64()),
        ("w", pa.int64()),
        ("sigma_max", pa.float64()),
        ("lam", pa.float64()),
        ("settings", pa.string()),
        ("precision", pa.string()),
        ("device", pa.string()),
        ("threads", pa.int64()),
        ("status", pa.string()),
        ("config_hash", pa.string()),
        ("code_version", pa.string()),
        ("created_at", pa.string()),
        ("detail", pa.string()),  # JSON: interval, audit, signature, bins: what a metric adds
    ],
    metadata={b"attndrop_schema": SCHEMA_VERSION.encode()},
)

COLUMNS: tuple[str, ...] = tuple(SCHEMA.names)

OUTSIDE = "outside--"  # how the run ids of what was not trained here begin

# What `bench` writes, under run ids `outside--...`, with label and settings in `detail`:
#   step_time_ratio, images_per_second, peak_memory_mb   whole steps; n: images a step
#   attention_time_ratio, attention_memory_mb            one attention; n: tokens; memory it adds
#   loop_time_ratio                                      the training loop over a bare one
#   loader_images_per_second, model_images_per_second    each half of a training alone

# Rows that agree in these are the same measurement; the newest counts.
IDENTITY: tuple[str, ...] = (
    "run_id", "dataset", "split", "epoch", "metric", "n", "attack", "norm", "eps_label", "steps",
    "step_size", "restarts", "device", "threads",
)  # fmt: skip


class Measurement(TypedDict, total=False):
    """What a measuring function returns; the store adds what it knows of the run."""

    metric: str
    value: float
    split: str
    dataset: str
    n: int
    epoch: int
    attack: str
    norm: str
    eps: float
    eps_label: str
    steps: int
    step_size: float
    restarts: int
    detail: dict[str, Any]


def outside_id(model: str, digest: str) -> str:
    """What the rows of a model from elsewhere are called; a name of files too."""
    return f"{OUTSIDE}{re.sub(r'[^A-Za-z0-9._+-]+', '-', model)}--{digest}"
