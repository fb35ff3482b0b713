"""Tables and text as Markdown (GitHub's)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from attndrop_repro.report.prose import Code, Text
from attndrop_repro.report.table import Cell, Table

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~$&])")


def escaped(text: str) -> str:
    """Plain text in which nothing is markup, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def code(text: str) -> str:
    """A name in a code span; a bar is safe in a table cell."""
    line = " ".join(text.split()) or " "
    fence = "`"
    while fence in line:
        fence += "`"
    pad = " " if "`" in line else ""
    return f"{fence}{pad}{line}{pad}{fence}".replace("|", "\\|")


def prose(text: Text) -> str:
    """A sentence."""
    # Spaces around names matter, so parts are escaped as they are.
    return "".join(
        code(part.text)
        if isinstance(part, Code)
        else _SPECIAL.sub(r"\\\1", re.sub(r"\s+", " ", part))
        for part in text
    )


def table(given: Table) -> str:
    """A table with its notes; rows of a group follow a line that names it."""
    given = given.shown()
    lines = [
        _row([escaped(column.heading) for column in given.columns]),
        _row(["---:" if column.numeric else "---" for column in given.columns]),
    ]
    for index, row in enumerate(given.rows):
        if index in given.groups:
            blank = [""] * (len(given.columns) - 1)
            lines.append(_row([f"**{escaped(given.groups[index])}**", *blank]))
        lines.append(_row([_cell(cell) for cell in row]))
    parts = ["\n".join(lines)] if given.rows else []
    return "\n\n".join([*parts, *(prose(note) for note in given.notes)])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell) -> str:
    if cell.missing:
        return f"*{escaped(cell.text)}*"
    text = code(cell.text) if cell.code and cell.text else escaped(cell.text)
    if cell.strong:
        text = f"**{text}**"
    if cell.interval:
        text += f" {escaped(cell.interval)}"
    if cell.n is not None:
        text += f" n={cell.n}"
    return text
