"""The tidy table as one file, CSV or parquet, and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.store.atomic import check_target, write_bytes
from attndrop_repro.store.schema import SCHEMA

if TYPE_CHECKING:
    from attndrop_repro.store.store import Store

Format = Literal["csv", "parquet"]


def export(
    store: Store, out: Path | BinaryIO, format: Format = "csv", *, dedupe: bool = True
) -> int:
    """Writes the table.

    In CSV all text is in quotes and a missing value is nothing between two commas, so text that
    looks like something else stays text; `read_export` reads either format back exactly. With
    pandas, use ``read_csv(file, keep_default_na=False, na_values=[""])`` and give text columns
    ``dtype=str``.

    Args:
        store: The store.
        out: A file, written beside and renamed; or a binary stream, such as standard output.
        format: The form.
        dedupe: Of rows that measure the same, only the newest.

    Returns:
        The number of rows.

    Raises:
        UsageError: The file's folder is not there.
        AttndropError: The disk is full, or the folder cannot be written.
    """
    if isinstance(out, Path):
        check_target(out)
    table = store.table(dedupe=dedupe)
    sink = pa.BufferOutputStream()
    if format == "csv":
        csv.write_csv(table, sink)
    else:
        pq.write_table(table, sink, compression="zstd")
    content = sink.getvalue().to_pybytes()
    if isinstance(out, Path):
        write_bytes(out, content)
    else:
        out.write(content)
    return int(table.num_rows)


def read_export(path: Path) -> pa.Table:
    """Reads an exported table; the format follows from the file's first bytes.

    Raises:
        AttndropError: It is not such a file.
    """
    options: Any = csv.ConvertOptions(
        column_types=SCHEMA,
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        null_values=[""],
    )
    try:
        content = path.read_bytes()
        if content[:4] == b"PAR1":
            return pq.read_table(pa.BufferReader(content))
        return csv.read_csv(
            pa.BufferReader(content),
            parse_options=csv.ParseOptions(newlines_in_values=True),
            convert_options=options,
        )
    except (OSError, pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise AttndropError(
            f"{path} is no exported table: {' '.join(str(error).split())}"
        ) from None
