"""Tables as CSV in stored units, one header line.

Twelve digits: beyond them, versions of numerical libraries differ.
"""

from __future__ import annotations

import csv
import io
import math

from attndrop_repro.report.table import Raw, Table

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_text(table: Table) -> str:
    """A table as CSV (RFC 4180, LF).

    A column with several suffixes becomes several: ``accuracy``, ``accuracy_low``, ... A text that
    a spreadsheet would take for a formula gets an apostrophe in front.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        f"{column.key}_{suffix}" if suffix else column.key
        for column in table.columns
        for suffix in column.suffixes
    )
    for row in table.rows:
        writer.writerow(
            _written(cell.raw.get(suffix))
            for column, cell in zip(table.columns, row, strict=True)
            for suffix in column.suffixes
        )
    return out.getvalue()


def _written(value: Raw) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.12g}" if math.isfinite(value) else ""
    text = str(value)
    if isinstance(value, str) and text.startswith(_FORMULA):
        return f"'{text}"
    return text
