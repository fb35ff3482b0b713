"""The HTML page: one file that needs nothing else, no network, no fonts."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

import attndrop_repro
from attndrop_repro.config.suite import Suite
from attndrop_repro.report import palette
from attndrop_repro.report.chapter import Chapter
from attndrop_repro.report.figures.canvas import Picture
from attndrop_repro.report.group import Group
from attndrop_repro.report.inline_svg import inline, variable
from attndrop_repro.report.table import Cell, Table

_SECOND_PLACES = re.compile(r"(?<=[+-])")


@dataclass(frozen=True)
class Mark:
    """A drawn interval in a cell, in hundredths of the cell's width.

    Attributes:
        mean: Position of the mean.
        low: Of the interval's lower end; None without an interval.
        high: Of its upper end.
        reference: Of the baseline's mean; None without one.
        colour: The method's.
    """

    mean: float
    low: float | None
    high: float | None
    reference: float | None
    colour: str


def page(suite: Suite, chapters: Sequence[Chapter]) -> str:
    """The page of a report.

    Args:
        suite: What was compared.
        chapters: One a recipe.
    """
    themed = _themed(chapters)
    script = _read("page.js")
    several = len(chapters) > 1
    environment = _environment()
    environment.globals |= {
        "look": palette.look,
        "variable": variable,
        "breakable": _breakable,
        "inline": lambda picture, prefix: _inline(picture, prefix, themed),
        "marks_of": marks,
        "methods": frozenset(method for one in chapters for method in one.group.methods),
    }
    return environment.get_template("page.html.j2").render(
        suite=suite,
        chapters=chapters,
        prefixes=[f"{_anchor(one.group.recipe)}-" if several else "" for one in chapters],
        css=Markup(_css(themed)),
        script=Markup(script),
        script_hash=f"sha256-{_digest(script)}",
        version=attndrop_repro.__version__,
    )


def marks(table: Table, group: Group) -> list[list[Mark | None]]:
    """A mark for every cell with an estimate: one scale a column, so that they compare."""
    found: list[list[Mark | None]] = [[None] * len(row) for row in table.rows]
    for place, column in enumerate(table.columns):
        cells = [row[place] for row in table.rows]
        ends = [end for cell in cells for end in cell.span]
        if len(column.suffixes) < 2 or not ends:
            continue
        scale: Callable[[float], float] = math.log if column.log else float
        low, width = scale(min(ends)), scale(max(ends)) - scale(min(ends))

        def at(
            value: float,
            scale: Callable[[float], float] = scale,
            low: float = low,
            width: float = width,
        ) -> float:
            return round(2 + 96 * (scale(value) - low) / width, 2) if width else 50.0

        methods = [_method(row) for row in table.rows]
        means = dict(zip(methods, (cell.span[:1] for cell in cells), strict=True))
        base = means.get(group.baseline or "", ())
        for index, (method, cell) in enumerate(zip(methods, cells, strict=True)):
            if cell.span:
                banded = len(cell.span) == 3
                found[index][place] = Mark(
                    at(cell.span[0]),
                    at(cell.span[1]) if banded else None,
                    at(cell.span[2]) if banded else None,
                    at(base[0]) if base else None,
                    variable(palette.look(method).colour),
                )
    return found


def _method(row: Sequence[Cell]) -> str:
    return row[0].text


def _inline(picture: Picture, prefix: str, themed: dict[str, str]) -> Markup:
    return Markup(inline(picture.svg, f"{prefix}{picture.name}", picture.alt, themed))


def _breakable(text: str) -> Markup:
    """A name that may break behind its hyphens and plus signs."""
    return Markup("<wbr>").join(escape(part) for part in _SECOND_PLACES.split(text))


def _themed(chapters: Sequence[Chapter]) -> dict[str, str]:
    """Every colour that a figure may have, with the one for a dark page."""
    looks = [palette.look(method) for one in chapters for method in one.group.methods]
    return {**palette.DARK, **{look.colour: look.dark for look in looks}}


def _css(themed: dict[str, str]) -> str:
    lines = "\n".join(f"    --c{light[1:]}: {dark};" for light, dark in sorted(themed.items()))
    return _read("page.css").replace("    /* figures */", lines)


def _anchor(text: str) -> str:
    return re.sub(r"[^a-z0-9-]+", "-", text.lower())


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


@lru_cache
def _read(name: str) -> str:
    return (resources.files("attndrop_repro.report") / "templates" / name).read_text("utf-8")


def _environment() -> Environment:
    return Environment(
        loader=FunctionLoader(_read),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
