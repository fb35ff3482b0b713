"""Export and back: text stays text, numbers are exact, nothing vanishes."""

import csv
import io

import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attndrop_repro.config.errors import AttndropError, UsageError
from attndrop_repro.store import measurements
from attndrop_repro.store.export import export, read_export
from attndrop_repro.store.schema import SCHEMA
from attndrop_repro.store.store import Store

TEXTS = [
    "none",
    "nan",
    "NaN",
    "null",
    "None",
    "NA",
    "",
    "0012",
    "12e45678",
    'a "b", c',
    "é\n;",
    "1",
]


def rows(texts):
    return [
        {"metric": "accuracy", "value": 0.1 + n, "n": n, "attack": t} for n, t in enumerate(texts)
    ]


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_round_trip(tmp_path, format):
    store = Store(tmp_path / "results")
    store.write_outside({"model": "m", "method": "none", "run_id": "0012"}, rows(TEXTS))
    out = tmp_path / f"table.{format}"
    assert export(store, out, format) == len(TEXTS)
    table = read_export(out)
    assert table.equals(store.table())
    assert table["attack"].to_pylist() == TEXTS
    assert table["eps"].null_count == len(TEXTS)


def test_csv_for_other_readers(tmp_path):
    store = Store(tmp_path / "results")
    store.write_outside({"model": "m", "run_id": "12e45678"}, rows(["none", "nan"]))
    sink = io.BytesIO()
    export(store, sink)
    (one, two) = csv.DictReader(io.StringIO(sink.getvalue().decode()))
    assert (one["attack"], two["attack"], one["run_id"], one["eps"]) == (
        "none",
        "nan",
        "12e45678",
        "",
    )
    assert float(one["value"]) == 0.1
    text = {f.name: str for f in SCHEMA if str(f.type) == "string"}
    frame = pd.read_csv(
        io.BytesIO(sink.getvalue()), keep_default_na=False, na_values=[""], dtype=text
    )
    assert frame["attack"].tolist() == ["none", "nan"]
    assert frame["run_id"].tolist() == ["12e45678"] * 2


def test_parquet_for_other_readers(tmp_path):
    store = Store(tmp_path / "results")
    store.write_outside({"model": "m"}, rows(["none"]))
    export(store, tmp_path / "t.parquet", "parquet")
    assert pq.read_table(tmp_path / "t.parquet").schema.names == SCHEMA.names


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_an_empty_store_has_a_header(tmp_path, format):
    export(Store(tmp_path / "none"), tmp_path / "t", format)
    table = read_export(tmp_path / "t")
    assert table.schema.names == SCHEMA.names
    assert table.num_rows == 0


def test_all_measurements_or_the_newest(tmp_path):
    store = Store(tmp_path / "results")
    for value in (0.1, 0.2):
        store.write_outside({"model": "m"}, [{"metric": "accuracy", "value": value}])
    assert export(store, tmp_path / "t.csv") == 1
    assert read_export(tmp_path / "t.csv")["value"].to_pylist() == [0.2]
    assert export(store, tmp_path / "t.csv", dedupe=False) == 2


@pytest.mark.parametrize("content", [b"", b"PAR1xx", b"\xff\xfe\x00", b"a,b\n1\n"])
def test_files_that_are_no_export(tmp_path, content):
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(AttndropError, match="no exported table") as error:
        read_export(tmp_path / "t")
    assert "\n" not in str(error.value)
    with pytest.raises(AttndropError, match="no exported table"):
        read_export(tmp_path / "nowhere")


text = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
number = st.floats(allow_infinity=False, allow_nan=False)
whole = st.none() | st.integers(-(2**63), 2**63 - 1)


@settings(max_examples=40, deadline=None)
@given(
    data=st.lists(
        st.fixed_dictionaries(
            {"metric": st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)}
            | {"value": number, "attack": text, "settings": text, "epoch": whole, "n": whole}
            | {"eps": st.none() | number}
        ),
        min_size=1,
        max_size=4,
    )
)
def test_any_rows_round_trip(tmp_path_factory, data):
    root = tmp_path_factory.mktemp("any")
    store = Store(root)
    store.write_outside({"model": "m", "run_id": "r"}, data)
    stored = Store(root).table(dedupe=False)
    for name in data[0]:
        assert stored[name].to_pylist() == [row[name] for row in data]
    export(store, root / "t.csv", dedupe=False)
    assert read_export(root / "t.csv").equals(stored)
    assert measurements.to_table(stored.to_pylist()).equals(stored)


def test_no_folder_is_made_for_it_and_none_replaced(tmp_path):
    for place, words in (
        (tmp_path / "deep" / "out.csv", "is not there"),
        (tmp_path, "is a folder"),
    ):
        with pytest.raises(UsageError, match=words):
            export(Store(tmp_path / "store"), place)
    assert list(tmp_path.iterdir()) == []
