"""Forest plot: every method's paired difference from the baseline, quantity by quantity."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import groupby

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from attndrop_repro.report.comparisons import Comparison
from attndrop_repro.report.figures import canvas
from attndrop_repro.report.group import Group
from attndrop_repro.report.palette import INK, MUTED, PAPER, SHADE, Look, look
from attndrop_repro.report.prose import Code, count, say
from attndrop_repro.report.quantities import Quantity
from attndrop_repro.report.statistics import Difference
from attndrop_repro.report.tables import difference_table

_ACROSS = 4


def forest(group: Group, comparisons: Sequence[Comparison]) -> list[canvas.Picture]:
    """The forest plot; none where nothing can be compared."""
    drawn = [
        (quantity, {one.method: one for one in ones if one.difference is not None})
        for quantity, ones in (
            (quantity, list(found))
            for quantity, found in groupby(comparisons, key=lambda one: one.quantity)
        )
    ]
    drawn = [(quantity, ones) for quantity, ones in drawn if ones]
    if not drawn or group.baseline is None:
        return []
    methods = [m for m in group.others if any(m in ones for _, ones in drawn)]
    name, title = "differences", f"Differences from {group.baseline}"
    with canvas.style():
        rows, columns = canvas.panels(len(drawn), most=_ACROSS)
        lines = max(canvas.label(method).count("\n") + 1 for method in methods)
        height = rows * (0.95 + (0.13 + 0.14 * lines) * len(methods))
        figure = Figure(figsize=(canvas.WIDTH, height), layout="constrained")
        axes = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
        for index, (quantity, ones) in enumerate(drawn):
            _panel(axes[index], quantity, ones, methods)
        for spare in axes[len(drawn) :]:
            spare.set_axis_off()
        svg, png = canvas.rendered(figure, f"{group.recipe}-{name}")
    return [
        canvas.Picture(
            name,
            title,
            f"Forest plot: differences of {count(len(methods), 'method')} from {group.baseline} on "
            f"{len(drawn)} quantities with 95 % intervals around the line of no difference.",
            say(
                "Method minus {baseline} (ratio: over it), paired by seed: mean and 95 % "
                "t-interval, before correction. Filled: significant after Holm's correction; "
                "open: not. Grey: "
                "differences that this n and this spread could not reliably have shown.",
                baseline=Code(group.baseline),
            ),
            svg,
            png,
            difference_table(group, comparisons),
        )
    ]


def _panel(
    axes: Axes, quantity: Quantity, ones: dict[str, Comparison], methods: Sequence[str]
) -> None:
    neutral = 1.0 if quantity.ratio else 0.0
    axes.axvline(neutral, color=MUTED, linewidth=0.9)
    if quantity.ratio:
        axes.set_xscale("log")
    for place, method in enumerate(methods):
        one = ones.get(method)
        if one is None or one.difference is None:
            axes.text(neutral, place, " no data", va="center", fontsize=7, color=MUTED)
        else:
            _row(axes, place, quantity, look(method), one.difference)
    low, high = _ends(quantity, list(ones.values()))
    axes.set_xlim(low, high)
    if quantity.ratio:
        canvas.logarithmic(axes.xaxis, [low, high], few=True)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(4))
    unit = f", {quantity.unit_apart}" if quantity.unit_apart else ""
    axes.set_title(textwrap.fill(f"{quantity.title}{unit}", 24), fontsize=8.5)
    axes.set_yticks(range(len(methods)), [canvas.label(method) for method in methods])
    axes.tick_params(axis="y", labelcolor=INK)
    axes.set_ylim(len(methods) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    if quantity.better:
        axes.set_xlabel("better →" if quantity.better > 0 else "← better", fontsize=8)


def _row(axes: Axes, place: int, quantity: Quantity, own: Look, difference: Difference) -> None:
    mean, scale = difference.interval, 1.0 if quantity.ratio else quantity.scale
    if difference.detectable is not None:
        high = difference.detectable * scale
        low = 1 / high if quantity.ratio else -high
        axes.barh(place, high - low, 0.72, low, color=SHADE, zorder=0)
    if mean.low is not None and mean.high is not None:
        ends = [mean.low * scale, mean.high * scale]
        axes.plot(ends, [place, place], color=own.colour, linewidth=2, solid_capstyle="butt")
    axes.plot(
        mean.mean * scale,
        place,
        marker=own.marker,
        markersize=6,
        color=own.colour,
        markerfacecolor=own.colour if difference.stands else PAPER,
        markeredgewidth=1.4,
    )


def _ends(quantity: Quantity, ones: Sequence[Comparison]) -> tuple[float, float]:
    """Ends of the axis: all intervals and no difference, with room; grey bars may go beyond."""
    ends = [1.0 if quantity.ratio else 0.0]
    for one in ones:
        if one.difference is not None:
            mean = one.difference.interval
            ends += [end for end in (mean.mean, mean.low, mean.high) if end is not None]
    if quantity.ratio:
        room = (max(ends) / min(ends)) ** 0.08 if max(ends) > min(ends) else 2.0
        return min(ends) / room, max(ends) * room
    low, high = min(ends) * quantity.scale, max(ends) * quantity.scale
    spare = 0.08 * (high - low) or 1.0
    return low - spare, high + spare
