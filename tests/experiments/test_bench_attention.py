"""The benchmark of one attention: who takes part, and what rows and store say."""

import math

import pytest

from attndrop_repro.config.errors import AttndropError, UsageError
from attndrop_repro.evaluation.attention_cost import Attention, AttentionCost
from attndrop_repro.evaluation.step_cost import NOISE
from attndrop_repro.experiments import bench_attention as module
from attndrop_repro.experiments.bench_attention import (
    attention_contenders,
    attention_measurements,
    bench_attention,
)
from attndrop_repro.store import Store

SIZES = Attention(tokens=16, heads=2, width=4)


def test_all_that_act_inside_an_attention_take_part_and_nobody_else():
    labels = [contender.label for contender in attention_contenders()]
    assert {
        "attentiondrop-blur", "attentiondrop-hard", "attention-dropout", "dropkey", "drophead",
        "attentiondrop-blur (rows_and_columns)", "attentiondrop-hard (drop)",
    } <= set(labels)  # fmt: skip
    assert not {"dropout", "rdrop", "dropconnect", "none", "consistency"} & set(labels)
    assert len(labels) == len(set(labels))


def test_a_method_that_acts_elsewhere_is_refused():
    chosen = attention_contenders(["dropkey+drophead", "drophead+dropkey", "dropkey"])
    assert [one.label for one in chosen] == ["drophead+dropkey", "dropkey"]
    with pytest.raises(UsageError, match="rdrop does nothing inside an attention"):
        attention_contenders(["rdrop"])
    with pytest.raises(UsageError, match="consistency does nothing inside an attention"):
        attention_contenders(["dropkey+consistency"])
    with pytest.raises(UsageError, match="did you mean 'dropkey'"):
        attention_contenders(["dropkye"])


def told(call, attention, contender, rounds):
    if contender is not None and contender.label == "drophead":
        raise AttndropError("no memory")
    added = 10.0 if contender is None else 25.0
    return AttentionCost((0.002, 0.004, 0.003), 1.5, 1.4, 1.6, added)


def test_memory_is_compared_with_plain_and_failures_stand_beside(monkeypatch):
    monkeypatch.setattr(module, "in_own_process", told)
    rows = bench_attention(SIZES, attention_contenders(["dropkey", "drophead"]), rounds=3)
    assert [row.label for row in rows] == [NOISE, "dropkey", "drophead"]
    assert (rows[0].memory_ratio, rows[1].memory_ratio) == (1.0, 2.5)
    assert rows[1].milliseconds == 3.0
    assert rows[2].error == "no memory"
    assert math.isnan(rows[2].ratio)


def test_the_store_keeps_every_row_with_what_tells_it_from_others(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "in_own_process", told)
    store = Store(tmp_path)
    chosen = [c for c in attention_contenders() if "hard" in c.label]
    rows = bench_attention(SIZES, chosen, rounds=3)
    for _ in range(2):  # measured again, the newest counts
        for columns, found in attention_measurements(rows, SIZES):
            store.write_outside(columns, found)
    frame = store.frame()
    assert len(frame) == 2 * len(rows) == 6
    assert set(frame["metric"]) == {"attention_time_ratio", "attention_memory_mb"}
    assert set(frame["model"]) == {"attention, 2 heads of 4"}
    assert frame["run_id"].nunique() == 3
    assert (frame["n"] == 16).all()


def test_one_method_for_real():
    rows = bench_attention(SIZES, attention_contenders(["dropkey"]), rounds=3)
    assert [row.error for row in rows] == ["", ""]
    assert all(row.ratio > 0 and row.milliseconds > 0 for row in rows)
