"""Fewer files: many batches become one. And rows that are removed for good."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from attndrop_repro.store import measurements as files
from attndrop_repro.store.measurements import BATCH, Name, Part
from attndrop_repro.store.schema import SCHEMA

if TYPE_CHECKING:
    from attndrop_repro.store.store import Store


def compact(store: Store) -> int:
    """Joins all measurement files into one, also while others write and read.

    The new file names the batches that it holds, so from its rename on the files that it replaces
    count no more, whether or not we live to delete them. Two compactions at a time cost space, not
    rows.

    Returns:
        How many files it took the place of; 0 where there was nothing to join.

    Raises:
        AttndropError: A file is damaged, or the disk is full; nothing has changed.
    """
    contents = files.Reader(store.measurements).contents()
    if len(contents.parts) < 2:
        return 0
    batches = sorted({batch for part in contents.parts for batch in part.batches})
    batches = [batch for batch in batches if batch not in contents.removed]
    number = {batch: index for index, batch in enumerate(batches)}
    tables = [_numbered(part, table, number) for part, table in contents.pieces]
    empty = SCHEMA.empty_table().append_column(BATCH, pa.array([], pa.int32()))
    whole = pa.concat_tables([empty, *tables], promote_options="permissive")
    path = files.write_compacted(store.measurements, whole, batches, contents.removed)
    store.receive(path.name)
    _delete(store, [part.name for part in contents.parts if part.name.file != path.name])
    return len(contents.parts)


def remove_rows(store: Store, run_id: str) -> int:
    """Removes all rows of a run for good.

    A file of no rows notes their batches as removed; files that held nothing else are then
    deleted, and a compaction drops the rest.

    Returns:
        How many rows.
    """
    contents = files.Reader(store.measurements).contents()
    gone: set[str] = set()
    count = 0
    for part, table in contents.pieces:
        mine = table.filter(pc.equal(table["run_id"], run_id))
        count += mine.num_rows
        gone.update(_batches(part, mine))
    if not gone:
        return 0
    empty = SCHEMA.empty_table().append_column(BATCH, pa.array([], pa.int32()))
    path = files.write_compacted(store.measurements, empty, [], contents.removed | gone)
    store.receive(path.name)
    _delete(store, [part.name for part in contents.parts if set(part.batches) <= gone])
    return count


def _batches(part: Part, table: pa.Table) -> list[str]:
    """The batches that rows of a part are of."""
    if not part.name.compacted:
        return list(part.batches) if table.num_rows else []
    return [part.batches[index] for index in pc.unique(table[BATCH]).to_pylist()]


def _numbered(part: Part, table: pa.Table, number: dict[str, int]) -> pa.Table:
    """Rows with the column `BATCH` in terms of the new file."""
    if part.name.compacted:
        # Batches of rows that are in `table` are not removed, so all that are looked up are there.
        renumbered = pa.array([number.get(batch, -1) for batch in part.batches], pa.int32())
        column = renumbered.take(table[BATCH].combine_chunks())
        table = table.drop_columns([BATCH])
    else:
        column = pa.array([number[part.name.digest]] * table.num_rows, pa.int32())
    return table.append_column(BATCH, column)


def _delete(store: Store, names: list[Name]) -> None:
    for name in names:
        with suppress(FileNotFoundError):  # another compaction was faster
            (store.measurements / name.file).unlink()
        with suppress(FileNotFoundError):
            (store.receipts / name.file).unlink()
