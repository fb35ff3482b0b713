"""Where numbers come from: what the runs' provenance has in common, and the open points."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attndrop_repro.report import cells
from attndrop_repro.report.group import Group
from attndrop_repro.report.open_points import OPEN_POINTS
from attndrop_repro.report.runs import Run
from attndrop_repro.report.table import Cell, Column, Table

_OWN_TABLE = {"open_points", "resumed"}
_LONGEST = 160
# A report is passed on: folders and names of machines stay at home.
_PRIVATE_KEYS = {"host", "hostname", "user", "pid", "cwd"}
_PATH = re.compile(r"^(?:[/~\\]|[A-Za-z]:[\\/])")


def provenance_table(group: Group) -> Table:
    """Versions, data, device: one value where all runs agree, else each with its runs."""
    runs = _runs(group)
    flat = [dict(_flat(run.provenance)) for run in runs if run.provenance]
    rows: list[tuple[Cell, ...]] = []
    for key in sorted({key for one in flat for key in one}):
        counts: dict[str, int] = {}
        for one in flat:
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
                for key, value in _flat({"": settings}):
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


def _runs(group: Group) -> list[Run]:
    return [run for _, _, run in group.listed() if run is not None]


def _order(point: str) -> tuple[int, str]:
    digits = point.lstrip("AEX")
    return (int(digits) if digits.isdigit() else 10**6, point)


def _setting(key: str, values: Sequence[str]) -> str:
    value = ", ".join(values)
    return f"{key} = {value}" if key else value


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for key in sorted(value, key=str):
        inner = value[key]
        name = f"{prefix}{key}"
        if (not prefix and key in _OWN_TABLE) or str(key).lower() in _PRIVATE_KEYS:
            continue
        if isinstance(inner, Mapping):
            yield from _flat(inner, f"{name}.")
            continue
        text = _written(inner)
        if not _PATH.match(text):
            yield name, text


def _written(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        text = ", ".join(_written(one) for one in value)
    else:
        text = str(value)
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
