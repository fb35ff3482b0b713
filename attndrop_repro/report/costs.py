"""What methods cost, as `attndrop bench` has measured it: the tables of cost.

A benchmark belongs to a recipe if it was made of that recipe's model; a single attention belongs to
no recipe, and is shown once, with the suite's first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attndrop_repro.report import cells
from attndrop_repro.report.group import Group
from attndrop_repro.report.prose import Code, Text, say
from attndrop_repro.report.quantities import written
from attndrop_repro.report.rows import Row
from attndrop_repro.report.table import Cell, Column, Table

_STEPS = ("step_time_ratio", "images_per_second", "peak_memory_mb")
_ATTENTION = ("attention_time_ratio", "attention_memory_mb")
_QUARTILES = ("", "low", "high")
_BEFORE = ("none", "none (again)", "none (unfused)")  # the plain model, in front of all methods

_Rows = Mapping[str, Row]  # by metric
_METHOD = Column("method", "Method", numeric=False)
_SETTING = tuple(
    Column(key, title, numeric=numeric, csv_only=True)
    for key, title, numeric in (
        ("model", "Model", False), ("n", "Size", True), ("device", "Device", False),
        ("precision", "Precision", False), ("threads", "Threads", True),
    )
)  # fmt: skip


def of_recipe(rows: Sequence[Row], recipe: str, *, first: bool) -> tuple[Row, ...]:
    """The rows of benchmarks that a recipe's chapter shows.

    Args:
        rows: Of the store.
        recipe: Its name.
        first: Whether it is the suite's first recipe.
    """
    return tuple(
        row
        for row in rows
        if row.detail.get("label") and math.isfinite(row.value)
        if (row.metric in _STEPS and row.split == "random pixels" and row.recipe == recipe)
        or (row.metric in _ATTENTION and first)
    )


def step_table(group: Group) -> Table | None:
    """Whole training steps under every method, as in the paper's appendix C; None without any."""
    columns = (
        _METHOD,
        Column("step_time_ratio", "Step time", "×", -1, suffixes=_QUARTILES),
        Column("to_unfused", "To unfused", "×", -1, optional=True),
        Column("paper_ratio", "Paper", "×", optional=True),
        Column("images_per_second", "Images/s", "", 1),
        Column("peak_memory_mb", "Peak memory", "MiB", -1, optional=True),
        *_SETTING,
    )

    def cells_of(found: _Rows) -> tuple[Cell, ...]:
        ratio, detail = found.get(_STEPS[0]), _detail(found)
        return (
            _timed(ratio),
            _number(detail.get("unfused_ratio"), 3),
            _number(detail.get("paper_ratio"), 3),
            _rate(found.get(_STEPS[1])),
            _value(found.get(_STEPS[2]), 0),
        )

    def heading(row: Row) -> str:
        size = row.detail.get("image_size")
        images = f"{row.n} images" + (f" of {size} × {size}" if size else "")
        compiled = ", compiled" if row.detail.get("compile") else ""
        return f"{row.model}, {images} a step, {_where(row)}{compiled}"

    notes = (
        say(
            "Seconds of a whole training step over those of the plain model with fused attention: "
            "median over interleaved rounds, and quartiles. {again} is the plain model once more: "
            "what differs there is noise. To unfused: over the plain model without fused "
            "attention. Paper: the same ratio from the images a second that "
            "its appendix C gives for ViT-B/16 on 8 V100.",
            again=Code("none (again)"),
        ),
        say(
            "Peak memory, each in a process of its own: on a CPU of the whole process, libraries "
            "included; on a GPU of torch's allocator."
        ),
    )
    return _table("costs", "Cost of a training step", columns, group, _STEPS, cells_of, heading,
                  notes)  # fmt: skip


def attention_table(group: Group) -> Table | None:
    """One attention under every method that acts inside it; None without any."""
    columns = (
        _METHOD,
        Column("attention_time_ratio", "Time", "×", -1, suffixes=_QUARTILES),
        Column("milliseconds", "Time", "ms", -1),
        Column("attention_memory_mb", "Added memory", "MiB", -1),
        Column("to_plain", "To plain", "×", -1),
        *_SETTING,
    )

    def cells_of(found: _Rows) -> tuple[Cell, ...]:
        time, memory = (found.get(metric) for metric in _ATTENTION)
        return (
            _timed(time),
            _number(time.detail.get("milliseconds") if time else None, 1),
            _value(memory, 1),
            _number(memory.detail.get("ratio") if memory else None, 2),
        )

    def heading(row: Row) -> str:
        return f"{row.model}, {row.n} tokens, batch {row.detail.get('batch', '?')}, {_where(row)}"

    notes = (
        say(
            "Forward and backward of one attention over torch's fused attention, in a process for "
            "each method: median and quartiles of the time; peak memory beyond what the inputs "
            "take, and that over what the fused attention adds."
        ),
    )
    return _table("attention-costs", "Cost of one attention", columns, group, _ATTENTION, cells_of,
                  heading, notes)  # fmt: skip


def hint(recipe: str) -> Text:
    """How to get what is not there."""
    return say(
        "Costs were not measured; {bench} does.", bench=Code(f"attndrop bench --recipe {recipe}")
    )


def _table(
    name: str,
    title: str,
    columns: tuple[Column, ...],
    group: Group,
    metrics: Sequence[str],
    cells_of: Callable[[_Rows], tuple[Cell, ...]],
    heading: Callable[[Row], str],
    notes: tuple[Text, ...],
) -> Table | None:
    """A table with a group of rows for each model, size, device, precision and thread count."""
    parts: dict[str, dict[str, dict[str, Row]]] = {}
    for row in sorted(group.costs, key=lambda row: row.created_at):  # the newest counts
        if row.metric in metrics:
            labels = parts.setdefault(heading(row), {})
            labels.setdefault(str(row.detail["label"]), {})[row.metric] = row
    if not parts:
        return None
    rows: list[tuple[Cell, ...]] = []
    headings: dict[int, str] = {}
    known = dict.fromkeys((*_BEFORE, *group.methods))
    order = {label: place for place, label in enumerate(known)}
    for head in sorted(parts):
        headings[len(rows)] = head
        for label in sorted(parts[head], key=lambda label: (order.get(label, len(order)), label)):
            found = parts[head][label]
            rows.append(
                (cells.name(label), *cells_of(found), *_setting(next(iter(found.values()))))
            )
    return Table(name, title, columns, tuple(rows), headings, notes)


def _setting(row: Row) -> tuple[Cell, ...]:
    texts = (cells.text(row.model), cells.number(row.n), cells.text(row.device))
    return (*texts, cells.text(row.precision), cells.number(row.threads))


def _where(row: Row) -> str:
    threads = "" if row.threads is None else f", {row.threads} thread{'s' * (row.threads != 1)}"
    return f"{row.device}, {row.precision}{threads}"


def _detail(found: _Rows) -> Mapping[str, Any]:
    return next(iter(found.values())).detail


def _timed(row: Row | None) -> Cell:
    """A ratio with its quartiles."""
    if row is None:
        return cells.text("")
    low, high = (row.detail.get(name) for name in ("low", "high"))
    raw = {"": row.value, "low": low, "high": high}
    if low is None or high is None:
        return Cell(written(row.value, 3), raw=raw)
    return Cell(written(row.value, 3), f"[{written(low, 2)}, {written(high, 2)}]", raw=raw)


def _rate(row: Row | None) -> Cell:
    return _value(row, 1 if row is None or row.value < 1000 else 0)


def _value(row: Row | None, digits: int) -> Cell:
    return _number(None if row is None else row.value, digits)


def _number(value: float | None, digits: int) -> Cell:
    return cells.number(value, "" if value is None else written(value, digits))
