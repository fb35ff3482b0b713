"""The folder of measurements: immutable parquet files, any number of writers, no lock.

A batch of rows is one file ``<UTC time>-<hash>.parquet``, where the hash is that of its bytes: the
name proves the content, and two batches never meet in one name. A compacted file,
``c-<UTC time>-<hash>.parquet``, holds the rows of many batches, in the column `BATCH` the number
of each row's batch, and in its metadata the hashes of these batches. So the one file says at once
what it adds and what it replaces; whatever a crash leaves behind, or a merge brings back, a row
counts once, because a batch that is in several files is taken from one only.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.store.atomic import write_bytes
from attndrop_repro.store.schema import SCHEMA, SCHEMA_VERSION

BATCH = "_batch"
_NAME = re.compile(r"(c-)?[0-9]{8}T[0-9]{12}Z-([0-9a-f]{16})\.parquet")
_PATIENCE = 50  # listings of a folder that keeps being compacted while it is read

_clock_lock = threading.Lock()
_clock_last = datetime.min.replace(tzinfo=UTC)


class Name(NamedTuple):
    """What a file's name says."""

    file: str
    compacted: bool
    digest: str


class Part(NamedTuple):
    """One file read: its rows, the batches they are of, and batches that are removed for good."""

    name: Name
    table: pa.Table
    batches: tuple[str, ...]
    removed: tuple[str, ...]


def now() -> datetime:
    """UTC with microseconds, later than every earlier answer in this process."""
    global _clock_last
    with _clock_lock:
        _clock_last = max(datetime.now(UTC), _clock_last + timedelta(microseconds=1))
        return _clock_last


def timestamp(moment: datetime) -> str:
    """ISO 8601 in UTC with microseconds always written, so that text order is time order."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def parse_name(file: str) -> Name | None:
    """What a file's name says, or None for one that is not a measurement file."""
    match = _NAME.fullmatch(file)
    return None if match is None else Name(file, bool(match[1]), match[2])


def names(folder: Path) -> list[Name]:
    """The measurement files of a folder; what else lies there is ignored."""
    try:
        found = [parse_name(path.name) for path in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(name for name in found if name is not None)


def write(folder: Path, table: pa.Table, moment: datetime | None = None) -> Path:
    """Writes one batch.

    Args:
        folder: The folder of measurements.
        table: At least one row, in `SCHEMA`.
        moment: Its time; now, if not given.
    """
    # A nonce makes equal batches of two writers two files, not one.
    return _write(folder, table, moment or now(), {"nonce": secrets.token_hex(8)}, compacted=False)


def write_compacted(
    folder: Path, table: pa.Table, batches: Sequence[str], removed: Iterable[str] = ()
) -> Path:
    """Writes the rows of many batches as one file; `table` has the column `BATCH`."""
    metadata = {"batches": json.dumps(list(batches)), "removed": json.dumps(sorted(set(removed)))}
    return _write(folder, table, now(), metadata, compacted=True)


def _write(
    folder: Path, table: pa.Table, moment: datetime, extra: Mapping[str, str], *, compacted: bool
) -> Path:
    sink = pa.BufferOutputStream()
    options = {
        "compression": "zstd" if compacted else "snappy",
        "use_dictionary": compacted,  # costs more than it saves in a file of a few rows
        "write_statistics": compacted,
        "store_schema": False,
    }
    with pq.ParquetWriter(sink, table.schema, **options) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"attndrop_schema": SCHEMA_VERSION, **extra})
    content = sink.getvalue().to_pybytes()
    digest = hashlib.sha256(content).hexdigest()[:16]
    prefix = "c-" if compacted else ""
    path = folder / f"{prefix}{moment.astimezone(UTC):%Y%m%dT%H%M%S%fZ}-{digest}.parquet"
    write_bytes(path, content)
    return path


def read_part(path: Path) -> Part:
    """Reads and checks one file.

    Raises:
        FileNotFoundError: It is gone.
        AttndropError: Its bytes are not those it was written with, or a later version wrote it.
    """
    name = parse_name(path.name)
    if name is None:
        raise AttndropError(f"{path} is not a measurement file")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest()[:16] != name.digest:
        raise AttndropError(
            f"{path} is damaged (its bytes changed): `attndrop results verify` lists such files; "
            "put a copy in its place or remove it"
        )
    file = pq.ParquetFile(pa.BufferReader(content))
    metadata = {k.decode(): v.decode() for k, v in (file.metadata.metadata or {}).items()}
    version = metadata.get("attndrop_schema", "")
    if version.partition(".")[0] != SCHEMA_VERSION.partition(".")[0]:
        raise AttndropError(
            f"{path} has layout {version!r}, this version reads {SCHEMA_VERSION}: use the version "
            "of attndrop that wrote it, or a newer one"
        )
    table = file.read(use_threads=False).replace_schema_metadata(None)
    batches = tuple(json.loads(metadata["batches"])) if name.compacted else (name.digest,)
    removed = tuple(json.loads(metadata.get("removed", "[]")))
    return Part(name, table, batches, removed)


class Contents(NamedTuple):
    """What a folder holds: its files, what each adds to the whole, and batches removed for good."""

    parts: list[Part]
    pieces: list[tuple[Part, pa.Table]]
    removed: set[str]


class Reader:
    """Reads a folder; files never change, so what was read once is not read again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._parts: dict[str, Part] = {}
        self._whole: tuple[frozenset[str], pa.Table] = (frozenset(), SCHEMA.empty_table())

    def table(self) -> pa.Table:
        """All rows in order of writing, in `SCHEMA`; columns of later versions come after it."""
        contents = self.contents()
        files = frozenset(part.name.file for part in contents.parts)
        if files != self._whole[0]:
            tables = [SCHEMA.empty_table()]
            tables += [_without_batch(table) for _, table in contents.pieces]
            self._whole = files, pa.concat_tables(tables, promote_options="permissive")
        return self._whole[1]

    def contents(self) -> Contents:
        """The files of this moment, and the rows that each of them adds to the whole."""
        parts = self._consistent()
        removed = {batch for part in parts for batch in part.removed}
        seen = set(removed)
        pieces = []
        # Compacted files first, the newest of them first: batches that they hold add nothing.
        for part in sorted(parts, key=lambda p: (p.name.compacted, p.name.file), reverse=True):
            fresh = [batch not in seen for batch in part.batches]
            seen.update(part.batches)
            if all(fresh):
                pieces.append((part, part.table))
            elif any(fresh):
                keep = pa.array(fresh).take(part.table.column(BATCH).combine_chunks())
                pieces.append((part, part.table.filter(keep)))
        pieces.sort(key=lambda piece: piece[0].name.file.removeprefix("c-"))
        return Contents(parts, pieces, removed)

    def _consistent(self) -> list[Part]:
        """All parts as of one moment.

        While we list and read, a compaction may add its file and delete those that it replaces, so
        that we see neither. But its file is there before anything is deleted: hence if a listing
        after the reading shows no new compacted file, nothing was missed.
        """
        for _ in range(_PATIENCE):
            before = names(self.folder)
            try:
                parts = self._read(before)
            except FileNotFoundError:
                time.sleep(0.01)
                continue
            after = {name for name in names(self.folder) if name.compacted}
            if after <= set(before):
                return parts
        raise AttndropError(f"{self.folder} keeps changing while it is read; try again")

    def _read(self, wanted: Collection[Name]) -> list[Part]:
        missing = [name for name in wanted if name.file not in self._parts]
        if missing:
            with ThreadPoolExecutor(max_workers=4) as pool:
                for part in pool.map(lambda name: read_part(self.folder / name.file), missing):
                    self._parts[part.name.file] = part
        files = {name.file for name in wanted}
        self._parts = {file: part for file, part in self._parts.items() if file in files}
        return list(self._parts.values())


def _without_batch(table: pa.Table) -> pa.Table:
    return table.drop_columns([BATCH]) if BATCH in table.column_names else table


def to_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as a table in `SCHEMA`; columns that a row lacks are null.

    Raises:
        TypeError: A column that there is not, or a value of another type.
    """
    for row in rows:
        strange = sorted(set(row) - set(SCHEMA.names))
        if strange:
            raise TypeError(f"the store has no column {strange[0]!r}; put it into `detail`")
    columns = [
        pa.array([_cell(field, row.get(field.name)) for row in rows], type=field.type)
        for field in SCHEMA
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _cell(field: pa.Field, value: Any) -> Any:
    if value is None:
        return None
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:  # scalars of numpy and torch
        value = value.item()
    if pa.types.is_string(field.type):
        fits = isinstance(value, str)
    elif pa.types.is_integer(field.type):
        fits = isinstance(value, int) and not isinstance(value, bool)
    else:
        fits = isinstance(value, int | float) and not isinstance(value, bool)
    if not fits:
        raise TypeError(f"column {field.name!r} takes {field.type}, not {value!r}")
    return value
