"""What goes to stdout: JSON for programs, tables for people."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

PROSE_WIDTH = 100


class _Console(Console):
    """Nothing from outside is taken for markup, and a closed pipe is `main`'s business."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def stdout() -> Console:
    """A console on stdout: 80 columns where it is no terminal and COLUMNS says nothing."""
    return _Console(file=sys.stdout)


def stderr() -> Console:
    """A console on stderr."""
    return _Console(file=sys.stderr)


def emit_json(value: Any) -> None:
    """One JSON document on stdout; not a number and infinity become null, as JSON wants."""
    print(json.dumps(_finite(value), indent=2, ensure_ascii=False, default=str))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_finite(item) for item in value]
    return value


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: Its heading.
        prose: It may wrap; all others are never cut, so that they can be copied.
        right: Numbers.
    """

    name: str
    prose: bool = False
    right: bool = False


def emit_table(columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> None:
    """A table on stdout, as wide as the terminal, wider only where names would be cut."""
    console = stdout()
    texts = [[_clean(cell) for cell in row] for row in rows]
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    needed = 0
    for index, column in enumerate(columns):
        cells = [row[index] for row in texts]
        widest = max(cell_len(text) for text in [column.name, *cells])
        needed += (min(widest, 16) if column.prose else widest) + 2
        table.add_column(
            column.name,
            no_wrap=not column.prose,
            overflow="fold",
            justify="right" if column.right else "left",
        )
    for row in texts:
        table.add_row(*(Text(cell) for cell in row))
    _show(table, max(console.width, needed - 2))


def emit_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Names and values, one pair a line; long values wrap under themselves."""
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for name, value in fields:
        table.add_row(Text(name), Text(_clean(value)))
    _show(table, stdout().width)


def emit_paragraph(head: str, text: str) -> None:
    """A line, and under it a paragraph that is indented and wrapped."""
    print()
    print(_clean(head))
    width = min(stdout().width, PROSE_WIDTH)
    print(textwrap.fill(_clean(text), width, initial_indent="    ", subsequent_indent="    "))


def _show(table: Table, width: int) -> None:
    """Prints it without the blanks that would fill the last column."""
    console = stdout()
    console.width = width  # print's own width can only narrow it
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        print(line.rstrip())


def _clean(cell: object) -> str:
    """Text of a cell without control characters: a name must not be able to steer a terminal."""
    if cell is None:
        return "-"
    return "".join(char if char.isprintable() or char == "\n" else "�" for char in str(cell))
