"""What is written is what is read: columns, text, identities, refusals."""

import json
from datetime import datetime

import numpy as np
import pandas as pd
import pytest

from attndrop_repro import results
from attndrop_repro.config.errors import AttndropError, UsageError
from attndrop_repro.store import groups
from attndrop_repro.store.schema import COLUMNS
from attndrop_repro.store.store import Store

ACCURACY = {"metric": "accuracy", "value": 0.5, "split": "test", "n": 450}


def test_columns_of_the_run_are_filled_in(make):
    store, run_id = make(seed=3)
    path = store.write(run_id, [ACCURACY], suite="digits")
    assert path.parent.name == "measurements"
    (row,) = results(store.root).to_dict("records")
    expected = {
        "run_id": run_id,
        "suite": "digits",
        "recipe": "tiny",
        "task": "image-classification",
        "dataset": "digits",
        "split": "test",
        "model": "vit",
        "method": "none",
        "seed": 3,
        "metric": "accuracy",
        "value": 0.5,
        "n": 450,
        "settings": '{"none":{}}',
        "precision": "fp32",
        "device": "cpu",
        "threads": 1,
        "status": "running",
        "config_hash": store.run_dir(run_id).spec().config_hash,
        "code_version": "0.1.0",
    }
    assert {key: row[key] for key in expected} == expected
    moment = datetime.fromisoformat(row["created_at"])
    assert moment.utcoffset().total_seconds() == 0
    assert len(row["created_at"]) == len("2024-01-01T00:00:00.000000+00:00")
    missing = set(COLUMNS) - set(expected) - {"created_at"}
    assert all(pd.isna(row[key]) for key in missing)


def test_columns_are_those_of_the_design_in_order(make):
    store, run_id = make()
    store.write(run_id, [ACCURACY])
    design = """
        run_id suite recipe task dataset split model method seed epoch metric value n attack norm
        eps eps_label steps step_size restarts p k w sigma_max lam settings precision device
        threads status config_hash code_version created_at
    """.split()  # noqa: SIM905
    assert list(store.frame().columns)[: len(design)] == design


def test_an_empty_store_has_all_columns_and_opening_creates_nothing(tmp_path):
    store = Store(tmp_path / "new")
    frame = store.frame()
    assert list(frame.columns) == list(COLUMNS)
    assert len(frame) == 0
    assert store.runs() == []
    assert not store.has("x", "accuracy")
    assert not (tmp_path / "new").exists()


def test_types_of_the_frame(make):
    store, run_id = make()
    store.write(run_id, [ACCURACY])
    frame = store.frame()
    assert frame["n"].dtype == frame["epoch"].dtype == "Int64"
    assert frame["value"].dtype == frame["eps"].dtype == "float64"
    assert pd.isna(frame["eps"][0])
    assert frame["method"][0] == "none"


@pytest.mark.parametrize(
    "text", ["none", "None", "nan", "NaN", "null", "0012", "12e45678", "", "NA"]
)
def test_text_stays_text(tmp_path, text):
    store = Store(tmp_path)
    store.write_outside({"model": "m", "method": text, "run_id": "0012"}, [ACCURACY])
    (row,) = store.frame().to_dict("records")
    assert row["method"] == text
    assert row["run_id"] == "0012"


def test_the_newest_of_the_same_measurement_counts(make):
    store, run_id = make()
    store.write(run_id, [ACCURACY])
    store.write(run_id, [{**ACCURACY, "value": 0.6}, {**ACCURACY, "value": 0.7}])
    store.write(run_id, [{**ACCURACY, "value": 0.1, "split": "validation"}])
    store.write(run_id, [{**ACCURACY, "value": 0.2}], device="cuda")
    assert store.frame()["value"].tolist() == [0.7, 0.1, 0.2]
    assert store.frame(dedupe=False)["value"].tolist() == [0.5, 0.6, 0.7, 0.1, 0.2]


def test_a_clock_set_back_does_not_bring_old_rows_to_the_front(make, monkeypatch):
    from attndrop_repro.store import measurements

    store, run_id = make()
    store.write(run_id, [ACCURACY])

    class Past(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime(2001, 1, 1, tzinfo=tz)

    monkeypatch.setattr(measurements, "datetime", Past)
    store.write(run_id, [{**ACCURACY, "value": 0.9}])
    assert store.frame()["value"].tolist() == [0.9]


def test_0_031_and_8_255_are_two_settings(make):
    store, run_id = make()
    row = {"metric": "robust_accuracy", "value": 0.1, "eps": 0.031}
    store.write(run_id, [{**row, "eps_label": "0.031"}, {**row, "eps_label": "8/255"}])
    assert len(store.frame()) == 2


def test_has(make):
    store, run_id = make()
    row = {"metric": "robust_accuracy", "value": 0.1, "eps_label": "8/255", "steps": 20}
    store.write(run_id, [ACCURACY, row])
    assert store.has(run_id, "accuracy")
    assert store.has(run_id, "accuracy", split="test", epoch=None)
    assert not store.has(run_id, "accuracy", split="validation")
    assert not store.has(run_id, "accuracy", epoch=3)
    assert store.has(run_id, "robust_accuracy", eps_label="8/255", steps=20)
    assert not store.has(run_id, "robust_accuracy", eps_label="4/255")
    assert not store.has("other", "accuracy")
    with pytest.raises(TypeError, match="no column 'epz'"):
        store.has(run_id, "accuracy", epz=3)


def test_a_reader_that_stays_open_sees_what_others_write(make):
    store, run_id = make()
    reader = Store(store.root)
    assert len(reader.frame()) == 0
    for n in range(3):
        store.write(run_id, [{**ACCURACY, "n": n}])
        assert len(reader.frame()) == n + 1


def test_rows_without_eps_stay_in_groupings(make):
    store, run_id = make()
    store.write(run_id, [ACCURACY, {"metric": "robust_accuracy", "value": 0.1, "eps_label": "x"}])
    frame = store.frame()
    assert sum(len(group) for _, group in groups(frame, ["method", "eps_label", "eps"])) == 2
    assert len(groups(frame, "eps_label")) == 2


def test_scalars_of_numpy_and_details(make):
    store, run_id = make()
    detail = {"bins": np.array([[1, 2], [3, 4]]), "empty": float("nan"), "x": [np.float64(0.5)]}
    value = np.float32(0.25)
    store.write(run_id, [{"metric": "ece", "value": value, "n": np.int64(3), "detail": detail}])
    (row,) = store.frame().to_dict("records")
    assert row["value"] == 0.25
    assert json.loads(row["detail"]) == {"bins": [[1, 2], [3, 4]], "empty": None, "x": [0.5]}


def test_a_value_that_is_not_a_number_is_kept_as_such(make):
    store, run_id = make()
    store.write(run_id, [{"metric": "ece", "value": float("nan")}])
    assert store.table()["value"].null_count == 0
    assert np.isnan(store.frame()["value"][0])


@pytest.mark.parametrize(
    "row",
    [
        {"metric": "a"},
        {"value": 1.0},
        {"metric": "", "value": 1.0},
        {"metric": "a", "value": "1"},
        {"metric": "a", "value": True},
        {"metric": "a", "value": None},
        {"metric": 3, "value": 1.0},
        {"metric": "a", "value": 1.0, "n": 1.5},
        {"metric": "a", "value": 1.0, "n": True},
        {"metric": "a", "value": 1.0, "splitt": "test"},
    ],
)
def test_rows_that_do_not_fit_are_refused_before_anything_is_written(make, row):
    store, run_id = make()
    with pytest.raises(TypeError):
        store.write(run_id, [ACCURACY, row])
    assert len(store.frame()) == 0


def test_no_rows_no_file(make):
    store, run_id = make()
    with pytest.raises(ValueError, match="at least one"):
        store.write(run_id, [])


def test_a_run_that_has_not_begun_takes_no_rows(tmp_path):
    with pytest.raises(AttndropError, match=r"no spec\.json"):
        Store(tmp_path).write("tiny--none--s0--00000000", [ACCURACY])


def test_models_from_elsewhere(tmp_path):
    store = Store(tmp_path)
    columns = {"model": "vit", "dataset": "digits", "device": "cpu", "suite": None}
    store.write_outside(columns, [ACCURACY])
    store.write_outside(columns, [{**ACCURACY, "value": 0.6}])
    store.write_outside({**columns, "dataset": "cifar10"}, [ACCURACY])
    frame = store.frame()
    assert len(frame) == 2
    assert frame["run_id"].str.startswith("outside--vit--").all()


def test_names_cannot_lead_out_of_the_store(tmp_path):
    store = Store(tmp_path)
    for name in ("", ".", "..", "../x", "a/b", "a\\b", "a\0b"):
        with pytest.raises(UsageError):
            store.run_dir(name)


def test_a_file_is_no_store(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="is no folder"):
        Store(tmp_path / "file")
