"""Measurements of a run into its store: whole rows, skipped when there, recomputed from logits."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from support import judged
from support.tiny_run import spec_of

from attndrop_repro.config.errors import AttndropError, UsageError
from attndrop_repro.evaluation.attack_setting import grid
from attndrop_repro.evaluation.measure import measure
from attndrop_repro.evaluation.options import (
    AttackOptions,
    CalibrateOptions,
    EvalOptions,
    GradvarOptions,
    default_options,
)
from attndrop_repro.evaluation.recompute import recompute
from attndrop_repro.evaluation.wanted import lacking
from attndrop_repro.store import Store
from attndrop_repro.store.logits import load_logits
from attndrop_repro.training import train
from attndrop_repro.training.restore import load_run

SPEC = spec_of(
    "dropout",
    settings={"p": 0.2},
    training={"snapshots": [0, 3]},
    evaluation={
        "attack": {"eps": ["0", "0.1"], "steps": 3, "step_size": "0.05", "limit": 40},
        "gradient_variance": {"examples": 12, "epochs": [0, 3]},
    },
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    root = tmp_path_factory.mktemp("store")
    train(SPEC, Store(root), device="cpu")
    return root


@pytest.fixture
def store(finished, tmp_path):
    return Store(shutil.copytree(finished, tmp_path / "store"))


def row(store, metric, **columns):
    frame = store.frame()
    frame = frame[frame["metric"] == metric]
    for name, value in columns.items():
        frame = frame[frame[name] == value]
    assert len(frame) == 1, (metric, columns, len(frame))
    found = frame.iloc[0].to_dict()
    return {**found, "detail": json.loads(found["detail"])}


def test_eval(store):
    subject = load_run(store, SPEC.run_id)
    rows = measure("eval", subject, store, suite="some")
    assert {r["metric"] for r in rows} == {"accuracy", "top5_accuracy", "nll", "brier", "ece"}
    found = row(store, "accuracy")
    assert found["run_id"] == SPEC.run_id
    assert (found["split"], found["epoch"], found["seed"], found["method"]) == (
        "test", 3, 0, "dropout",
    )  # fmt: skip
    assert (found["suite"], found["device"], found["status"]) == ("some", "cpu", "finished")
    assert (found["p"], found["n"], found["threads"]) == (0.2, 449, 1)
    test = subject.splits.test
    with torch.no_grad():
        right = subject.model(test.pixels(slice(None))).argmax(1) == test.labels
    assert found["value"] == pytest.approx(float(right.double().mean()))
    logits = load_logits(store.run_dir(SPEC.run_id).logits("test"))
    assert logits.ids.tolist() == test.ids.tolist()


def test_what_is_there_is_skipped(store):
    subject = load_run(store, SPEC.run_id)
    for kind in ("eval", "calibrate", "attack", "gradvar"):
        assert measure(kind, subject, store)
        files = set(store.measurements.iterdir())
        assert measure(kind, subject, store) == []
        assert set(store.measurements.iterdir()) == files
        again = measure(kind, subject, store, force=True)
        assert again
        assert len(set(store.measurements.iterdir())) == len(files) + 1


def test_only_the_sizes_that_are_missing_are_attacked(store):
    subject = load_run(store, SPEC.run_id)
    some = AttackOptions(tuple(grid(["fgsm"], ["0.05"])), limit=30)
    more = AttackOptions(tuple(grid(["fgsm"], ["0.05", "0.1"])), limit=30)
    assert [r["eps_label"] for r in measure("attack", subject, store, options=some)] == ["0.05"]
    assert [r["eps_label"] for r in measure("attack", subject, store, options=more)] == ["0.1"]
    wider = AttackOptions(some.settings, limit=35)
    assert [r["n"] for r in measure("attack", subject, store, options=wider)] == [35]
    whole = AttackOptions(some.settings)
    assert [r["n"] for r in measure("attack", subject, store, options=whole)] == [449]
    beyond = AttackOptions(some.settings, limit=1000)
    assert measure("attack", subject, store, options=beyond) == []


def test_attack(store, tmp_path):
    subject = load_run(store, SPEC.run_id)
    options = default_options("attack", SPEC.recipe)
    assert len(measure("attack", subject, store, options=options)) == 4
    found = row(store, "robust_accuracy", attack="pgd", eps_label="0.1")
    assert (found["steps"], found["step_size"], found["restarts"], found["n"]) == (3, 0.05, 1, 40)
    assert (found["norm"], found["eps"]) == ("linf", 0.1)
    assert found["value"] <= found["detail"]["clean_accuracy"]
    assert found["detail"]["available"] == 449
    audit = found["detail"]["audit"]
    assert audit["largest_perturbation"] <= 0.1 + 1e-6
    assert audit["robust_accuracy_at_large_eps"] == 0
    assert audit["checks"]["pgd-at-most-fgsm"] is True
    kept = AttackOptions(
        tuple(grid(["pgd"], ["0.2"], target="random", steps=3)), limit=20,
        save_adversarial=tmp_path / "kept",
    )  # fmt: skip
    (saved,) = measure("attack", subject, store, options=kept)
    assert saved["attack"] == "pgd+random"
    assert 0 <= saved["detail"]["reached_target"] <= 1
    assert all((tmp_path / "kept" / name).is_file() for name in saved["detail"]["adversarial"])


def test_attack_on_the_regularised_model(store):
    subject = load_run(store, SPEC.run_id)
    options = AttackOptions(tuple(grid(["fgsm", "pgd"], ["0.1"], steps=2, draws=2)), limit=20)
    rows = measure("attack", subject, store, options=options)
    assert [r["attack"] for r in rows] == ["fgsm+stochastic2", "pgd+stochastic2"]
    subject.make_handle().remove()


def test_calibrate(store):
    subject = load_run(store, SPEC.run_id)
    measure("calibrate", subject, store)
    found = row(store, "temperature")
    validation = len(subject.splits.validation)
    assert found["detail"]["fit_n"] == validation
    assert found["value"] > 0
    after = row(store, "ece_after_temperature")
    assert after["n"] == 449
    assert after["detail"]["fit_split"] == "validation"
    assert store.run_dir(SPEC.run_id).logits("validation").is_file()
    for split in ("test", "validation"):
        with pytest.raises(UsageError, match="choose another split"):
            CalibrateOptions(split=split, fit_split=split)


def test_gradvar_at_every_snapshot(store):
    for epoch in (0, 3):
        measure("gradvar", load_run(store, SPEC.run_id, epoch=epoch), store)
    values = {}
    for epoch in (0, 3):
        terms = {
            m: row(store, m, epoch=epoch)["value"]
            for m in ("gradient_variance", "gradient_variance_base", "gradient_variance_delta",
                      "gradient_covariance")
        }  # fmt: skip
        total, base, delta, covariance = terms.values()
        assert total == pytest.approx(base + 2 * covariance + delta, rel=1e-4)
        values[epoch] = total
        found = row(store, "gradient_variance", epoch=epoch)
        assert (found["n"], found["split"]) == (12, "train")
        detail = found["detail"]
        assert detail["mode"] == "train"
        assert detail["policy"] == "vmap"
        assert detail["method"] == "dropout"
        assert detail["condition_held"] == (covariance < -delta / 2)
        assert detail["data_part"] + detail["mask_part"] == pytest.approx(total)
    assert values[0] != values[3]


def test_gradvar_options(store):
    subject = load_run(store, SPEC.run_id)
    options = GradvarOptions(
        split="validation", examples=9, per="batch", batch_size=3, perturbation="batch", layers=True
    )
    first = measure("gradvar", subject, store, options=options)[0]
    assert (first["n"], first["split"]) == (3, "validation")
    assert first["detail"]["batch_size"] == 3
    assert "network.head" in first["detail"]["layers"]
    assert measure("gradvar", subject, store, options=options) == []


def test_recompute_without_a_model(store):
    subject = load_run(store, SPEC.run_id)
    measured = {
        r["metric"]: r["value"]
        for kind in ("eval", "calibrate")
        for r in measure(kind, subject, store)
    }
    again = recompute(SPEC.run_id, store, EvalOptions())
    again += recompute(SPEC.run_id, store, CalibrateOptions())
    assert {r["metric"]: r["value"] for r in again} == measured
    assert {r["epoch"] for r in again} == {3}
    frame = store.frame()
    assert not frame.duplicated(["run_id", "metric", "split", "epoch"]).any(), "they replace"
    with pytest.raises(AttndropError, match=r"no logits of test\+noise-2"):
        recompute(SPEC.run_id, store, EvalOptions(corruption=("noise", 2)))


def test_corrupted_splits_have_rows_of_their_own(store):
    subject = load_run(store, SPEC.run_id)
    measure("eval", subject, store)
    options = EvalOptions(corruption=("noise", 5))
    rows = measure("eval", subject, store, options=options)
    assert {r["split"] for r in rows} == {"test+noise-5"}
    assert (
        row(store, "accuracy", split="test+noise-5")["value"]
        < row(store, "accuracy", split="test")["value"]
    )
    assert measure("eval", subject, store, options=options) == []
    calibrated = measure(
        "calibrate", subject, store, options=CalibrateOptions(corruption=("blur", 1))
    )
    assert {r["split"] for r in calibrated} == {"test+blur-1"}
    recomputed = recompute(SPEC.run_id, store, options)
    assert {r["metric"]: r["value"] for r in recomputed} == {r["metric"]: r["value"] for r in rows}


def test_corruptions_from_a_folder(store, tmp_path):
    subject = load_run(store, SPEC.run_id)
    test = subject.splits.test
    images = np.zeros((5 * len(test), 8, 8, 1), np.uint8)
    images[-len(test) :, 2:5] = 200
    np.save(tmp_path / "fog.npy", images)
    np.save(tmp_path / "labels.npy", np.tile(test.labels.numpy(), 5))
    options = EvalOptions(corruption=("fog", 1), corruption_dir=tmp_path)
    rows = measure("eval", subject, store, options=options)
    assert {r["split"] for r in rows} == {"test+c-fog-1"}
    with torch.no_grad():
        black = int(subject.model(torch.zeros(1, 1, 8, 8)).argmax())
    expected = float((test.labels == black).double().mean())
    assert rows[0]["value"] == pytest.approx(expected), "all images black: one class for all"


def test_another_way_of_measuring_is_not_there_yet(store):
    subject = load_run(store, SPEC.run_id)
    for kind, first, other in (
        ("eval", EvalOptions(bins=15), EvalOptions(bins=10)),
        ("calibrate", CalibrateOptions(bins=15), CalibrateOptions(bins=10)),
        ("gradvar", GradvarOptions(examples=6), GradvarOptions(examples=6, draws=3)),
        (
            "gradvar",
            GradvarOptions(examples=6, perturbation="batch", batch_size=2),
            GradvarOptions(examples=6, perturbation="batch", batch_size=3),
        ),
    ):
        for options in (first, other):
            assert measure(kind, subject, store, options=options)
            assert measure(kind, subject, store, options=options) == []


def test_lacking(store):
    kinds = ("eval", "calibrate", "attack", "gradvar")
    assert [lacking(kind, [SPEC], store) for kind in kinds] == [[SPEC]] * 4
    for kind in kinds:
        measure(kind, load_run(store, SPEC.run_id), store)
    assert [lacking(kind, [SPEC], store) for kind in kinds[:3]] == [[]] * 3
    assert lacking("gradvar", [SPEC], store) == [SPEC], "the snapshot of epoch 0 is left"
    measure("gradvar", load_run(store, SPEC.run_id, epoch=0), store)
    assert lacking("gradvar", [SPEC], store) == []
    other = spec_of("dropout", seed=1, settings={"p": 0.2})
    assert lacking("eval", [SPEC, other], store) == [other]


def test_threads_are_the_recipes(store):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        subject = load_run(store, SPEC.run_id)
        seen = []
        subject.model.register_forward_pre_hook(lambda *_: seen.append(torch.get_num_threads()))
        measure("eval", subject, store)
        assert set(seen) == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_run_that_diverged_leaves_no_row(store):
    subject = load_run(store, SPEC.run_id)
    with torch.no_grad():
        subject.model.network.head.bias.fill_(float("nan"))
    files = set(store.measurements.iterdir())
    for kind in ("eval", "calibrate", "attack", "gradvar"):
        with pytest.raises(AttndropError, match=r"not finite|not a number"):
            measure(kind, subject, store)
    assert set(store.measurements.iterdir()) == files


def test_unknown_kind(store):
    with pytest.raises(UsageError, match="did you mean 'attack'"):
        measure("attak", load_run(store, SPEC.run_id), store)


def test_defaults_follow_the_recipe():
    options = default_options("attack", SPEC.recipe)
    assert [(s.name, s.eps.label) for s in options.settings] == [
        ("fgsm", "0"), ("fgsm", "0.1"), ("pgd", "0"), ("pgd", "0.1")
    ]  # fmt: skip
    assert options.limit == 40
    assert default_options("gradvar", SPEC.recipe).examples == 12
    without = default_options("attack")
    assert "8/255" in [s.eps.label for s in without.settings]
    assert judged.MODEL.name
