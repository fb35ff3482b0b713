from attndrop_repro.report.comparisons import compare
from attndrop_repro.report.findings import summarise
from attndrop_repro.report.prose import plain
from attndrop_repro.report.select import select


def summary(syn, methods=("none", "dropout", "rdrop"), seeds=(0, 1, 2), suite=None, **source):
    found = syn.source(methods, seeds, **source)
    group = select(suite or syn.suite(methods, seeds), found)[0]
    return summarise(group, compare(group))


def limits(found):
    return " ".join(plain(text) for text in found.limits)


def test_nothing_significant_is_said_first_and_is_not_called_equality(syn):
    found = summary(syn)
    assert plain(found.lede) == (
        "No difference from none can be told from noise: of 14 tests, none is significant after "
        "Holm's correction."
    )
    assert "does not mean that there is none" in limits(found)
    assert "decides no claim" in limits(found)
    assert "3 seeds a method are few" in limits(found)
    assert "rdrop used twice the compute" in limits(found)
    assert {finding.verdict for finding in found.findings} == {"no difference shown"}
    first = plain(found.findings[0].text)
    assert first.startswith("none has 94.3 %. Largest difference: ")
    assert "Before correction, 3 seeds could typically have shown a true difference of" in first
    assert plain(found.compared) == (
        "3 methods, recipe synthetic-vit (vit_synthetic) on synthetic-shapes, 3 seeds each; all "
        "other settings equal. 9 of 9 runs finished. Test examples: 450; for gradient variance: "
        "256."
    )


def test_what_stands_is_named_with_its_direction(syn):
    def change(row):
        for metric, shift in (("accuracy", -0.04), ("ece", -0.03)):
            if row["metric"] == metric and row["method"] == "dropout" and row["split"] == "test":
                base = syn.run_rows(syn.run("none", row["seed"]))
                own = next(r for r in base if r["metric"] == metric and r["split"] == "test")
                row["value"] = own["value"] + shift + 1e-6 * row["seed"]
        return row

    found = summary(syn, change=change)
    text = plain(found.lede)
    assert text.startswith("2 of 14 comparisons differ from none significantly")
    assert "dropout (test accuracy −4.0 points [−4.0, −4.0]); dropout (ECE −3.00 points" in text
    verdicts = {finding.quantity.key: finding.verdict for finding in found.findings}
    assert (verdicts["accuracy"], verdicts["ece"]) == ("worse", "better")
    assert "Significant: dropout." in plain(found.findings[0].text)


def test_one_seed(syn):
    found = summary(syn, seeds=(0,))
    assert plain(found.lede).startswith("One seed a method: differences from none are shown")
    assert {finding.verdict for finding in found.findings} == {"not tested"}
    assert "One seed a method says nothing" in limits(found)


def test_no_runs_no_numbers_no_baseline(syn):
    assert plain(summary(syn, (), (), suite=syn.suite()).lede) == (
        "There are no runs of this suite in the results store yet."
    )
    failed = [syn.run("none", seed, status="failed") for seed in (0, 1, 2)]
    found = summary(syn, suite=syn.suite(("none", "dropout")), runs=failed)
    assert plain(found.lede) == "No run has been measured yet: there is nothing to compare."
    assert "0 of 6 runs finished; 3 failed; 3 not started." in plain(found.compared)
    without = syn.suite(("none", "dropout")).model_copy(update={"baseline": ""})
    found = summary(syn, ("none", "dropout"), suite=without)
    assert plain(found.lede) == "Nothing is compared: the suite names no baseline."
    assert found.findings == ()


def test_a_baseline_without_runs(syn):
    found = summary(syn, ("dropout", "rdrop"), suite=syn.suite(("none", "dropout", "rdrop")))
    assert plain(found.lede) == "No method has runs that can be compared with none yet."


def test_few_and_many_seeds_differ_in_words(syn):
    found = summary(syn, seeds=(0, 1, 2, 3, 4))
    assert "are few" not in limits(found)
    assert "does not mean that there is none" in limits(found)


def test_examples_under_attack_are_named_where_they_are_fewer(syn):
    def change(row):
        if row.get("attack"):
            row["n"] = 100
        return row

    text = plain(summary(syn, change=change).compared)
    assert "Test examples: 450; under attack: 100; for gradient variance: 256." in text
