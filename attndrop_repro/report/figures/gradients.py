"""Gradient variance over training: all methods at once, and each with its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.figure import Figure

from attndrop_repro.report.figures import canvas, curves
from attndrop_repro.report.figures.curves import Curve
from attndrop_repro.report.group import Group
from attndrop_repro.report.prose import Code, Text, count, say

_LABEL = "gradient variance"


def gradients(group: Group) -> list[canvas.Picture]:
    """Pictures of gradient variance; none where it was not measured."""
    found = [one for method in group.methods if (one := _curve(group, method)).x]
    return [_overview(group, found), _each(group, found)] if found else []


def _curve(group: Group, method: str) -> Curve:
    points: dict[float, list[float]] = {}
    held = group.series.get("gradient_variance", {})
    for seed in group.seeds:
        for epoch, row in held.get((method, seed), {}).items():
            if epoch >= 0 and math.isfinite(row.value):
                points.setdefault(float(epoch), []).append(row.value)
    return curves.curve(method, points, geometric=True)


def _overview(group: Group, found: list[Curve]) -> canvas.Picture:
    name, title = "gradient-variance", "Gradient variance over epochs"
    log = curves.logarithmic(found)
    methods = [one.method for one in found]
    with canvas.style():
        height = 3.3 + canvas.legend_height(methods)
        figure = Figure(figsize=(canvas.WIDTH, height), layout="constrained")
        axes = figure.subplots()
        for one in found:
            curves.draw(axes, one)
        axes.set_xlabel("epoch (0: initial weights)")
        axes.set_ylabel(_LABEL)
        axes.set_xticks(sorted({x for one in found for x in one.x}))
        if log:
            axes.set_yscale("log")
            canvas.logarithmic(axes.yaxis, [value for one in found for value in one.y])
        canvas.legend(figure, methods)
        svg, png = canvas.rendered(figure, f"{group.recipe}-{name}")
    return canvas.Picture(
        name,
        title,
        f"Line chart of gradient variance over epochs for {count(len(found), 'method')}"
        f"{', on a logarithmic axis' if log else ''}.",
        say(
            "Trace of the covariance of per-sample gradients, regulariser on; geometric means "
            "over seeds{log}. The intervals are in the next figure. Gradients are those of each "
            "method's own training loss{summed}.",
            log=", logarithmic axis" if log else "",
            summed=_summed(methods),
        ),
        svg,
        png,
        curves.data(name, title, "Epoch", [("gradient_variance", one) for one in found]),
    )


def _each(group: Group, found: list[Curve]) -> canvas.Picture:
    name, title = "gradient-variance-by-method", "Gradient variance, method by method"
    log = curves.logarithmic(found)
    baseline = next((one for one in found if one.method == group.baseline), None)
    with canvas.style():
        figure, places = canvas.grid([one.method for one in found], 1.65)
        ends = curves.limits(found, log=log)
        for place, one in zip(places, found, strict=True):
            axes = canvas.axes_at(figure, place)
            if log:
                axes.set_yscale("log")
                canvas.logarithmic(axes.yaxis, list(ends))
            if baseline is not None and one is not baseline:
                curves.draw(axes, baseline, quiet=True)
            curves.draw(axes, one, band=True)
            axes.set_xlim(*_epochs(found))
            axes.set_ylim(*ends)
            axes.set_title(canvas.label(one.method), fontsize=8.5)
            if place.first:
                axes.set_ylabel(_LABEL)
            if place.lowest:
                axes.set_xlabel("epoch")
        svg, png = canvas.rendered(figure, f"{group.recipe}-{name}")
    thin = (
        say(" Thin line: {baseline}.", baseline=Code(group.baseline))
        if group.baseline is not None
        else ()
    )
    return canvas.Picture(
        name,
        title,
        "One small line chart a method: gradient variance over epochs with 95 % intervals, beside "
        "the baseline.",
        say("Geometric mean and 95 % t-interval over seeds.{thin}", thin=thin),
        svg,
        png,
        curves.data(name, title, "Epoch", [("gradient_variance", one) for one in found]),
    )


def _summed(methods: Sequence[str]) -> Text:
    """Says so where a loss is a sum of two: its gradients are about twice as large."""
    if not any("rdrop" in method.split("+") for method in methods):
        return ()
    return say("; that of {rdrop} sums the task loss of both passes", rdrop=Code("rdrop"))


def _epochs(found: Sequence[Curve]) -> tuple[float, float]:
    """Ends of the axis of epochs, with room for markers."""
    epochs = [x for one in found for x in one.x]
    room = 0.05 * (max(epochs) - min(epochs)) or 1.0
    return min(epochs) - room, max(epochs) + room
