"""Files that are whole or not there; what readers ignore and what they refuse."""

import errno
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.store import atomic, measurements
from attndrop_repro.store.schema import SCHEMA, SCHEMA_VERSION
from attndrop_repro.store.store import Store

ACCURACY = {"metric": "accuracy", "value": 0.5, "split": "test", "n": 450}


def write_as(store: Store, table: pa.Table, version: str) -> None:
    """A file of another layout."""
    keep = measurements.SCHEMA_VERSION
    measurements.SCHEMA_VERSION = version
    try:
        measurements.write(store.measurements, table)
    finally:
        measurements.SCHEMA_VERSION = keep


def test_temporary_and_foreign_files_are_ignored(make):
    store, run_id = make()
    path = store.write(run_id, [ACCURACY])
    for name in (
        ".tmp-1-ab-x.parquet",
        "notes.txt",
        "data.parquet",
        "Thumbs.db",
        path.name + ".bak",
    ):
        (store.measurements / name).write_bytes(b"PAR1 not really")
    (store.measurements / "folder").mkdir()
    assert len(Store(store.root).frame()) == 1


def test_a_damaged_file_is_refused_by_name(make):
    store, run_id = make()
    path = store.write(run_id, [ACCURACY])
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(AttndropError, match=rf"{path.name} is damaged.*results verify"):
        Store(store.root).frame()
    path.write_bytes(content[:100])
    with pytest.raises(AttndropError, match="is damaged"):
        Store(store.root).frame()


def test_a_file_that_lacks_later_columns_is_read_with_nulls(make):
    store, run_id = make()
    store.write(run_id, [ACCURACY])
    table = store.table().drop_columns(["detail", "restarts"])
    write_as(store, table, "1.0")
    table = Store(store.root).table(dedupe=False)
    assert table.schema.names == SCHEMA.names
    assert table["detail"].null_count == 2
    assert table["value"].to_pylist() == [0.5, 0.5]


def test_columns_of_a_later_minor_version_are_kept(make):
    from attndrop_repro.store.compact import compact

    store, run_id = make()
    store.write(run_id, [ACCURACY])
    table = store.table().append_column("energy", pa.array([1.5]))
    write_as(store, table, "1.7")
    for _ in range(2):
        table = Store(store.root).table(dedupe=False)
        assert table.schema.names == [*SCHEMA.names, "energy"]
        assert table["energy"].to_pylist() == [None, 1.5]
        compact(store)


def test_a_later_major_version_is_refused(make):
    store, run_id = make()
    store.write(run_id, [ACCURACY])
    write_as(store, store.table(), "2.0")
    with pytest.raises(AttndropError, match=r"layout '2\.0', this version reads 1"):
        Store(store.root).frame()


def test_files_say_their_layout(make):
    store, run_id = make()
    path = store.write(run_id, [ACCURACY])
    metadata = pq.ParquetFile(path).metadata.metadata
    assert metadata[b"attndrop_schema"] == SCHEMA_VERSION.encode()
    assert pq.read_table(path).schema.names == SCHEMA.names


def test_a_full_disk_is_one_line_and_leaves_nothing(make, monkeypatch):
    store, run_id = make()
    store.write(run_id, [ACCURACY])
    before = sorted(store.root.rglob("*"))

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(AttndropError, match="No space left on device; make room") as error:
        store.write(run_id, [ACCURACY])
    assert "\n" not in str(error.value)
    assert sorted(store.root.rglob("*")) == before
    assert len(store.frame()) == 1


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(AttndropError, match="is no folder"):
        Store(tmp_path / "file").write_outside({"model": "m"}, [ACCURACY])


def test_content_is_synced_before_it_is_renamed_and_the_folder_after(tmp_path, monkeypatch):
    order = []
    fsync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (order.append("sync"), fsync(handle)))
    monkeypatch.setattr(
        Path, "replace", lambda self, to: (order.append("rename"), replace(self, to))[1]
    )
    atomic.write_bytes(tmp_path / "file", b"x")
    assert order == ["sync", "rename", "sync"]


def test_a_killed_removal_leaves_nothing_under_the_name(tmp_path, monkeypatch):
    folder = tmp_path / "step-00000001"
    folder.mkdir()
    (folder / "a").write_text("")
    monkeypatch.setattr(atomic.shutil, "rmtree", lambda *args, **kwargs: None)
    atomic.remove_folder(folder)
    assert [path.name.startswith(atomic.TEMPORARY) for path in tmp_path.iterdir()] == [True]


def test_writers_of_temporary_names_are_known(tmp_path):
    assert atomic.writer_lives(atomic.temporary_name(tmp_path / "x"))
    assert not atomic.writer_lives(tmp_path / ".tmp-999999999-ab-x")
    assert not atomic.writer_lives(tmp_path / ".tmp-x")
    assert len(atomic.temporary_name(tmp_path / ("x" * 250)).name) <= 200
