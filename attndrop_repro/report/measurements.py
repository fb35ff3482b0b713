"""The measurements behind a report, one a line, as CSV: every number with its run."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence

from attndrop_repro.report.group import Group
from attndrop_repro.report.rows import Row

_FIELDS = (
    "recipe", "dataset", "split", "model", "method", "seed", "epoch", "metric", "value", "n",
    "attack", "norm", "eps", "eps_label", "steps", "restarts", "precision", "device", "threads",
    "run_id", "config_hash", "code_version", "created_at",
)  # fmt: skip


def measurements(groups: Sequence[Group]) -> str:
    """All rows that tables and figures are made of, sorted."""
    found: dict[tuple[str, ...], None] = {}
    for group in groups:
        rows = [row for held in group.scalars.values() for row in held.values()]
        rows += [
            row
            for series in group.series.values()
            for epochs in series.values()
            for row in epochs.values()
        ]
        rows += group.costs
        lines = [tuple(_written(row, field) for field in _FIELDS) for row in rows]
        found |= dict.fromkeys(sorted(lines))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_FIELDS)
    writer.writerows(found)
    return out.getvalue()


def _written(row: Row, field: str) -> str:
    value = getattr(row, field)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return repr(value) if isinstance(value, float) else str(value)
