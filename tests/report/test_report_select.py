import dataclasses
import math

import pytest

from attndrop_repro.report.prose import plain
from attndrop_repro.report.quantities import ACCURACY, ECE, GRADIENT_VARIANCE, NLL
from attndrop_repro.report.select import select

TWO = ("none", "attentiondrop-hard+consistency")


def one_group(syn, source, **suite):
    return select(syn.suite(**suite), source)[0]


def cautions(group):
    return "\n".join(plain(text) for text in group.cautions)


def test_values_are_the_test_splits(syn):
    group = one_group(syn, syn.source(TWO), methods=TWO)
    for method in TWO:
        expected = {seed: syn.accuracy(method, seed) for seed in (0, 1, 2)}
        assert group.values(ACCURACY, method) == expected
    assert group.cautions == ()
    assert (group.dataset, group.model) == ("synthetic-shapes", "vit_synthetic")
    assert group.last_snapshot() == 40
    assert group.sizes() == "Test examples: 450; for gradient variance: 256"


def test_spelling_of_a_composition_does_not_matter(syn):
    methods = ("none", "consistency+attentiondrop-hard")
    group = one_group(syn, syn.source(TWO), methods=methods, baseline="none")
    assert len(group.values(ACCURACY, methods[1])) == 3


def test_seeds_and_recipes_outside_the_suite_do_not_count(syn):
    group = one_group(syn, syn.source(TWO, (0, 1, 2, 9)), methods=TWO, seeds=(0, 2))
    assert set(group.values(ACCURACY, "none")) == {0, 2}
    other = [dataclasses.replace(run, recipe="another") for run in syn.source(TWO).runs]
    rows = [dataclasses.replace(row, recipe="another") for row in syn.source(TWO).rows]
    source = dataclasses.replace(syn.source(TWO), runs=tuple(other), rows=tuple(rows))
    assert one_group(syn, source, methods=TWO).runs == {}


def test_sweeps_of_the_recipe_are_left_out(syn):
    swept = syn.RECIPE.model_copy(update={"settings": {"*": {"p": 0.9}}})
    own = [syn.run(method, seed) for method in TWO for seed in (0, 1, 2)]
    sweep = [
        syn.run("none", seed, swept, settings={"p": 0.9}, updated="2027-01-01T00:00:00Z")
        for seed in (0, 1, 2)
    ]
    group = one_group(syn, syn.source(runs=[*sweep, *own]), methods=TWO)
    assert {run.config_hash for run in group.runs.values()} == {run.config_hash for run in own}
    assert "none: 3 more runs with other settings" in cautions(group)


def test_without_the_recipe_the_suites_own_runs_count_then_the_newest(syn):
    older = [syn.run("none", seed, settings={"p": 0.2}) for seed in (0, 1, 2)]
    newer = [
        syn.run("none", seed, settings={"p": 0.3}, updated="2027-01-01T00:00:00Z")
        for seed in (0, 1, 2)
    ]

    def chosen(suite_of_older):
        rows = [row for run in older for row in syn.run_rows(run, suite=suite_of_older)]
        rows += [row for run in newer for row in syn.run_rows(run, suite="")]
        source = syn.source(runs=[*older, *newer], recipes={}, change=lambda _: None, more=rows)
        return one_group(syn, source, methods=("none",)).runs["none", 0].config_hash

    assert chosen("synthetic") == older[0].config_hash
    assert chosen("") == newer[0].config_hash


def test_runs_known_by_their_rows_only(syn):
    source = syn.source(TWO)
    bare = dataclasses.replace(source, runs=())
    group = one_group(syn, bare, methods=TWO)
    assert group.values(ACCURACY, "none") == {s: syn.accuracy("none", s) for s in (0, 1, 2)}
    assert {run.status for run in group.runs.values()} == {"finished"}


def test_runs_under_unequal_conditions_are_named(syn):
    training = syn.RECIPE.training.model_copy(update={"lr": 0.5})
    other = syn.RECIPE.model_copy(update={"training": training})
    runs = [syn.run("none", 0), syn.run("dropout", 0, other)]
    group = one_group(syn, syn.source(runs=runs), methods=("none", "dropout"), seeds=(0,))
    assert "not made under equal conditions: they differ in training.lr" in cautions(group)


def test_runs_of_an_earlier_recipe_are_named(syn):
    training = syn.RECIPE.training.model_copy(update={"epochs": 7})
    now = syn.RECIPE.model_copy(update={"training": training})
    group = one_group(syn, syn.source(TWO, recipes={now.name: now}), methods=TWO)
    assert "6 of 6 runs were made with settings other than the recipe has now" in cautions(group)


def test_gaps_say_why(syn):
    runs = [
        syn.run("none", 0),
        syn.run("none", 1, status="failed", message="the loss is not finite"),
        syn.run("none", 2, status="interrupted", epoch=12),
        syn.run("none", 3, status="running"),
        syn.run("none", 4, status="failed"),
    ]
    source = syn.source(runs=runs, change=lambda r: None if r["metric"] == "nll" else r)
    group = one_group(syn, source, methods=("none",), seeds=range(6))
    assert group.gaps(NLL, "none") == {
        0: "not measured",
        1: "failed: the loss is not finite",
        2: "interrupted at epoch 12",
        3: "still running",
        4: "failed",
        5: "no run",
    }
    assert 0 not in group.gaps(ACCURACY, "none")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_no_value(syn, value):
    def change(row):
        if row["metric"] == "ece" and row["seed"] == 1:
            row["value"] = value
        return row

    group = one_group(syn, syn.source(("none",), change=change), methods=("none",))
    assert set(group.values(ECE, "none")) == {0, 2}
    assert group.gaps(ECE, "none") == {1: "not a number (NaN)"}
    assert "1 measurement is not a number" in cautions(group)


def test_of_several_measurements_the_last_epoch_most_examples_newest_counts(syn):
    row = next(r for r in syn.run_rows(syn.run("none", 0)) if r["metric"] == "accuracy")
    late = {"created_at": "2027-01-01T00:00:00Z"}
    more = [
        {**row, **late, "epoch": 10, "value": 0.1},
        {**row, **late, "n": 10, "value": 0.2},
        {**row, **late, "value": 0.7, "device": "cuda"},
        {**row, "created_at": "2020-01-01T00:00:00Z", "value": 0.3},
        {**row, **late, "dataset": "somewhere-else", "value": 0.4},
    ]
    source = syn.source(("none",), (0,), more=more)
    group = one_group(syn, source, methods=("none",), seeds=(0,))
    assert group.values(ACCURACY, "none") == {0: 0.7}
    assert "different devices: cpu and cuda" in cautions(group)


def test_different_numbers_of_examples_are_named(syn):
    def change(row):
        if row["metric"] == "accuracy" and row["split"] == "test" and row["seed"] == 2:
            row["n"] = 100
        return row

    group = one_group(syn, syn.source(("none",), change=change), methods=("none",))
    assert "Test accuracy was measured on different numbers of examples: 100 and 450" in (
        cautions(group)
    )


def test_eps_grids_may_differ(syn):
    def change(row):
        if row["method"] == "dropout" and row.get("attack"):
            if row["eps_label"] == "16/255":
                return None
            if row["eps_label"] == "4/255":
                row |= {"eps_label": "0.0156", "eps": 0.0156}
        return row

    methods = ("none", "dropout")
    group = one_group(syn, syn.source(methods, change=change), methods=methods)
    labels = [quantity.eps_label for quantity in group.grid("PGD-20")]
    assert labels == ["1/255", "2/255", "0.0156", "4/255", "8/255", "16/255"]
    sixteen = group.grid("PGD-20")[-1]
    assert set(group.gaps(sixteen, "dropout").values()) == {"not measured"}
    assert group.at_reference("PGD-20").eps_label == "8/255"


def test_reference_eps_is_the_nearest_where_8_255_was_not_measured(syn):
    def change(row):
        return None if row.get("eps_label") == "8/255" else row

    group = one_group(syn, syn.source(("none",), change=change), methods=("none",))
    assert group.at_reference("FGSM").eps_label == "4/255"
    assert group.at_reference("CW").eps_label == "8/255"


def test_attacks_are_told_apart(syn):
    row = next(r for r in syn.run_rows(syn.run("none", 0)) if r.get("attack") == "pgd")
    more = [
        {**row, "steps": 10},
        {**row, "restarts": 5},
        {**row, "norm": "l2"},
        {**row, "attack": "autoattack", "steps": None},
        {**row, "attack": "pgd+least-likely"},
    ]
    group = one_group(syn, syn.source(("none",), (0,), more=more), methods=("none",), seeds=(0,))
    assert group.attacks() == [
        "FGSM", "AutoAttack", "PGD-10", "PGD-20", "PGD-20 (5 restarts)", "PGD-20 (l2)",
        "PGD-20 (least-likely)",
    ]  # fmt: skip


def test_gradient_variance_is_that_of_the_last_snapshot_of_all(syn):
    def change(row):
        late = row["metric"] == "gradient_variance" and row["epoch"] == 40
        return None if late and row["method"] == "dropout" else row

    methods = ("none", "dropout")
    group = one_group(syn, syn.source(methods, change=change), methods=methods)
    assert len(group.values(GRADIENT_VARIANCE, "none")) == 3
    assert set(group.gaps(GRADIENT_VARIANCE, "dropout").values()) == {"not measured"}


def test_a_baseline_outside_the_suite_is_none(syn):
    suite = syn.suite(TWO).model_copy(update={"baseline": "dropkey"})
    group = select(suite, syn.source(TWO))[0]
    assert group.baseline is None
    assert group.no_baseline == "the suite's baseline dropkey is not among its methods"


def test_passes_are_what_the_run_says_else_what_the_name_says(syn):
    run = syn.run("dropkey", 0, provenance={"passes": 3})
    group = one_group(
        syn, syn.source(runs=[run]), methods=("dropkey", "rdrop"), seeds=(0,), baseline="dropkey"
    )
    assert (group.passes("dropkey"), group.passes("rdrop")) == (3, 2)


def test_names_of_two_pass_methods_agree_with_the_registry():
    from attndrop_repro.methods import registry
    from attndrop_repro.report import names

    two = {name for name in registry.names() if registry.get(name).passes > 1}
    assert two == names.TWO_PASSES


def test_damaged_runs_are_named(syn):
    source = syn.source(TWO, damaged={"synthetic-vit--none--s7--0": "spec.json: no", "x--y": "z"})
    text = cautions(one_group(syn, source, methods=TWO))
    assert "Run synthetic-vit--none--s7--0 cannot be read: spec.json: no" in text
    assert "x--y" not in text


def test_measurements_that_doubt_themselves_are_named(syn):
    def change(row):
        if row.get("attack") == "pgd" and row["eps_label"] == "8/255":
            row["detail"] = '{"audit": {"failed": ["pgd-at-most-fgsm", "falls-with-eps"]}}'
        if row["metric"] == "ece_after_temperature" and row["seed"] == 0:
            row["detail"] = '{"converged": false}'
        return row

    text = cautions(one_group(syn, syn.source(("none",), change=change), methods=("none",)))
    assert "Of 30 robust accuracies, some did not pass an audit" in text
    assert "falls-with-eps (3) and pgd-at-most-fgsm (3)" in text
    assert "The temperature was not found for 1 of 3 runs" in text
