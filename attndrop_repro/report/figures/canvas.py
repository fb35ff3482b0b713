"""What all figures share: type, axes, lines and bands, and how they become SVG and PNG."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from attndrop_repro.report.palette import GRID, INK, MUTED, PAPER, look
from attndrop_repro.report.prose import Text
from attndrop_repro.report.table import Table

WIDTH = 10.4  # inches; the page's full column
DPI = 160

_STYLE: dict[str, Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 7,
    "axes.labelsize": 9,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": MUTED,
    "axes.titlecolor": INK,
    "axes.linewidth": 0.7,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.unicode_minus": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "figure.facecolor": PAPER,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.7,
    "lines.markersize": 5,
    "svg.fonttype": "none",
    "mathtext.default": "regular",
    "text.parse_math": False,  # a method may be called a$b
}


@dataclass(frozen=True)
class Picture:
    """A figure ready to be written.

    Attributes:
        name: For files and anchors.
        title: One line.
        alt: What it shows, for those who do not see it.
        caption: How to read it.
        svg: Text of the SVG file.
        png: Bytes of the PNG file.
        data: What is drawn, as a table.
    """

    name: str
    title: str
    alt: str
    caption: Text
    svg: str = field(repr=False)
    png: bytes = field(repr=False)
    data: Table = field(repr=False)


def style() -> Any:
    """A context in which figures are drawn; matplotlib's own settings are as before after it."""
    context: dict[Any, Any] = dict(matplotlib.rcParamsDefault)
    for name in ("backend", "backend_fallback"):
        context.pop(name, None)
    return matplotlib.rc_context(context | _STYLE)


def rendered(figure: Figure, name: str) -> tuple[str, bytes]:
    """A figure as SVG and PNG: equal bytes for an equal figure.

    Args:
        figure: Drawn in `style`.
        name: Makes the ids of its parts differ from those of other figures on a page.
    """
    if figure.get_layout_engine() is not None:
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # laid out once; every save would do it again
    vector, bitmap = io.BytesIO(), io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": f"attndrop-{name}"}):
        figure.savefig(vector, format="svg", metadata={"Date": None, "Creator": None})
    figure.savefig(bitmap, format="png", dpi=DPI, metadata={"Software": None})
    return vector.getvalue().decode(), bitmap.getvalue()


def line(
    axes: Axes,
    method: str,
    x: Sequence[float],
    y: Sequence[float],
    *,
    quiet: bool = False,
    **more: Any,
) -> None:
    """A method's line in its look; `quiet` draws it as background.

    Args:
        axes: Where.
        method: Whose look.
        x: Positions.
        y: Values; NaN breaks the line.
        quiet: Thin, without markers.
        more: For `Axes.plot`.
    """
    own = look(method)
    settings: dict[str, Any] = {
        "color": own.colour,
        "marker": "" if quiet else own.marker,
        "markerfacecolor": PAPER if own.hollow else own.colour,
        "markeredgecolor": own.colour,
        "markeredgewidth": 1.1,
        "linewidth": 1.0 if quiet else 1.7,
    }
    if own.dash:
        settings["dashes"] = own.dash
    axes.plot(x, y, **(settings | more))


def band(
    axes: Axes, method: str, x: Sequence[float], low: Sequence[float], high: Sequence[float]
) -> None:
    """A method's interval behind its line."""
    axes.fill_between(x, low, high, color=look(method).colour, alpha=0.16, linewidth=0)


def logarithmic(axis: Axis, values: Sequence[float], *, few: bool = False) -> None:
    """Ticks of a logarithmic axis as plain numbers; between powers of ten where they are few.

    Args:
        axis: Whose scale is logarithmic.
        values: What is drawn, positive.
        few: Whether there is little room for ticks.
    """
    decades = math.log10(max(values) / min(values)) if values else 0.0
    if decades < (0.5 if few else 0.8):
        axis.set_major_locator(MaxNLocator(3 if few else 5))
    else:
        subs = (1.0,) if decades > (1.4 if few else 2.5) else (1.0, 2.0, 5.0)
        axis.set_major_locator(LogLocator(subs=subs, numticks=4 if few else 8))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: f"{value:g}")


def handle(method: str) -> Line2D:
    """What stands for a method in a legend."""
    own = look(method)
    entry = Line2D(
        [],
        [],
        color=own.colour,
        marker=own.marker,
        markersize=5,
        markerfacecolor=PAPER if own.hollow else own.colour,
        markeredgecolor=own.colour,
        linewidth=1.7,
        label=label(method, 60).replace("\n", ""),
    )
    if own.dash:
        entry.set_dashes(own.dash)
    return entry


def legend(figure: Figure, methods: Sequence[str]) -> None:
    """One legend above all axes."""
    figure.legend(
        handles=[handle(method) for method in methods],
        loc="outside upper left",
        ncols=_legend_columns(methods),
        borderaxespad=0.2,
        columnspacing=1.6,
        handlelength=2.6,
        labelspacing=0.45,
    )


def legend_height(methods: Sequence[str]) -> float:
    """How many inches `legend` needs: figures grow by them."""
    return 0.19 * math.ceil(len(methods) / _legend_columns(methods))


def _legend_columns(methods: Sequence[str]) -> int:
    """As many columns as the names leave room for; matplotlib fills them one by one."""
    for columns in range(len(methods), 1, -1):
        short, longer = divmod(len(methods), columns)
        sizes = [short + (index < longer) for index in range(columns)]
        ends = [sum(sizes[: index + 1]) for index in range(columns)]
        longest = [
            max(len(method) for method in methods[end - size : end])
            for size, end in zip(sizes, ends, strict=True)
        ]
        if sum(0.085 * length + 0.65 for length in longest) < WIDTH:
            return columns
    return 1


def label(method: str, width: int = 32) -> str:
    """A method's name for an axis or a title: long ones are broken behind "+", or cut."""
    *heads, last = method.split("+")
    lines = [""]
    for part in [*(f"{head}+" for head in heads), last]:
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(line if len(line) <= width else line[: width - 1] + "…" for line in lines)


def panels(count: int, *, most: int = 4) -> tuple[int, int]:
    """Rows and columns for so many small axes."""
    columns = min(count, most)
    return math.ceil(count / columns), columns


@dataclass(frozen=True)
class Place:
    """Where one of many small axes goes.

    Attributes:
        box: Left, bottom, width, height in inches.
        first: Whether it is the first of its row: it alone has labels at the left.
        lowest: Whether nothing is below it: then it has labels at the bottom.
    """

    box: tuple[float, float, float, float]
    first: bool
    lowest: bool


def grid(
    methods: Sequence[str], height: float, *, above: float = 0.0
) -> tuple[Figure, list[Place]]:
    """A figure with a place for each method, under its name.

    Placed by hand and not by matplotlib's layout, whose time grows with the square of the number
    of axes; nor do the axes share their limits, for the same reason.

    Args:
        methods: One a place.
        height: Of a place, in inches.
        above: Room at the top, for a legend.
    """
    rows, columns = panels(len(methods))
    lines = max(label(method).count("\n") + 1 for method in methods)
    left, right, between, bottom = 0.62, 0.12, 0.2, 0.52
    name = 0.14 * lines + 0.13
    total = above + rows * (name + height) + (rows - 1) * 0.14 + bottom
    width = (WIDTH - left - right - between * (columns - 1)) / columns
    places = []
    for index in range(len(methods)):
        row, column = divmod(index, columns)
        places.append(
            Place(
                (
                    left + column * (width + between),
                    total - above - (row + 1) * (name + height) - row * 0.14,
                    width,
                    height,
                ),
                column == 0,
                index + columns >= len(methods),
            )
        )
    return Figure(figsize=(WIDTH, total)), places


def axes_at(figure: Figure, place: Place, part: tuple[float, float] = (0.0, 1.0)) -> Axes:
    """Axes at a place, or in a part of its height, labelled as the place says."""
    width, height = figure.get_size_inches()
    x, y, w, h = place.box
    low, high = part
    axes = figure.add_axes(
        (x / width, (y + low * h) / height, w / width, (high - low) * h / height)
    )
    axes.tick_params(labelleft=place.first, labelbottom=place.lowest)
    return axes
