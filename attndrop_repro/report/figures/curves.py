"""Means with intervals along an axis (eps, epochs): what several figures draw."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from attndrop_repro.report import cells, statistics
from attndrop_repro.report.figures import canvas
from attndrop_repro.report.table import Cell, Column, Table

# By position on the axis: the value of every seed.
Points = Mapping[float, Sequence[float]]


@dataclass(frozen=True)
class Curve:
    """A method's curve.

    Attributes:
        method: Whose.
        x: Positions.
        y: Means over seeds.
        low: Lower ends of the 95 % t-intervals; the mean itself where one seed is all.
        high: Upper ends.
        n: Seeds behind each point.
    """

    method: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    n: tuple[int, ...]

    @property
    def banded(self) -> bool:
        """Whether any point has an interval."""
        return any(count > 1 for count in self.n)


def curve(method: str, points: Points, *, geometric: bool = False) -> Curve:
    """Means and intervals of a method.

    Args:
        method: Whose.
        points: Values that are not finite are left out, and of geometric means those below 0 too.
        geometric: Whether means are geometric, and intervals those of the logarithms.
    """
    average = statistics.geometric_mean if geometric else statistics.mean
    found: list[tuple[float, float, float, float, int]] = []
    for x in sorted(points):
        mean = average([v for v in points[x] if math.isfinite(v) and (v > 0 or not geometric)])
        if mean is not None:
            low = mean.mean if mean.low is None else mean.low
            high = mean.mean if mean.high is None else mean.high
            found.append((x, mean.mean, low, high, mean.n))
    return Curve(
        method,
        tuple(point[0] for point in found),
        tuple(point[1] for point in found),
        tuple(point[2] for point in found),
        tuple(point[3] for point in found),
        tuple(point[4] for point in found),
    )


def draw(
    axes: Axes, one: Curve, *, quiet: bool = False, band: bool = False, scale: float = 1
) -> None:
    """A curve, with its band if wanted."""
    if band and one.banded:
        canvas.band(
            axes,
            one.method,
            one.x,
            [value * scale for value in one.low],
            [value * scale for value in one.high],
        )
    canvas.line(axes, one.method, one.x, [value * scale for value in one.y], quiet=quiet)


def logarithmic(curves: Sequence[Curve]) -> bool:
    """Whether values span so much that only a logarithmic axis shows them."""
    values = [value for one in curves for value in one.y]
    return bool(values) and min(values) > 0 and max(values) / min(values) > 8


def limits(curves: Sequence[Curve], *, log: bool) -> tuple[float, float]:
    """Ends of the y axis by the means, with room for bands that are not out of all proportion.

    Args:
        curves: At least one, with at least one point.
        log: Whether the axis is logarithmic.
    """
    means = [value for one in curves for value in one.y]
    low, high = min(means), max(means)
    if log:
        room = max((high / low) ** 0.25, 1.3)
        return low / room, high * room
    room = max((high - low) * 0.25, abs(high) * 0.02, 1e-12)
    ends = [end for one in curves for end in (*one.low, *one.high)]
    spare = 0.3 * room
    return max(min(ends) - spare, low - room), min(max(ends) + spare, high + room)


def data(name: str, title: str, axis: str, curves: Sequence[tuple[str, Curve]]) -> Table:
    """What is drawn, as a table.

    Args:
        name: Of the figure.
        title: Of the figure.
        axis: What the positions are.
        curves: With the series that each belongs to, as in ("FGSM", curve).
    """
    columns = (
        Column("series", "Series", numeric=False),
        Column("method", "Method", numeric=False),
        Column("x", axis),
        Column("mean", "Mean"),
        Column("low", "Low"),
        Column("high", "High"),
        Column("n", "n"),
    )
    rows: list[tuple[Cell, ...]] = []
    for series, one in curves:
        for x, y, low, high, n in zip(one.x, one.y, one.low, one.high, one.n, strict=True):
            ends = (low, high) if n > 1 else (None, None)
            rows.append(
                (
                    cells.text(series),
                    cells.name(one.method),
                    cells.number(x, f"{x:.6g}"),
                    cells.number(y, f"{y:.4g}"),
                    *(cells.number(e, "" if e is None else f"{e:.4g}") for e in ends),
                    cells.number(n),
                )
            )
    return Table(name, title, columns, tuple(rows))
