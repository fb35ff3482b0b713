"""Logits of a split, and the rows that come of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import norm
from support import judged

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.evaluation import calibration, metrics, scores
from attndrop_repro.evaluation.accuracy import predict
from attndrop_repro.evaluation.options import CalibrateOptions, EvalOptions
from attndrop_repro.evaluation.probabilities import softmax
from attndrop_repro.store.logits import Logits


def test_predict_in_eval_mode_whatever_the_batch_size():
    model, split = judged.trained(), judged.some(65)
    whole = predict(model, split)
    with torch.no_grad():
        expected = model(split.pixels(slice(None))).numpy()
    assert np.abs(whole.logits - expected).max() < 1e-5
    assert whole.labels.tolist() == split.labels.tolist()
    assert whole.ids.tolist() == split.ids.tolist()
    model.train()
    model.network.blocks[0].eval()
    modes = [m.training for m in model.modules()]
    state = torch.get_rng_state()
    for batch_size in (1, 2, 8, 64):
        assert np.array_equal(predict(model, split, batch_size=batch_size).logits, whole.logits)
    assert [m.training for m in model.modules()] == modes
    assert torch.equal(state, torch.get_rng_state())


def test_predict_in_float64():
    content = predict(judged.trained().double(), judged.some(5))
    assert content.logits.dtype == np.float32


def test_accuracy_rows():
    content = predict(judged.trained(), judged.some(200))
    options = EvalOptions(bins=10, usual_bins=10)
    rows = {row["metric"]: row for row in metrics.accuracy_rows(content, options)}
    assert list(rows) == ["accuracy", "top5_accuracy", "nll", "brier", "ece"]
    right = content.logits.argmax(1) == content.labels
    accuracy = rows["accuracy"]
    assert accuracy["value"] == right.mean()
    low, high = accuracy["detail"]["interval"]
    half = norm.ppf(0.975) * np.sqrt(right.mean() * (1 - right.mean()) / 200)
    assert low == pytest.approx(right.mean() - half, abs=0.01)
    assert high == pytest.approx(right.mean() + half, abs=0.01)
    assert rows["nll"]["value"] == scores.nll(content.logits, content.labels)
    p = softmax(content.logits)
    assert rows["ece"]["value"] == calibration.ece(p, content.labels, 10)
    assert len(rows["ece"]["detail"]["bins"]) == 10
    assert rows["ece"]["detail"]["sweep"]["10"] == rows["ece"]["value"]
    parts = rows["brier"]["detail"]["decomposition"]
    assert set(parts) == {"reliability", "resolution", "uncertainty", "variance", "covariance"}
    assert all(row["n"] == 200 for row in rows.values())
    assert metrics.accuracy_rows(content, options) == list(rows.values()), "the same every time"


def test_few_classes_have_no_top_five():
    content = Logits(np.eye(3, dtype=np.float32), np.arange(3), np.arange(3))
    assert "top5_accuracy" not in [row["metric"] for row in metrics.accuracy_rows(content)]


def test_calibration_rows():
    model = judged.trained()
    test = predict(model, judged.some(150))
    validation = predict(model, judged.some(80, "validation"))
    rows = {row["metric"]: row for row in metrics.calibration_rows(test, validation)}
    assert list(rows) == [
        "ece", "mce", "adaptive_ece", "classwise_ece", "debiased_ece", "temperature",
        "ece_after_temperature", "nll_after_temperature",
    ]  # fmt: skip
    t = rows["temperature"]["value"]
    assert rows["temperature"]["detail"]["fit_n"] == 80
    assert rows["temperature"]["detail"]["fit_split"] == "validation"
    scaled = test.logits.astype(np.float64) / t
    after = calibration.ece(softmax(scaled), test.labels)
    assert rows["ece_after_temperature"]["value"] == pytest.approx(after)
    assert rows["ece_after_temperature"]["detail"]["temperature"] == t
    assert len(rows["ece_after_temperature"]["detail"]["bins"]) == 15
    assert all(row["n"] == 150 for row in rows.values())


def test_other_bins_are_in_the_names_of_what_depends_on_them_and_change_nothing_else():
    content = predict(judged.trained(), judged.some(150))
    fitted_on = predict(judged.trained(), judged.some(80, "validation"))
    found = {}
    for bins in (15, 5):
        rows = metrics.accuracy_rows(content, EvalOptions(bins=bins))
        rows += metrics.calibration_rows(content, fitted_on, CalibrateOptions(bins=bins))
        found[bins] = {row["metric"]: row for row in rows}
    shared = {name: row for name, row in found[15].items() if name in found[5]}
    assert set(shared) == {
        "accuracy", "top5_accuracy", "nll", "brier", "temperature", "nll_after_temperature",
    }  # fmt: skip
    assert {name: found[5][name] for name in shared} == shared, "the decomposition's bins too"
    others = {f"{name}_5_bins" for name in found[15] if name not in shared}
    assert set(found[5]) == {*shared, *others}
    p = softmax(content.logits)
    assert found[5]["mce_5_bins"]["value"] == calibration.mce(p, content.labels, 5)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_run_that_diverged_gives_no_number(value):
    content = Logits(np.full((4, 3), value, np.float32), np.zeros(4, int), np.arange(4))
    sound = Logits(np.eye(3, dtype=np.float32), np.arange(3), np.arange(3))
    with pytest.raises(AttndropError, match="4 of 4 examples"):
        metrics.accuracy_rows(content)
    with pytest.raises(AttndropError, match="not finite"):
        metrics.calibration_rows(sound, content)
