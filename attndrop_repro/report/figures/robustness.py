"""Robust accuracy against eps: all methods at once, and each one's difference from the baseline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from attndrop_repro.report.figures import canvas, curves
from attndrop_repro.report.figures.curves import Curve
from attndrop_repro.report.group import Group
from attndrop_repro.report.palette import MUTED, look
from attndrop_repro.report.prose import Code, count, say
from attndrop_repro.report.quantities import ACCURACY

_MOST_ATTACKS = 3
_DASHES: tuple[tuple[float, ...], ...] = ((), (1.3, 1.3), (4.0, 1.4, 1.3, 1.4))


def robustness(group: Group) -> list[canvas.Picture]:
    """Pictures of robust accuracy; none where no attack was measured."""
    found = {
        attack: ones for attack in group.attacks() if (ones := _curves(group, attack, clean=True))
    }
    if not found:
        return []
    pictures = [_overview(group, found)]
    if group.baseline is not None:
        differences = {
            attack: ones
            for attack in [label for label in found if "l2" not in label][:_MOST_ATTACKS]
            if (ones := _curves(group, attack, minus=group.baseline))
        }
        if differences:
            pictures.append(_differences(group, group.baseline, differences))
    return pictures


def _curves(
    group: Group, attack: str, *, clean: bool = False, minus: str | None = None
) -> list[Curve]:
    """A curve a method, x in 1/255.

    Args:
        group: The runs.
        attack: The attack.
        clean: Whether accuracy without attack stands at 0, if it is of the same examples.
        minus: Take this method's value off, seed by seed, and leave its own curve out.
    """
    grid = group.grid(attack)
    if clean and all(group.examples(one) == group.examples(ACCURACY) for one in grid):
        grid = [ACCURACY, *(one for one in grid if one.eps > 0)]
    result = []
    for method in group.methods:
        if method == minus:
            continue
        points: dict[float, list[float]] = {}
        for quantity in grid:
            x = 0.0 if quantity == ACCURACY else quantity.eps * 255
            values = group.values(quantity, method)
            if minus is not None:
                reference = group.values(quantity, minus)
                values = {
                    seed: values[seed] - reference[seed] for seed in values if seed in reference
                }
            if math.isfinite(x):
                points.setdefault(x, []).extend(values.values())
        one = curves.curve(method, points)
        if any(x > 0 for x in one.x):
            result.append(one)
    return result


def _overview(group: Group, found: Mapping[str, list[Curve]]) -> canvas.Picture:
    name, title = "robustness", "Robust accuracy against eps"
    drawn = {one.method for ones in found.values() for one in ones}
    methods = [method for method in group.methods if method in drawn]
    with canvas.style():
        rows, columns = canvas.panels(len(found), most=2)
        height = 3.4 * rows + canvas.legend_height(methods)
        figure = Figure(figsize=(canvas.WIDTH, height), layout="constrained")
        axes = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
        for index, (attack, ones) in enumerate(found.items()):
            for one in ones:
                curves.draw(axes[index], one, scale=100)
            axes[index].set_title(attack)
            axes[index].set_xlabel("eps, in 1/255 of the pixel range")
            _eps_axis(axes[index], ones)
            if index % columns == 0:
                axes[index].set_ylabel("accuracy, %")
        axes[0].set_ylim(bottom=max(0.0, axes[0].get_ylim()[0]))
        for spare in axes[len(found) :]:
            spare.set_axis_off()
        canvas.legend(figure, methods)
        svg, png = canvas.rendered(figure, f"{group.recipe}-{name}")
    zero = any(one.x[0] == 0 for ones in found.values() for one in ones)
    return canvas.Picture(
        name,
        title,
        f"Line charts of accuracy under {' and '.join(found)} against eps for "
        f"{count(len(methods), 'method')}; the values are in the figure's data.",
        say("Means over seeds.{zero}", zero=" At 0: accuracy without attack." if zero else ""),
        svg,
        png,
        curves.data(name, title, "eps × 255", _series(found)),
    )


def _differences(group: Group, baseline: str, found: Mapping[str, list[Curve]]) -> canvas.Picture:
    name, title = "robustness-differences", f"Robust accuracy: differences from {baseline}"
    drawn = {one.method for ones in found.values() for one in ones}
    methods = [method for method in group.others if method in drawn]
    everything = [one for ones in found.values() for one in ones]
    with canvas.style():
        figure, places = canvas.grid(methods, 1.5, above=0.3)
        for place, method in zip(places, methods, strict=True):
            axes = canvas.axes_at(figure, place)
            axes.axhline(0, color=MUTED, linewidth=0.9)
            for dash, ones in zip(_DASHES, found.values(), strict=False):
                for one in ones:
                    if one.method == method:
                        _difference(axes, one, dash)
            axes.set_title(canvas.label(method), fontsize=8.5)
            axes.set_ylim(*_symmetric(everything))
            _eps_axis(axes, everything)
            if place.first:
                axes.set_ylabel("points")
            if place.lowest:
                axes.set_xlabel("eps × 255")
        figure.legend(
            handles=[
                Line2D([], [], color=MUTED, label=attack, dashes=dash or (None, None))
                for dash, attack in zip(_DASHES, found, strict=False)
            ],
            loc="upper left",
            ncols=len(found),
            borderaxespad=0.2,
            handlelength=2.6,
        )
        svg, png = canvas.rendered(figure, f"{group.recipe}-{name}")
    return canvas.Picture(
        name,
        title,
        f"One small chart for each of {count(len(methods), 'method')}: difference of robust "
        f"accuracy from {baseline} against eps, with 95 % intervals around a line at zero.",
        say(
            "Method minus {baseline} at equal eps, paired by seed: mean and 95 % t-interval "
            "(not corrected for the number of comparisons).",
            baseline=Code(baseline),
        ),
        svg,
        png,
        curves.data(name, title, "eps × 255", _series(found)),
    )


def _difference(axes: Axes, one: Curve, dash: Sequence[float]) -> None:
    if one.banded:
        low, high = ([end * 100 for end in ends] for ends in (one.low, one.high))
        canvas.band(axes, one.method, one.x, low, high)
    style = {"dashes": dash} if dash else {"linestyle": "-"}
    axes.plot(
        one.x,
        [value * 100 for value in one.y],
        color=look(one.method).colour,
        linewidth=1.7,
        marker="o",
        markersize=3,
        **style,
    )


def _symmetric(ones: Sequence[Curve]) -> tuple[float, float]:
    """Ends of the axis in points: all intervals, unless some are out of all proportion."""
    means = max(abs(value) for one in ones for value in one.y)
    ends = max(abs(end) for one in ones for end in (*one.low, *one.high))
    size = 105 * min(ends, 4 * means) or 1.0
    return -size, size


def _series(found: Mapping[str, list[Curve]]) -> list[tuple[str, Curve]]:
    return [(attack, one) for attack, ones in found.items() for one in ones]


def _eps_axis(axes: Axes, ones: Sequence[Curve]) -> None:
    """Ticks at the measured eps, without those that would run into their neighbour."""
    positions = sorted({x for one in ones for x in one.x})
    span = positions[-1] - positions[0]
    kept: list[float] = []
    for x in reversed(positions):
        if not kept or kept[-1] - x >= span * 0.045:
            kept.append(x)
    room = 0.05 * span or 0.5
    axes.set_xlim(positions[0] - room, positions[-1] + room)
    axes.set_xticks(kept, [f"{x:.3g}" for x in kept])
