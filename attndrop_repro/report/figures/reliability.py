"""Reliability diagrams: accuracy against confidence, one small pair of axes a method."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes

from attndrop_repro.report import cells
from attndrop_repro.report.figures import canvas
from attndrop_repro.report.group import Group
from attndrop_repro.report.palette import INK, MUTED, look
from attndrop_repro.report.prose import Text, count, say
from attndrop_repro.report.quantities import ECE
from attndrop_repro.report.table import Cell, Column, Table

_FEW = 10  # predictions; the accuracy of fewer is chance


@dataclass(frozen=True)
class Bin:
    """Predictions of one range of confidence, all seeds together.

    Attributes:
        low: Lower edge.
        high: Upper edge.
        count: Predictions in it.
        confidence: Their mean confidence.
        accuracy: Their accuracy.
    """

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float

    @property
    def interval(self) -> tuple[float, float]:
        """95 % of the accuracy (Wilson), as if predictions were independent of each other."""
        from statsmodels.stats.proportion import proportion_confint

        low, high = proportion_confint(
            round(self.accuracy * self.count), self.count, method="wilson"
        )
        return max(0.0, float(low)), min(1.0, float(high))


def reliability(group: Group) -> list[canvas.Picture]:
    """The diagrams; none where no run has bins."""
    found = {method: bins for method in group.methods if (bins := pooled(group, method))}
    if not found:
        return []
    name, title = "reliability", "Reliability diagrams"
    with canvas.style():
        figure, places = canvas.grid(list(found), 2.3)
        most = max(one.count for bins in found.values() for one in bins)
        for place, (method, bins) in zip(places, found.items(), strict=True):
            upper = canvas.axes_at(figure, place, (0.31, 1.0))
            lower = canvas.axes_at(figure, place, (0.0, 0.24))
            _diagram(upper, method, bins, _ece(group, method))
            _counts(lower, method, bins, most)
            upper.tick_params(labelbottom=False)
            if place.first:
                upper.set_ylabel("accuracy")
                lower.set_ylabel("count")
            if place.lowest:
                lower.set_xlabel("confidence")
        svg, png = canvas.rendered(figure, f"{group.recipe}-{name}")
    return [
        canvas.Picture(
            name,
            title,
            f"Reliability diagrams of {count(len(found), 'method')}: accuracy by confidence with "
            "its 95 % interval and the diagonal of perfect calibration; below, the number of "
            "predictions in each bin.",
            _caption(group),
            svg,
            png,
            _data(name, title, found),
        )
    ]


def pooled(group: Group, method: str) -> list[Bin]:
    """Bins of a method over its seeds, weighted by count; runs with other edges are left out."""
    runs = []
    held = group.scalars.get(ECE, {})
    for seed in group.seeds:
        row = held.get((method, seed))
        bins = None if row is None else row.detail.get("bins")
        if isinstance(bins, list):
            runs.append([one for one in map(_bin, bins) if one is not None])
    edges = Counter(tuple((one.low, one.high) for one in bins) for bins in runs if bins)
    if not edges:
        return []
    usual = max(sorted(edges), key=lambda grid: edges[grid])
    runs = [bins for bins in runs if tuple((one.low, one.high) for one in bins) == usual]
    result = []
    for same in zip(*runs, strict=True):
        total = sum(one.count for one in same)
        if total:
            confidence = sum(one.confidence * one.count for one in same if one.count) / total
            accuracy = sum(one.accuracy * one.count for one in same if one.count) / total
            result.append(Bin(same[0].low, same[0].high, total, confidence, accuracy))
    return result


def _bin(given: Any) -> Bin | None:
    """A bin of a row's detail; an empty one may have no confidence and accuracy."""
    if not isinstance(given, dict):
        return None

    def real(key: str) -> float:
        value = given.get(key)
        return float(value) if isinstance(value, int | float) else math.nan

    low, high, count = real("lo"), real("hi"), real("count")
    confidence, accuracy = real("confidence"), real("accuracy")
    if not (math.isfinite(low) and math.isfinite(high) and math.isfinite(count)):
        return None
    if not (math.isfinite(confidence) and math.isfinite(accuracy)):
        count = 0
    return Bin(low, high, int(count), confidence, accuracy)


def _ece(group: Group, method: str) -> str:
    cell = cells.estimate(ECE, group.values(ECE, method), {})
    return "" if cell.missing else f"ECE {cell.text} %"


def _diagram(axes: Axes, method: str, bins: list[Bin], ece: str) -> None:
    colour = look(method).colour
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.9, dashes=(3, 2))
    for one in bins:
        few = one.count < _FEW
        axes.bar(
            one.low,
            one.accuracy,
            one.high - one.low,
            align="edge",
            color=colour,
            alpha=0.06 if few else 0.30,
            linewidth=0,
        )
        strong = 0.35 if few else 1.0
        ends = [one.accuracy, one.confidence]
        axes.plot(
            [one.low, one.high], [one.accuracy] * 2, color=colour, linewidth=1.8, alpha=strong
        )
        axes.plot([one.confidence] * 2, ends, color=INK, linewidth=0.8, alpha=strong)
        middle, width = (one.low + one.high) / 2, (one.high - one.low) / 5
        for end in one.interval:
            axes.plot(
                [middle - width, middle + width],
                [end] * 2,
                color=colour,
                linewidth=0.8,
                alpha=strong,
            )
        axes.plot([middle] * 2, one.interval, color=colour, linewidth=0.8, alpha=strong)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.02)
    axes.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes.set_xticks([0, 0.5, 1])
    axes.set_title(canvas.label(method), fontsize=8.5)
    axes.text(0.03, 0.93, ece, fontsize=8, color=MUTED, va="top", transform=axes.transAxes)


def _counts(axes: Axes, method: str, bins: list[Bin], most: int) -> None:
    for one in bins:
        axes.bar(
            one.low,
            one.count,
            one.high - one.low,
            align="edge",
            color=look(method).colour,
            alpha=0.75,
            linewidth=0,
        )
    axes.set_xlim(0, 1)
    axes.set_yscale("log")
    canvas.logarithmic(axes.yaxis, [1, most])
    axes.set_ylim(0.7, most * 1.6)
    axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])


def _caption(group: Group) -> Text:
    examples = group.examples(ECE)
    return say(
        "All seeds together{n}. Bars: accuracy of the predictions in a range of confidence; ticks "
        "to the mean confidence there: the gap that the ECE averages, weighted by the counts "
        "below (logarithmic). Whiskers: 95 % of the accuracy (Wilson), as if predictions were "
        "independent; those of several seeds on one test set are not quite. The dashed line is "
        "perfect calibration. Faint: fewer than {few} predictions, which say little.",
        few=_FEW,
        n=f", {examples[0]} test examples each" if len(examples) == 1 else "",
    )


def _data(name: str, title: str, found: dict[str, list[Bin]]) -> Table:
    columns = (
        Column("method", "Method", numeric=False),
        Column("low", "From"),
        Column("high", "To"),
        Column("count", "Count"),
        Column("confidence", "Confidence"),
        Column("accuracy", "Accuracy"),
        Column("accuracy_low", "Accuracy, lower end"),
        Column("accuracy_high", "Accuracy, upper end"),
    )
    rows: list[tuple[Cell, ...]] = [
        (
            cells.name(method),
            cells.number(one.low, f"{one.low:.3g}"),
            cells.number(one.high, f"{one.high:.3g}"),
            cells.number(one.count),
            cells.number(one.confidence, f"{one.confidence:.4f}"),
            cells.number(one.accuracy, f"{one.accuracy:.4f}"),
            *(cells.number(end, f"{end:.4f}") for end in one.interval),
        )
        for method, bins in found.items()
        for one in bins
    ]
    return Table(name, title, columns, tuple(rows))
