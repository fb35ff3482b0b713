import io
import math
import re

import matplotlib
import numpy as np
import pytest
from PIL import Image

from attndrop_repro.report import statistics
from attndrop_repro.report.comparisons import compare
from attndrop_repro.report.figures import canvas, curves
from attndrop_repro.report.figures.forest import forest
from attndrop_repro.report.figures.gradients import gradients
from attndrop_repro.report.figures.learning import learning
from attndrop_repro.report.figures.reliability import pooled, reliability
from attndrop_repro.report.figures.robustness import robustness
from attndrop_repro.report.select import select

LONG = "attentiondrop-hard+attentiondrop-blur+stochastic-depth+consistency"


def group_of(syn, methods=("none", "dropout"), seeds=(0, 1, 2), **source):
    return select(syn.suite(methods, seeds), syn.source(methods, seeds, **source))[0]


def ink(png):
    """Share of pixels that are not paper, in the whole picture and at its four edges."""
    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("L"))
    dark = pixels < 250
    edges = [dark[0].mean(), dark[-1].mean(), dark[:, 0].mean(), dark[:, -1].mean()]
    return dark.mean(), edges


def test_all_pictures_of_a_full_store(report):
    names = {name.split("/")[1][:-4] for name in report if name.startswith("figures/")}
    assert names == {
        "differences", "reliability", "robustness", "robustness-differences", "gradient-variance",
        "gradient-variance-by-method", "learning-curves",
    }  # fmt: skip
    for name in names:
        share, edges = ink(report[f"figures/{name}.png"])
        assert 0.005 < share < 0.5, name
        assert max(edges) == 0, f"{name} is cut off"
        svg = report[f"figures/{name}.svg"].decode()
        assert "<svg" in svg
        assert "dc:date" not in svg
        assert "dc:creator" not in svg.lower()


def test_a_forest_of_long_names_fits(syn):
    methods = ("none", LONG, "x" * 70)
    group = group_of(syn, methods)
    (picture,) = forest(group, compare(group))
    assert max(ink(picture.png)[1]) == 0
    assert "x" * 70 not in picture.svg
    assert picture.title == "Differences from none"


def test_nothing_measured_draws_nothing(syn):
    group = group_of(syn, change=lambda row: None)
    assert forest(group, compare(group)) == []
    assert reliability(group) == []
    assert robustness(group) == []
    assert gradients(group) == []
    assert learning(group) != []  # histories are no measurements
    bare = group_of(syn, runs=[syn.run("none", 0, history=())])
    assert learning(bare) == []


def test_one_seed_is_drawn_without_bands(syn):
    group = group_of(syn, seeds=(0,))
    for pictures in (forest(group, compare(group)), robustness(group), gradients(group)):
        for picture in pictures:
            assert "fill-opacity: 0.16" not in picture.svg
    with_bands = robustness(group_of(syn))[1]
    assert "fill-opacity: 0.16" in with_bands.svg


def test_only_the_baseline_has_no_differences(syn):
    group = group_of(syn, ("none",))
    assert forest(group, compare(group)) == []
    assert [picture.name for picture in robustness(group)] == ["robustness"]


def test_reliability_pools_seeds_by_count(syn):
    group = group_of(syn, ("none",), (0, 1))
    found = pooled(group, "none")
    index = 12
    first, second = (syn.bins("none", seed)[index] for seed in (0, 1))
    total = first["count"] + second["count"]
    one = next(b for b in found if math.isclose(b.low, index / 15))
    assert one.count == total
    expected = (first["accuracy"] * first["count"] + second["accuracy"] * second["count"]) / total
    assert one.accuracy == pytest.approx(expected)
    assert all(one.count for one in found)


def test_reliability_survives_bins_it_cannot_read(syn):
    details = iter(['{"bins": 3}', '{"bins": [1, {"lo": 0}]}', "not json"])

    def change(row):
        if row["metric"] == "ece":
            row["detail"] = next(details)
        return row

    assert pooled(group_of(syn, ("none",), change=change), "none") == []


def test_reliability_leaves_out_runs_with_other_bins(syn):
    import json

    def change(row):
        if row["metric"] == "ece" and row["seed"] == 2:
            row["detail"] = json.dumps({"bins": syn.bins("none", 2, 10)})
        return row

    found = pooled(group_of(syn, ("none",), change=change), "none")
    two = pooled(group_of(syn, ("none",), (0, 1)), "none")
    assert found == two


def test_curve_is_mean_and_interval_of_finite_values():
    one = curves.curve("m", {4.0: [1.0, 2.0, 3.0], 1.0: [5.0, math.nan], 2.0: [math.nan]})
    mean = statistics.mean([1.0, 2.0, 3.0])
    assert one.x == (1.0, 4.0)
    assert one.y == (5.0, 2.0)
    assert (one.low, one.high) == ((5.0, mean.low), (5.0, mean.high))
    assert one.n == (1, 3)
    assert curves.curve("m", {}).x == ()


@pytest.mark.parametrize(
    ("values", "log"), [([1, 2], False), ([1, 100], True), ([0, 100], False), ([-1, 9], False)]
)
def test_a_logarithmic_axis_only_where_it_can_and_must(values, log):
    made = [curves.curve("m", {0: [value]}) for value in values]
    assert curves.logarithmic(made) is log


def test_gradient_variance_of_zero_and_negative_values_is_drawn(syn):
    def change(row):
        if row["metric"] == "gradient_variance":
            row["value"] = {0: 0.0, 10: -1.0, 20: 1e6, 30: math.nan, 40: 1e-9}[row["epoch"]]
        return row

    first, second = gradients(group_of(syn, change=change))
    assert max(ink(first.png)[1]) == 0
    # the variance of 0, -1 and NaN has no logarithm: two epochs of each method are left
    assert len(second.data.rows) == 4


def test_ratios_beyond_all_proportion_are_drawn(syn):
    def change(row):
        if row["metric"] == "gradient_variance" and row["method"] == "dropout":
            row["value"] = 1e-200 if row["seed"] else 1e200
        return row

    group = group_of(syn, seeds=(0, 1), change=change)
    (picture,) = forest(group, compare(group))
    assert max(ink(picture.png)[1]) == 0


def test_every_bin_has_the_interval_of_its_accuracy(syn):
    """Wilson's, by its own formula."""
    (picture,) = reliability(group_of(syn, ("none",), (0,)))
    names = [column.key for column in picture.data.columns]
    for row in picture.data.rows:
        raw = {name: cell.raw.get("") for name, cell in zip(names, row, strict=True)}
        n, z = raw["count"], 1.959963984540054
        share = round(raw["accuracy"] * n) / n
        centre = (share + z * z / (2 * n)) / (1 + z * z / n)
        half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
        assert raw["accuracy_low"] == pytest.approx(max(0, centre - half), abs=1e-9)
        assert raw["accuracy_high"] == pytest.approx(min(1, centre + half), abs=1e-9)


def test_few_predictions_are_faint(syn):
    group = group_of(syn, ("none",), (0,))
    counts = [one.count for one in pooled(group, "none")]
    assert min(counts) < 10 < max(counts)
    (picture,) = reliability(group)
    assert "; opacity: 0.06" in picture.svg
    assert "; opacity: 0.3" in picture.svg


def test_a_resumed_run_counts_an_epoch_once(syn):
    twice = [{"epoch": 1, "train_loss": 9.0}, *syn.history("none", 0)]
    group = group_of(syn, runs=[syn.run("none", 0, history=twice)])
    (picture,) = learning(group)
    first = picture.data.rows[0]
    assert first[2].text == "1"
    assert first[3].raw[""] == pytest.approx(syn.history("none", 0)[0]["train_loss"])


def test_names_are_text_in_figures(syn):
    evil = "<b>&amp;$x^2$"
    group = group_of(syn, ("none", evil))
    (picture,) = forest(group, compare(group))
    assert "&lt;b&gt;&amp;amp;$x^2$" in picture.svg
    assert "<b>" not in picture.svg


def test_labels_are_broken_or_cut():
    assert canvas.label("attentiondrop-hard+consistency") == "attentiondrop-hard+consistency"
    assert canvas.label(LONG) == (
        "attentiondrop-hard+\nattentiondrop-blur+\nstochastic-depth+consistency"
    )
    assert canvas.label("x" * 40) == "x" * 31 + "…"


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 30])
def test_places_do_not_overlap_and_stay_inside(count):
    figure, places = canvas.grid([f"m{i}" for i in range(count)], 1.5, above=0.3)
    width, height = figure.get_size_inches()
    boxes = [place.box for place in places]
    for x, y, w, h in boxes:
        assert x >= 0.5
        assert y >= 0.4
        assert x + w <= width
        assert y + h <= height - 0.3
    for i, (x, y, w, h) in enumerate(boxes):
        for u, v, s, t in boxes[i + 1 :]:
            assert x + w <= u or u + s <= x or y >= v + t or v >= y + h
    assert sum(place.lowest for place in places) == min(count, 4)
    assert sum(place.first for place in places) == math.ceil(count / 4)


def test_matplotlibs_settings_are_left_and_not_taken():
    before = dict(matplotlib.rcParams)
    with matplotlib.rc_context({"font.size": 31}), canvas.style():
        assert matplotlib.rcParams["font.size"] == 9
        assert matplotlib.rcParams["xtick.direction"] == "out"
    assert dict(matplotlib.rcParams) == before


def test_ids_of_two_figures_differ(report):
    ids = [
        set(re.findall(r'id="(p[0-9a-f]{10})"', report[f"figures/{name}.svg"].decode()))
        for name in ("robustness", "gradient-variance")
    ]
    assert ids[0]
    assert ids[1]
    assert not ids[0] & ids[1]
