"""A table before it is Markdown, CSV, LaTeX or HTML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from attndrop_repro.report.prose import Text

Raw = float | int | str | None


@dataclass(frozen=True)
class Cell:
    """One cell.

    Attributes:
        text: What is printed; the reason where a value is missing.
        interval: As in "[93.1, 95.2]", or empty.
        n: Seeds behind it; None where that means nothing.
        code: Whether the text is a name.
        missing: Whether the text says why there is no value.
        strong: Whether it stands out: significant after correction, a failed run.
        raw: For CSV, unrounded and unscaled, by suffix of the column's name.
        span: Value and interval for a drawn mark, in stored units; empty without one.
    """

    text: str
    interval: str = ""
    n: int | None = None
    code: bool = False
    missing: bool = False
    strong: bool = False
    raw: Mapping[str, Raw] = field(default_factory=dict)
    span: tuple[float, ...] = ()


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        key: Its name in CSV.
        title: Its heading.
        unit: As in "%"; empty for none.
        better: +1 higher, -1 lower, 0 neither.
        numeric: Whether it is set to the right.
        suffixes: Columns it becomes in CSV: `key` with each of these; "" is the plain one.
        optional: Whether it is shown only where a cell has text; CSV always has it.
        wide: Whether its texts are long and may break.
        log: Whether its drawn marks are on a logarithmic scale.
        csv_only: Whether it is never shown, as where headings of groups say the same.
    """

    key: str
    title: str
    unit: str = ""
    better: int = 0
    numeric: bool = True
    suffixes: tuple[str, ...] = ("",)
    optional: bool = False
    wide: bool = False
    log: bool = False
    csv_only: bool = False

    @property
    def heading(self) -> str:
        """Title with unit and direction."""
        unit = f" ({self.unit})" if self.unit else ""
        return f"{self.title}{unit}{self.arrow}"

    @property
    def arrow(self) -> str:
        """Which way is better."""
        return {1: " ↑", -1: " ↓"}.get(self.better, "")


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        name: For files and anchors.
        title: One line.
        columns: All columns; the first one names the row.
        rows: Cells, as many as columns.
        groups: Heading of the rows from that index on; empty when rows are not grouped.
        notes: What stands below.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    groups: Mapping[int, str] = field(default_factory=dict)
    notes: tuple[Text, ...] = ()

    def shown(self) -> Table:
        """The table without columns that are for CSV only, or optional and empty."""
        kept = [
            place
            for place, column in enumerate(self.columns)
            if not column.csv_only
            and (not column.optional or any(row[place].text for row in self.rows))
        ]
        return replace(
            self,
            columns=tuple(self.columns[place] for place in kept),
            rows=tuple(tuple(row[place] for place in kept) for row in self.rows),
        )
