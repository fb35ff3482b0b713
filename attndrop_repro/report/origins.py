"""Where numbers come from: what the runs' provenance has in common, and the open points."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attndrop_repro.report import cells
from attndrop_repro.report.facts import flat
from attndrop_repro.report.group import Group
from attndrop_repro.report.open_points import OPEN_POINTS
from attndrop_repro.report.runs import Run
from attndrop_repro.report.table import Cell, Column, Table

_OWN_TABLE = {"open_points", "resumed"}
# A report is passed on: folders and names of machines stay at home.
_PRIVATE_KEYS = {"host", "hostname", "user", "pid", "cwd"}
_PATH = re.compile(r"^(?:[/~\\]|[A-Za-z]:[\\/])")


def provenance_table(group: Group) -> Table:
    """Versions, data, device: one value where all runs agree, else each with its runs."""
    runs = _runs(group)
    told = [dict(_shareable(run.provenance)) for run in runs if run.provenance]
    rows: list[tuple[Cell, ...]] = []
    for key in sorted({key for one in told for key in one}):
        counts: dict[str, int] = {}
        for one in told:
            value = one.get(key, "absent")
            counts[value] = counts.get(value, 0) + 1
        if len(counts) == 1:
            value = next(iter(counts))
        else:
            ordered = sorted(counts, key=lambda value: (-counts[value], value))
            value = "; ".join(f"{value} ({counts[value]} runs)" for value in ordered)
        rows.append((cells.name(key), cells.text(value)))
    columns = (
        Column("key", "What", numeric=False),
        Column("value", "Value", numeric=False, wide=True),
    )
    return Table("provenance", "Versions, data, device", columns, tuple(rows))


def open_point_table(group: Group) -> Table:
    """What the papers leave open and how the runs have it."""
    found: dict[str, dict[str, list[str]]] = {}
    for run in _runs(group):
        points = run.provenance.get("open_points")
        if not isinstance(points, Mapping):
            continue
        for ids, settings in points.items():
            for point in str(ids).replace(" ", "").split(","):
                for key, value in flat({"": settings}):
                    values = found.setdefault(point, {}).setdefault(key.lstrip("."), [])
                    if value not in values:
                        values.append(value)
    rows = [
        (
            cells.text(point),
            cells.text(OPEN_POINTS.get(point, "")),
            cells.text("; ".join(_setting(key, found[point][key]) for key in sorted(found[point]))),
        )
        for point in sorted(found, key=_order)
    ]
    columns = (
        Column("point", "Point", numeric=False),
        Column("open", "What the papers leave open", numeric=False, wide=True),
        Column("value", "Here", numeric=False, wide=True),
    )
    return Table("open-points", "Assumptions that the results rest on", columns, tuple(rows))


def measured_between(group: Group) -> tuple[str, str] | None:
    """Days of the first and the last measurement (UTC)."""
    days = sorted(
        row.created_at[:10]
        for rows in group.scalars.values()
        for row in rows.values()
        if row.created_at
    )
    return (days[0], days[-1]) if days else None


def _shareable(provenance: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    public = {
        key: value
        for key, value in provenance.items()
        if key not in _OWN_TABLE and key.lower() not in _PRIVATE_KEYS
    }
    return ((key, text) for key, text in flat(public) if not _PATH.match(text))


def _runs(group: Group) -> list[Run]:
    return [run for _, _, run in group.listed() if run is not None]


def _order(point: str) -> tuple[int, str]:
    digits = point.lstrip("AEX")
    return (int(digits) if digits.isdigit() else 10**6, point)


def _setting(key: str, values: Sequence[str]) -> str:
    value = ", ".join(values)
    return f"{key} = {value}" if key else value
