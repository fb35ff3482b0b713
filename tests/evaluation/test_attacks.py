"""Attacks in pixel space: bounds, batches, worst case, nothing left behind (P02)."""

from __future__ import annotations

import random
from contextlib import nullcontext

import numpy as np
import pytest
import torch
import torchattacks
from support import judged
from torch import nn

from attndrop_repro.adapters import apply
from attndrop_repro.config.errors import AttndropError, UsageError
from attndrop_repro.config.fractions import Eps
from attndrop_repro.evaluation import attack_state
from attndrop_repro.evaluation.attack_setting import AttackSetting, grid
from attndrop_repro.evaluation.attack_trail import Trail
from attndrop_repro.evaluation.attacks import attack
from attndrop_repro.evaluation.plain_attention import ShortByParts
from attndrop_repro.models import PixelModel


def one(model, split, name="pgd", eps="24/255", **options):
    kept = {k: options.pop(k) for k in ("seed", "batch_size", "limit", "keep") if k in options}
    (result,) = attack(model, split, grid([name], [eps], **options), **kept)
    return result


def test_fgsm_equals_the_formula():
    model, split = judged.trained(), judged.some(40)
    x, y = split.pixels(slice(None)).requires_grad_(), split.labels
    (gradient,) = torch.autograd.grad(nn.functional.cross_entropy(model(x), y), x)
    expected = (x + 24 / 255 * gradient.sign()).clamp(0, 1).detach()
    result = one(model, split, "fgsm", keep=True)
    right = model(x).argmax(1) == y
    assert torch.equal(result.correct, right)
    assert (result.adversarial[right] - expected[right]).abs().max() < 1e-6
    assert torch.equal(result.adversarial[~right], x.detach()[~right])
    assert torch.equal(result.robust, right & (model(expected).argmax(1) == y))
    assert result.robust_accuracy < result.clean_accuracy


@pytest.mark.parametrize("eps", ["4/255", "16/255", "48/255"])
def test_pgd_is_as_strong_as_torchattacks_own(eps):
    """The same iteration from other starts: accuracies within the spread of its own seeds."""
    model, split = judged.trained(), judged.some(120)
    x, y, value = split.pixels(slice(None)), split.labels, float(Eps(eps, 0).label.split("/")[0])
    whole = torchattacks.PGD(model, eps=value / 255, alpha=4 / 255, steps=20)
    theirs = []
    for seed in range(4):
        torch.manual_seed(seed)
        theirs.append(float((model(whole(x, y)).argmax(1) == y).double().mean()))
    ours = one(model, split, eps=eps, step_size="4/255").robust_accuracy
    assert min(theirs) - 2 / 120 <= ours <= max(theirs) + 1 / 120


def test_iterates_that_were_judged_are_not_computed_again(monkeypatch):
    """With the memory of them and without: the same results, by far fewer forward passes."""
    model, split = judged.trained(), judged.some(60)
    seen = []
    model.register_forward_pre_hook(lambda _, args: seen.append(len(args[0])))
    options = {"eps": "8/255", "step_size": "4/255", "restarts": 3, "keep": True}
    short = one(model, split, **options)
    few = sum(seen)
    seen.clear()
    monkeypatch.setattr(Trail, "known", lambda _, rows, *__: torch.zeros_like(rows).bool())
    long = one(model, split, **options)
    assert torch.equal(long.robust, short.robust)
    assert long.largest == short.largest
    assert few < 0.6 * sum(seen)


@pytest.mark.parametrize("statistics", [(0.3, 0.37), (0.0, 1.0)])
@pytest.mark.parametrize(("name", "norm"), [("fgsm", "linf"), ("pgd", "linf"), ("pgd", "l2")])
def test_bounds_are_in_pixels(name, norm, statistics):
    model = judged.trained()
    model.mean.fill_(statistics[0])
    model.std.fill_(statistics[1])
    split = judged.some(50)
    eps = Eps("8/255", 8 / 255) if norm == "linf" else Eps("0.5", 0.5)
    setting = AttackSetting(name, eps, norm=norm, steps=5, step_size=Eps("0.1", eps.value / 3))
    (result,) = attack(model, split, [setting], keep=True)
    change = result.adversarial - split.pixels(slice(None))
    size = change.abs().max() if norm == "linf" else change.flatten(1).norm(dim=1).max()
    assert 0 < size <= eps.value + 1e-6
    assert result.largest == pytest.approx(float(size), abs=1e-6)
    assert result.adversarial.min() >= 0
    assert result.adversarial.max() <= 1
    assert result.lowest >= 0
    assert result.highest <= 1


@pytest.mark.parametrize("name", ["fgsm", "pgd", "autoattack"])
def test_eps_zero_is_the_clean_model(name):
    model, split = judged.trained(), judged.some(50)
    result = one(model, split, name, "0", keep=True)
    assert torch.equal(result.adversarial, split.pixels(slice(None)))
    assert result.robust_accuracy == result.clean_accuracy
    assert result.largest == 0


def test_normalisation_inside_or_in_the_weights_is_the_same():
    """(x - m) / s before a linear layer, or folded into it: the same adversarial images."""
    torch.manual_seed(0)
    split = judged.some(64)
    first = nn.Linear(64, 10)
    outer = PixelModel(
        nn.Sequential(nn.Flatten(), first), mean=(0.3,), std=(0.4,), classes=split.classes,
        image_size=8,
    )  # fmt: skip
    folded = nn.Linear(64, 10)
    with torch.no_grad():
        folded.weight.copy_(first.weight / 0.4)
        folded.bias.copy_(first.bias - first.weight.sum(1) * 0.3 / 0.4)
    inner = PixelModel(
        nn.Sequential(nn.Flatten(), folded), mean=(0.0,), std=(1.0,), classes=split.classes,
        image_size=8,
    )  # fmt: skip
    results = [one(m.double(), split, steps=5, keep=True) for m in (outer, inner)]
    assert torch.equal(results[0].robust, results[1].robust)
    assert (results[0].adversarial - results[1].adversarial).abs().max() < 1e-6


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_batch_size_and_limit_change_nothing(norm):
    model, split = judged.trained(), judged.some(150)
    settings = grid(["pgd"], ["0.2"], step_size="0.05", steps=4, restarts=2, norm=norm)
    (whole,) = attack(model, split, settings, batch_size=500, keep=True)
    for batch_size in (13, 64):
        (cut,) = attack(model, split, settings, batch_size=batch_size, keep=True)
        assert torch.equal(cut.robust, whole.robust)
        if norm == "linf":
            assert torch.equal(cut.adversarial, whole.adversarial)
        else:
            assert (cut.adversarial - whole.adversarial).abs().max() < 1e-5
    (short,) = attack(model, split, settings, limit=37, keep=True)
    assert short.n == 37
    assert torch.equal(short.robust, whole.robust[:37])


def test_windows_change_nothing(monkeypatch):
    model, split = judged.trained(), judged.some(300)
    whole = one(model, split, steps=3, keep=True)
    monkeypatch.setattr("attndrop_repro.evaluation.attacks._WINDOW", 1)
    cut = one(model, split, steps=3, keep=True)
    assert torch.equal(cut.robust, whole.robust)
    assert torch.equal(cut.adversarial, whole.adversarial)


def test_seeds_and_restarts():
    model, split = judged.trained(), judged.some(100)
    options = {"eps": "0.1", "steps": 1, "step_size": "0.02"}
    results = [one(model, split, seed=seed, **options).robust for seed in (0, 0, 1)]
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])
    worst = one(model, split, restarts=4, **options)
    assert not (worst.robust & ~results[0]).any(), "the first restart is the single attack"
    assert worst.robust_accuracy < float(results[0].double().mean())


def test_examples_wrong_when_clean_count_as_broken():
    split = judged.flat_split([0, 255, 0, 255], [0, 1, 1, 0])
    result = one(judged.Shifted(), split, eps="1/255")
    assert result.correct.tolist() == [True, True, False, False]
    assert result.robust_accuracy == 0.5
    assert result.n == 4


@pytest.mark.parametrize("name", ["fgsm", "pgd"])
def test_a_threshold_that_is_known(name):
    """Class by mean pixel above or below 0.5: broken exactly where eps crosses it."""
    split = judged.flat_split([100, 120, 126, 129, 135, 200], [0, 0, 0, 1, 1, 1])
    for eps, expected in (("1/255", 6), ("2/255", 4), ("9/255", 2), ("40/255", 1), ("90/255", 0)):
        result = one(judged.Shifted(), split, name, eps, steps=60, step_size="2/255")
        assert result.robust.sum() == expected, eps


@pytest.mark.parametrize("target", ["least-likely", "most-likely", "random"])
def test_targets(target):
    model, split = judged.trained(), judged.some(40)
    x, y = split.pixels(slice(None)), split.labels
    result = one(model, split, eps="0.6", step_size="0.1", target=target, keep=True)
    scores = model(x).detach()
    aim = attack_state.aims(scores, y, target, 0, 0)
    assert (aim != y).all()
    others = scores.scatter(1, y[:, None], -torch.inf)
    if target == "most-likely":
        assert torch.equal(aim, others.argmax(1))
    if target == "least-likely":
        assert torch.equal(aim, scores.scatter(1, y[:, None], torch.inf).argmin(1))
    assert result.reached.double().mean() > 0.5
    assert (model(result.adversarial).argmax(1) == aim)[result.reached].all()
    assert not (result.reached & result.robust).any()


def test_flat_gradients_are_seen():
    """A model whose soft-max is saturated in float32 gives no gradient: PGD looks harmless."""
    split = judged.flat_split([100, 180], [0, 1])
    assert one(judged.Shifted(1e6), split, "fgsm", "90/255").flat == 1
    assert one(judged.Shifted(1.0), split, "fgsm", "90/255").flat == 0


def test_autoattack_with_a_seed():
    model, split = judged.trained(), judged.some(12)
    first, second = (one(model, split, "autoattack", "0.1", keep=True) for _ in range(2))
    assert torch.equal(first.adversarial, second.adversarial)
    assert first.largest <= 0.1 + 1e-6
    pgd = one(model, split, eps="0.1", step_size="0.03")
    assert first.robust_accuracy <= pgd.robust_accuracy
    with pytest.raises(UsageError, match="at least 4 classes"):
        one(judged.Shifted(), judged.flat_split([100], [0]), "autoattack", "0.1")


class Modes(nn.Module):
    """Says how it is called, and may fail."""

    def __init__(self, fail_at=None):
        super().__init__()
        self.linear = nn.Linear(64, 10)
        self.norm = nn.BatchNorm1d(64)
        self.drop = nn.Dropout(0.5)
        self.calls, self.fail_at = [], fail_at

    def forward(self, x):
        self.calls.append((self.training, self.norm.training, self.drop.training))
        if len(self.calls) == self.fail_at:
            raise RuntimeError("planted")
        return self.linear(self.drop(self.norm(x.flatten(1))))


@pytest.mark.parametrize("fail_at", [None, 3])
@pytest.mark.parametrize("settings", [{}, {"draws": 2}])
def test_nothing_is_left_behind(fail_at, settings):
    """Mixed modes, buffers, gradients, requires_grad and every random stream."""
    torch.manual_seed(0)
    model = Modes(fail_at).train()
    model.drop.eval()
    model.linear.bias.requires_grad_(False)
    model.linear.weight.grad = torch.full((10, 64), 7.0)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    streams = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    raising = pytest.raises(RuntimeError, match="planted") if fail_at else nullcontext()
    with raising:
        one(model, judged.some(20), steps=3, **settings)
    assert len(model.calls) >= 3
    draws = bool(settings)
    assert set(model.calls) == {(draws, False, draws)}
    assert (model.training, model.norm.training, model.drop.training) == (True, True, False)
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert model.linear.weight.requires_grad
    assert not model.linear.bias.requires_grad
    assert torch.equal(model.linear.weight.grad, torch.full((10, 64), 7.0))
    assert torch.equal(streams[0], torch.get_rng_state())
    assert streams[1:] == (np.random.get_state()[1].tolist(), random.getstate())


@pytest.mark.parametrize("name", ["fgsm", "pgd"])
def test_the_regularised_model(name):
    """Its draws are its own, whatever the batch size; without draws it is the plain one."""
    model, split = judged.trained(), judged.some(140)
    plain = one(model, split, name, "0.1", steps=3)
    handle = apply(model, "dropout", p=0.3)
    options = {"steps": 3, "draws": 3}
    results = [one(model, split, name, "0.1", batch_size=b, **options) for b in (7, 500)]
    assert torch.equal(results[0].robust, results[1].robust)
    assert torch.equal(results[0].correct, results[1].correct)
    assert results[0].setting.label == f"{name}+stochastic3"
    assert torch.equal(one(model, split, name, "0.1", steps=3).robust, plain.robust)
    handle.remove()
    idle = one(model, split, name, "0.1", **options)
    assert torch.equal(idle.robust, plain.robust), "nothing random in it: the same attack"


def test_attention_by_its_parts_is_the_fused_one():
    """What attacks run on a CPU for short sequences: the same logits and gradients."""
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 2, 9, 5, dtype=torch.float64).requires_grad_()
    mask = torch.rand(9, 9) > 0.3
    mask[:, 0] = True
    for options in ({}, {"is_causal": True}, {"attn_mask": mask}, {"scale": 0.3}):
        fused = nn.functional.scaled_dot_product_attention(q, k, v, **options)
        with ShortByParts():
            parts = nn.functional.scaled_dot_product_attention(q, key=k, value=v, **options)
        assert (parts - fused).abs().max() < 1e-12
        one, other = (torch.autograd.grad(z.square().sum(), (q, k, v)) for z in (fused, parts))
        assert all((a - b).abs().max() < 1e-12 for a, b in zip(one, other, strict=True))


def test_logits_that_are_not_finite_give_no_number():
    split = judged.flat_split([100], [0])
    with pytest.raises(AttndropError, match="not finite"):
        one(judged.Shifted(float("nan")), split)


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "pdg"}, {"norm": "l1"}, {"steps": 0}, {"restarts": 0}, {"target": "second"},
        {"name": "fgsm", "norm": "l2"}, {"name": "autoattack", "draws": 2},
        {"name": "autoattack", "target": "random"}, {"norm": "l2", "draws": 2}, {"draws": -1},
        {"eps": Eps("-1", -1.0)}, {"eps": Eps("nan", float("nan"))},
    ],
)  # fmt: skip
def test_settings_that_make_no_sense(wrong):
    with pytest.raises(UsageError):
        AttackSetting(**{"name": "pgd", "eps": Eps("0.1", 0.1), **wrong})


@pytest.mark.parametrize("eps", ["-1/255", "nan", "inf", "1/0", "8/", "8", '__import__("os")'])
def test_sizes_that_make_no_sense(eps):
    with pytest.raises(UsageError, match="eps"):
        grid(["pgd"], [eps])


def test_grid():
    settings = grid(["fgsm", "pgd", "fgsm"], ["8/255", "0.031", "1/255", "8/255"])
    assert [(s.name, s.eps.label) for s in settings] == [
        (name, eps) for name in ("fgsm", "pgd") for eps in ("1/255", "0.031", "8/255")
    ]
    assert settings[2].eps.value == 0.03137254901960784
    assert settings[0].columns() == {
        "attack": "fgsm", "norm": "linf", "eps": 1 / 255, "eps_label": "1/255", "steps": 1,
        "restarts": 1,
    }  # fmt: skip


def test_steps_of_l2_can_cross_the_ball():
    """A step of 2/255 is of one pixel; twenty of them would not leave a ball of half a unit."""
    small, large = grid(["pgd"], ["0.5", "3"], norm="l2", steps=10)
    assert (small.step_size.value, large.step_size.value) == (0.125, 0.75)
    (given,) = grid(["pgd"], ["3"], norm="l2", step_size="1.5")
    assert given.step_size == Eps("1.5", 1.5)
    assert grid(["pgd"], ["8/255"])[0].step_size.value == 2 / 255


def test_no_examples_is_an_error():
    for options in ({"limit": 0}, {"batch_size": 0}):
        with pytest.raises(UsageError):
            one(judged.Shifted(), judged.flat_split([100], [0]), **options)
