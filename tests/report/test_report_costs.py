"""What benchmarks have stored is shown as the tables of cost, of the recipe that they were of."""

from __future__ import annotations

import json

import pytest

from attndrop_repro.report import costs
from attndrop_repro.report.build import render
from attndrop_repro.report.chapter import chapter
from attndrop_repro.report.delimited import csv_text
from attndrop_repro.report.prose import plain
from attndrop_repro.report.select import select

SHARED = {
    "model": "vit_synthetic", "split": "random pixels", "n": 32, "device": "cpu",
    "precision": "fp32", "threads": 2, "status": "finished",
}  # fmt: skip


def step_rows(label, ratio, *, recipe="synthetic-vit", day=1, peak=None, paper=None, **more):
    detail = {
        "label": label, "low": ratio - 0.01, "high": ratio + 0.02, "unfused_ratio": ratio * 0.9,
        "paper_ratio": paper, "image_size": 8, "compile": more.pop("compile", False),
    }  # fmt: skip
    values = {"step_time_ratio": ratio, "images_per_second": 1500 / ratio, "peak_memory_mb": peak}
    columns = {**SHARED, "recipe": recipe, "method": label.split(" ")[0], **more}
    return [
        {
            **columns, "run_id": f"outside--bench--{recipe}--{label}--{day}", "metric": metric,
            "value": value, "detail": json.dumps(detail), "created_at": f"2026-02-0{day}T00:00:00Z",
        }
        for metric, value in values.items()
        if value is not None
    ]  # fmt: skip


def attention_rows(label, ratio, memory, *, tokens=4096):
    told = {"label": label, "batch": 1, "heads": 4, "width": 64}
    columns = {
        **SHARED, "model": "attention, 4 heads of 64", "split": "random numbers", "n": tokens,
        "method": label.split(" ")[0], "run_id": f"outside--attention--{label}--{tokens}",
        "created_at": "2026-02-01T00:00:00Z",
    }  # fmt: skip
    time = {**told, "low": ratio - 0.1, "high": ratio + 0.1, "milliseconds": 100 * ratio}
    return [
        {**columns, "metric": "attention_time_ratio", "value": ratio, "detail": json.dumps(time)},
        {
            **columns, "metric": "attention_memory_mb", "value": memory,
            "detail": json.dumps({**told, "ratio": memory / 24}),
        },
    ]  # fmt: skip


def group_with(syn, *rows, **suite):
    source = syn.source(("none", "rdrop"), (0,), more=[row for some in rows for row in some])
    return select(syn.suite(("none", "rdrop"), (0,), **suite), source)[0]


def shown(table):
    """Text of the columns that are shown."""
    return [[cell.text for cell in row] for row in table.shown().rows]


def test_a_row_has_ratio_quartiles_paper_rate_and_memory(syn):
    group = group_with(
        syn,
        step_rows("rdrop", 1.9996, peak=420.4),
        step_rows("attentiondrop-blur", 1.05, paper=320 / 300),
        step_rows("none (again)", 0.998),
        step_rows("none", 1.0, peak=400.0, paper=1.0),
    )
    table = costs.step_table(group)
    assert shown(table) == [
        ["none", "1.000", "0.900", "1.000", "1500", "400"],
        ["none (again)", "0.998", "0.898", "", "1503", ""],
        ["rdrop", "2.000", "1.800", "", "750.2", "420"],
        ["attentiondrop-blur", "1.050", "0.945", "1.067", "1429", ""],
    ]
    assert table.rows[2][1].interval == "[1.99, 2.02]"
    assert table.groups == {
        0: "vit_synthetic, 32 images of 8 × 8 a step, cpu, fp32, 2 threads",
    }
    header, first = csv_text(table).splitlines()[:2]
    assert header == (
        "method,step_time_ratio,step_time_ratio_low,step_time_ratio_high,to_unfused,paper_ratio,"
        "images_per_second,peak_memory_mb,model,n,device,precision,threads"
    )
    assert first == "none,1,0.99,1.02,0.9,1,1500,400,vit_synthetic,32,cpu,fp32,2"


def test_columns_that_nobody_measured_are_left_out(syn):
    rows = step_rows("none", 1.0)
    for row in rows:
        row["detail"] = json.dumps({"label": "none"})
    table = costs.step_table(group_with(syn, rows))
    assert [column.key for column in table.shown().columns] == [
        "method", "step_time_ratio", "images_per_second",
    ]  # fmt: skip
    assert table.rows[0][1].interval == ""


@pytest.mark.parametrize(
    ("other", "heading"),
    [
        ({"threads": 1}, "cpu, fp32, 1 thread"),
        ({"device": "cuda", "precision": "bf16"}, "cuda, bf16, 2 threads"),
        ({"n": 64}, "64 images of 8 × 8 a step"),
        ({"model": "vit_other"}, "vit_other, 32 images"),
        ({"compile": True}, ", compiled"),
    ],
)
def test_what_was_measured_elsewhere_stands_by_itself(syn, other, heading):
    group = group_with(syn, step_rows("none", 1.0), step_rows("none", 1.0, day=2, **other))
    table = costs.step_table(group)
    assert len(table.rows) == len(table.groups) == 2
    assert any(heading in words for words in table.groups.values())


def test_the_newest_of_the_same_counts(syn):
    group = group_with(syn, step_rows("rdrop", 2.5, day=3), step_rows("rdrop", 1.5, day=2))
    (row,) = costs.step_table(group).rows
    assert row[1].text == "2.500"


def test_benchmarks_of_another_recipe_or_of_none_are_not_shown(syn):
    group = group_with(
        syn, step_rows("none", 1.0, recipe="another"), step_rows("rdrop", 2.0, recipe=None)
    )
    assert group.costs == ()
    assert costs.step_table(group) is None


def test_a_training_runs_own_rate_is_no_benchmark(syn):
    row = {**step_rows("none", 1.0)[1], "split": "train"}
    assert group_with(syn, [row]).costs == ()


def test_one_attention_is_shown_once_with_the_first_recipe(syn):
    rows = [*attention_rows("none (again)", 1.0, 24.0), *attention_rows("dropkey", 2.0, 60.0)]
    table = costs.attention_table(group_with(syn, rows))
    assert shown(table) == [
        ["none (again)", "1.000", "100.0", "24.0", "1.00"],
        ["dropkey", "2.000", "200.0", "60.0", "2.50"],
    ]
    assert list(table.groups.values()) == [
        "attention, 4 heads of 64, 4096 tokens, batch 1, cpu, fp32, 2 threads"
    ]
    source = syn.source(("none",), (0,), more=rows, names=("synthetic-vit", "second"))
    first, second = select(syn.suite(("none",), (0,)), source)
    assert (len(first.costs), len(second.costs)) == (4, 0)


def test_without_benchmarks_one_line_says_how_to_get_them(syn):
    section = next(one for one in chapter(group_with(syn), "").sections if one.name == "costs")
    assert section.tables == ()
    words = "Costs were not measured; attndrop bench --recipe synthetic-vit does."
    assert plain(section.intro) == words


def test_every_format_has_the_tables_and_measurements(syn):
    more = [*step_rows("none", 1.0), *step_rows("rdrop", 2.0), *attention_rows("dropkey", 2.0, 60)]
    suite = syn.suite(("none", "rdrop"), (0,))
    files = render(suite, syn.source(("none", "rdrop"), (0,), more=more))
    assert {f"tables/{name}.{kind}" for name in ("costs", "attention-costs")
            for kind in ("csv", "tex")} <= set(files)  # fmt: skip
    page, document = files["report.html"].decode(), files["report.md"].decode()
    assert '<table id="table-costs" class="costs">' in page
    assert "| `rdrop` | 2.000 \\[1.99, 2.02\\] |" in document
    lines = files["measurements.csv"].decode().splitlines()
    assert sum(",step_time_ratio," in line for line in lines) == 2
    assert sum(",attention_memory_mb," in line for line in lines) == 1
