"""Learning curves: training loss and validation accuracy over epochs."""

from __future__ import annotations

import math

from matplotlib.figure import Figure

from attndrop_repro.report.figures import canvas, curves
from attndrop_repro.report.figures.curves import Curve
from attndrop_repro.report.group import Group
from attndrop_repro.report.prose import count, say

_PANELS = (
    ("train_loss", "Training loss", "loss", 1.0),
    ("validation_accuracy", "Validation accuracy", "accuracy, %", 100.0),
)


def learning(group: Group) -> list[canvas.Picture]:
    """A picture of the histories; none where the store has none."""
    found = {
        key: [one for method in group.methods if len((one := _curve(group, method, key)).x) > 1]
        for key, *_ in _PANELS
    }
    shown = [panel for panel in _PANELS if found[panel[0]]]
    if not shown:
        return []
    name, title = "learning-curves", "Learning curves"
    drawn = {one.method for ones in found.values() for one in ones}
    methods = [method for method in group.methods if method in drawn]
    with canvas.style():
        height = 3.1 + canvas.legend_height(methods)
        figure = Figure(figsize=(canvas.WIDTH, height), layout="constrained")
        axes = figure.subplots(1, len(shown), squeeze=False).ravel()
        for ax, (key, heading, label, scale) in zip(axes, shown, strict=True):
            for one in found[key]:
                canvas.line(
                    ax,
                    one.method,
                    one.x,
                    [value * scale for value in one.y],
                    linewidth=1.3,
                    markersize=4,
                    markevery=max(1, len(one.x) // 8),
                )
            if key == "train_loss" and curves.logarithmic(found[key]):
                ax.set_yscale("log")
                canvas.logarithmic(ax.yaxis, [value for one in found[key] for value in one.y])
            ax.set_title(heading)
            ax.set_xlabel("epoch")
            ax.set_ylabel(label)
        canvas.legend(figure, methods)
        svg, png = canvas.rendered(figure, f"{group.recipe}-{name}")
    return [
        canvas.Picture(
            name,
            title,
            f"Line charts of training loss and validation accuracy over epochs for "
            f"{count(len(methods), 'method')}.",
            say(
                "Means over seeds. The training loss of a method contains its own terms (a "
                "consistency term, a penalty): compare its course, not its height."
            ),
            svg,
            png,
            curves.data(
                name, title, "Epoch", [(key, one) for key, *_ in _PANELS for one in found[key]]
            ),
        )
    ]


def _curve(group: Group, method: str, key: str) -> Curve:
    points: dict[float, list[float]] = {}
    for seed in group.seeds:
        run = group.runs.get((method, seed))
        latest: dict[float, float] = {}  # a resumed run may have written an epoch twice
        for row in run.history if run is not None else ():
            epoch, value = row.get("epoch"), row.get(key)
            if isinstance(epoch, int | float) and isinstance(value, int | float):
                latest[float(epoch)] = float(value)
        for epoch, value in latest.items():
            if math.isfinite(value):
                points.setdefault(epoch, []).append(value)
    return curves.curve(method, points)
