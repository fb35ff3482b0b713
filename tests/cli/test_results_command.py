"""`attndrop results`: export, merge, verify, compact."""

from __future__ import annotations

import csv
import io
import json

import pyarrow.parquet as pq

from attndrop_repro.store import Store
from attndrop_repro.store.schema import COLUMNS


def test_export_to_stdout_is_csv_and_nothing_else(cli, store):
    ran = cli("results", "export", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert set(COLUMNS) <= set(rows[0])
    assert {row["method"] for row in rows} == {"none"}
    assert ran.err == f"{len(rows)} rows\n"


def test_export_to_a_file(cli, store, tiny):
    ran = cli("results", "export", "--format", "parquet", "--out", "all.parquet")
    assert (ran.code, ran.out) == (0, "")
    assert pq.read_table(tiny / "all.parquet").num_rows == len(Store(store).frame())


def test_export_makes_no_folders(cli, store, tiny):
    for place in ("nowhere/x.csv", "results"):
        ran = cli("results", "export", "--out", place)
        assert ran.code == 2
        assert len(ran.err.splitlines()) == 1
        assert cli("export", "--run", "last", "--out", place).code == 2
    assert not (tiny / "nowhere").exists()


def test_export_of_a_format_that_there_is_not(cli, store):
    ran = cli("results", "export", "--format", "xlsx")
    assert ran.code == 2
    assert "csv" in ran.err


def test_merge_twice_adds_once(cli, store):
    ran = cli("--results", "other", "results", "merge", str(store))
    assert ran.code == 0
    assert ran.err.startswith("1 runs and 1 measurement files added")
    again = cli("--results", "other", "results", "merge", str(store))
    assert again.err.startswith("0 runs and 0 measurement files added")
    assert cli("--results", "other", "results", "merge", "nowhere").code == 2


def test_verify_finds_a_flipped_byte(cli, store):
    assert cli("results", "verify").code == 0
    (part,) = (store / "measurements").glob("*.parquet")
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)
    ran = cli("results", "verify")
    assert ran.code == 1
    assert part.name in ran.out
    found = json.loads(cli("results", "verify", "--json").out)
    assert [one["kind"] for one in found if not one["harmless"]] == ["damaged"]


def test_compact(cli, store):
    assert cli("results", "compact").err == "nothing to join\n"


def test_a_group_without_a_command_is_wrong_usage(cli, store):
    ran = cli("results")
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert "export" in cli("results", "exprot").err
