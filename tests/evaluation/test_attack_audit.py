"""The audit notices what masks gradients or breaks an attack; examples and pictures are kept."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from matplotlib.image import imread
from safetensors.torch import load_file
from support import judged

from attndrop_repro.config.errors import UsageError
from attndrop_repro.evaluation.adversarial import save_adversarial
from attndrop_repro.evaluation.attack_audit import at_large_eps, audit
from attndrop_repro.evaluation.attack_setting import grid
from attndrop_repro.evaluation.attacks import attack


@pytest.fixture(scope="module")
def results():
    settings = grid(["fgsm", "pgd"], ["0", "0.05", "0.1"], steps=5, step_size="0.03")
    return attack(judged.trained(), judged.some(60), settings, keep=True)


def of(results, name, eps):
    return next(r for r in results if (r.setting.name, r.setting.eps.label) == (name, eps))


def changed(result, **values):
    return replace(result, **values)


def test_a_sound_attack_passes(results):
    for result in results:
        found = audit(result, results, large=0.0)
        assert found["failed"] == [], found
        assert found["largest_perturbation"] <= result.setting.eps.value + 1e-6
    checks = audit(of(results, "pgd", "0.1"), results, large=0.0)["checks"]
    assert set(checks.values()) == {True}
    checks = audit(of(results, "fgsm", "0"), results, large=None)["checks"]
    assert [name for name, passed in checks.items() if passed is None] == [
        "gradients-not-flat", "pgd-at-most-fgsm", "falls-with-eps", "near-zero-at-large-eps"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "failed"),
    [
        ({"largest": 0.11}, "perturbation-within-eps"),
        ({"lowest": -0.01}, "pixels-in-range"),
        ({"highest": 1.01}, "pixels-in-range"),
        ({"flat": 0.2}, "gradients-not-flat"),
    ],
)
def test_what_is_wrong_is_named(results, values, failed):
    result = changed(of(results, "pgd", "0.1"), **values)
    assert audit(result, results, large=0.0)["failed"] == [failed]


def test_weak_attacks_are_named(results):
    strong = of(results, "pgd", "0.1")
    weak = changed(strong, robust=strong.correct)
    assert audit(weak, results, large=0.4)["failed"] == [
        "falls-with-eps", "near-zero-at-large-eps", "pgd-at-most-fgsm",
    ]  # fmt: skip


def test_large_eps():
    options = {"seed": 0, "batch_size": 64}
    model, split = judged.trained(), judged.some(80)
    (linf,) = grid(["pgd"], ["8/255"])
    (l2,) = grid(["pgd"], ["0.5"], norm="l2")
    assert at_large_eps(model, split, linf, **options) == 0
    assert at_large_eps(model, split, l2, **options) == 0
    masked = judged.flat_split([100, 180] * 4, [0, 1] * 4)
    assert at_large_eps(judged.Shifted(1e6), masked, linf, **options) > 0.05


def test_examples_and_picture(tmp_path, results):
    split = judged.some(60)
    result = of(results, "pgd", "0.1")
    file, picture = save_adversarial(tmp_path / "kept", result, split)
    assert file.name == "test-pgd-linf-0.1.safetensors"
    kept = load_file(file)
    assert torch.equal(kept["clean"], split.pixels(slice(None)))
    assert torch.equal(kept["adversarial"], result.adversarial)
    assert kept["ids"].tolist() == split.ids.tolist()
    again = judged.trained()(kept["adversarial"]).argmax(1) == kept["labels"]
    assert torch.equal(again & result.correct, kept["robust"].bool())
    pixels = imread(picture)
    assert min(pixels.shape[:2]) > 200
    assert sorted(p.name for p in (tmp_path / "kept").iterdir()) == [file.name, picture.name][::-1]
    assert save_adversarial(tmp_path / "kept", of(results, "fgsm", "0"), split)[1].exists()
    with pytest.raises(UsageError, match="kept no images"):
        save_adversarial(tmp_path, changed(result, adversarial=None), split)
