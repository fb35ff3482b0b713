import csv
import io

import pytest

from attndrop_repro.report import cells, statistics, tables
from attndrop_repro.report.comparisons import compare, family_size, headline, unmeasured
from attndrop_repro.report.prose import plain
from attndrop_repro.report.quantities import (
    ACCURACY,
    ECE,
    GRADIENT_VARIANCE,
    NLL,
    robust,
    written,
)
from attndrop_repro.report.select import select

MINUS = "\N{MINUS SIGN}"


def group_of(syn, methods, seeds=(0, 1, 2), **more):
    suite = more.pop("suite", {})
    return select(syn.suite(methods, seeds, **suite), syn.source(methods, seeds, **more))[0]


def texts(table, column):
    place = [one.key for one in table.columns].index(column)
    return [row[place].text for row in table.rows]


@pytest.mark.parametrize(
    ("value", "digits", "significant", "signed", "text"),
    [
        (0.0, 1, False, True, "0.0"),
        (-0.04, 1, False, True, "0.0"),
        (0.05001, 1, False, True, "+0.1"),
        (-12.34, 1, False, False, f"{MINUS}12.3"),
        (0.0, 3, True, False, "0.00"),
        (12.345, 3, True, False, "12.3"),
        (123.0, 3, True, False, "123"),
        (1.23456e-5, 3, True, True, f"+1.23e{MINUS}5"),
        (123456.0, 3, True, False, "1.23e5"),
    ],
)
def test_numbers_as_written(value, digits, significant, signed, text):
    assert written(value, digits, significant=significant, signed=signed) == text


def test_main_table_shows_mean_interval_and_n(syn):
    group = group_of(syn, ("none", "rdrop"))
    table = tables.main_table(group)
    cell = table.rows[0][2]
    values = [syn.accuracy("none", seed) for seed in (0, 1, 2)]
    expected = statistics.mean(values)
    assert cell.text == f"{100 * sum(values) / 3:.1f}"
    assert cell.interval == f"[{100 * expected.low:.1f}, {100 * expected.high:.1f}]"
    assert cell.n == 3
    assert dict(cell.raw) == {
        "": expected.mean, "low": expected.low, "high": expected.high, "n": 3, "missing": None,
    }  # fmt: skip
    assert [column.key for column in table.columns] == [
        "method", "passes", "accuracy", "nll", "ece", "ece_after_temperature",
        "robust_accuracy.fgsm.8/255", "robust_accuracy.pgd-20.8/255", "gradient_variance",
        "train_seconds", "train_seconds_ratio",
    ]  # fmt: skip
    assert table.columns[8].title == "Gradient variance, epoch 40"
    assert texts(table, "passes") == ["1", "2"]


def test_time_ratio_is_the_mean_of_ratios_by_seed(syn):
    seconds = {("none", 0): 10.0, ("none", 1): 20.0, ("rdrop", 0): 30.0, ("rdrop", 1): 30.0}

    def change(row):
        if row["metric"] == "train_seconds":
            row["value"] = seconds[row["method"], row["seed"]]
        return row

    table = tables.main_table(group_of(syn, ("none", "rdrop"), (0, 1), change=change))
    assert texts(table, "train_seconds_ratio") == ["1.00", "2.25"]
    notes = " ".join(plain(note) for note in table.notes)
    assert "Two forward passes a step: rdrop. That is twice the compute" in notes


def test_one_seed_has_no_interval(syn):
    table = tables.main_table(group_of(syn, ("none", "dropout"), (0,)))
    cell = table.rows[1][2]
    assert (cell.interval, cell.n, len(cell.span)) == ("", 1, 1)


def test_missing_cells_say_why(syn):
    runs = [
        syn.run("none", 0),
        syn.run("dropout", 0, status="failed", message="out of memory:\nuse batch 32 " + "x" * 99),
    ]
    methods = ("none", "dropout", "rdrop")
    source = syn.source(runs=runs, change=lambda r: None if r["metric"] == "nll" else r)
    group = select(syn.suite(methods, (0,)), source)[0]
    table = tables.main_table(group)
    assert texts(table, "nll")[0] == "not measured"
    assert texts(table, "accuracy")[2] == "no run"
    cut = texts(table, "accuracy")[1]
    assert cut.startswith("failed: out of memory: use batch 32")
    assert cut.endswith("…")
    assert all(row[2].missing for row in table.rows[1:])
    run_table = tables.run_table(group)
    assert texts(run_table, "status") == ["finished", "failed", "no run"]
    assert texts(run_table, "message")[1].endswith("x" * 99)
    assert run_table.rows[1][2].strong


def test_seeds_that_a_cell_lacks_stand_below_the_table(syn):
    runs = [syn.run("none", 0), syn.run("none", 1, status="failed", message="disk full")]
    group = select(syn.suite(("none",), (0, 1, 2)), syn.source(runs=runs))[0]
    notes = [plain(note) for note in tables.main_table(group).notes]
    assert "none: seed 1: failed: disk full; seed 2: no run." in notes


def test_columns_nobody_asked_for_are_left_out_and_said(syn):
    def change(row):
        return row if row["metric"] in ("accuracy", "nll", "ece") else None

    methods = ("none",)
    asked = group_of(syn, methods, change=change, suite={"measure": ["eval"]})
    assert headline(asked) == [ACCURACY, NLL, ECE]
    assert GRADIENT_VARIANCE in unmeasured(asked)
    wanted = group_of(syn, methods, change=change)
    assert headline(wanted) == [
        ACCURACY, NLL, ECE, robust("FGSM", "8/255", 8 / 255), robust("PGD-20", "8/255", 8 / 255),
        GRADIENT_VARIANCE,
    ]  # fmt: skip
    notes = " ".join(plain(note) for note in tables.main_table(asked).notes)
    assert "Not measured in any run: ECE after temperature, FGSM at 8/255" in notes


def test_robustness_table_has_every_eps_of_every_attack(syn):
    table = tables.robustness_table(group_of(syn, ("none", "dropout")))
    keys = [column.key for column in table.columns[1:]]
    assert keys == [
        f"robust_accuracy.{attack}.{label}" for attack in ("fgsm", "pgd-20") for label in syn.GRID
    ]


def test_differences_are_paired_and_corrected_over_the_whole_table(syn):
    methods = ("none", "dropout", "rdrop")
    group = group_of(syn, methods)
    found = compare(group)
    assert [one.method for one in found[:2]] == ["dropout", "rdrop"]
    assert family_size(found) == 2 * len(headline(group)) == len(found)
    differences = [syn.accuracy("dropout", s) - syn.accuracy("none", s) for s in (0, 1, 2)]
    assert found[0].difference.interval.mean == pytest.approx(sum(differences) / 3)
    smallest = min(found, key=lambda one: one.difference.p)
    assert smallest.difference.p_holm == pytest.approx(min(1.0, smallest.difference.p * len(found)))


def test_difference_table_marks_what_stands(syn):
    def change(row):
        if row["metric"] == "accuracy" and row["method"] == "dropout" and row["split"] == "test":
            row["value"] = syn.accuracy("none", row["seed"]) - 0.05 + 1e-6 * row["seed"]
        return row

    group = group_of(syn, ("none", "dropout"), change=change)
    table = tables.difference_table(group, compare(group))
    first = table.rows[0]
    assert first[2].text == "difference"
    assert first[3].text == f"{MINUS}5.0"
    assert first[3].strong
    assert first[4].text == "< 0.001"
    assert table.groups[0] == "Test accuracy, points ↑"
    assert "quantity" not in [column.key for column in table.shown().columns]


def test_differences_without_a_baselines_runs_say_why(syn):
    group = select(syn.suite(("none", "dropout")), syn.source(("dropout",)))[0]
    found = compare(group)
    assert all(one.difference is None for one in found)
    assert found[0].reason == "baseline: no run"
    table = tables.difference_table(group, found)
    assert table.rows[0][3].missing


def test_reasons_for_no_pair(syn):
    runs = [syn.run("none", 0), syn.run("dropout", 1)]
    group = select(syn.suite(("none", "dropout", "rdrop")), syn.source(runs=runs))[0]
    reasons = {one.method: one.reason for one in compare(group) if one.quantity == ACCURACY}
    assert reasons == {"dropout": "no seed has both", "rdrop": "no run"}


def test_settings_are_those_of_the_runs(syn):
    runs = [syn.run("dropout", 0, settings={"where": {"b": None, "a": [1, 2]}})]
    group = select(syn.suite(("none", "dropout")), syn.source(runs=runs))[0]
    table = tables.settings_table(group)
    rows = [tuple(cell.text for cell in row) for row in table.rows]
    assert rows == [
        ("dropout", "dropout", "p", "0.1"),
        ("dropout", "dropout", "where.a", "1, 2"),
        ("dropout", "dropout", "where.b", "none"),
    ]


@pytest.mark.parametrize(
    ("p", "text"),
    [(None, "–"), (0.0, "< 0.001"), (0.0009, "< 0.001"), (0.05, "0.050"), (1.0, "1")],
)
def test_p_values(p, text):
    assert cells.p_value(p).text == text


def test_csv_of_the_main_table_reads_back(syn, report):
    found = list(csv.DictReader(io.StringIO(report["tables/main.csv"].decode())))
    assert [row["method"] for row in found] == list(syn.METHODS)
    values = [syn.accuracy("rdrop", seed) for seed in (0, 1, 2)]
    row = next(row for row in found if row["method"] == "rdrop")
    assert float(row["accuracy"]) == pytest.approx(sum(values) / 3, rel=1e-11)
    assert (row["accuracy_n"], row["accuracy_missing"], row["passes"]) == ("3", "", "2")


def test_measurements_name_the_run_of_every_number(syn, report):
    found = list(csv.DictReader(io.StringIO(report["measurements.csv"].decode())))
    accuracies = {row["run_id"]: row for row in found if row["metric"] == "accuracy"}
    assert len(accuracies) == 24
    run = syn.run("dropconnect", 2)
    row = accuracies[run.run_id]
    assert float(row["value"]) == syn.accuracy("dropconnect", 2)
    assert (row["split"], row["config_hash"]) == ("test", run.config_hash)
    assert sum(row["metric"] == "gradient_variance_base" for row in found) == 24 * 5


def test_gradient_variance_is_averaged_geometrically_and_compared_as_a_ratio(syn):
    values = {("none", 0): 1.0, ("none", 1): 4.0, ("dropout", 0): 3.0, ("dropout", 1): 8.0}

    def change(row):
        if row["metric"] == "gradient_variance":
            row["value"] = values[row["method"], row["seed"]]
        return row

    group = group_of(syn, ("none", "dropout"), (0, 1), change=change)
    main = tables.main_table(group)
    assert texts(main, "gradient_variance") == ["2.00", "4.90"]
    table = tables.difference_table(group, compare(group))
    row = table.rows[-1]
    assert row[2].text == "ratio"
    assert row[3].text == "×2.45"  # sqrt(3 * 2)
    assert not row[3].interval.startswith("[×")
    assert row[6].text.startswith("×")
    assert table.groups[len(table.rows) - 1] == "Gradient variance, epoch 40, ratio"


def test_a_variance_of_zero_has_no_logarithm_and_says_so(syn):
    def change(row):
        if row["metric"] == "gradient_variance" and row["method"] == "dropout":
            row["value"] = 0.0
        return row

    main = tables.main_table(group_of(syn, ("none", "dropout"), change=change))
    assert texts(main, "gradient_variance")[1] == "not positive"
