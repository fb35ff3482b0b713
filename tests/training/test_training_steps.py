"""The step: accumulation, clipping, averaging, precision, against plain loops."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from support.tiny_run import Ended, spec_of, trained

from attndrop_repro import data, models
from attndrop_repro.config.errors import UsageError
from attndrop_repro.config.recipe import Runtime
from attndrop_repro.data.batches import TrainingBatches
from attndrop_repro.training.machine import Machine, chosen_device
from attndrop_repro.training.optimisation import gradient_norm


def difference(one: Ended, two: Ended) -> float:
    return max((one.weights[n] - two.weights[n]).abs().max().item() for n in one.weights)


def test_by_a_plain_loop(tmp_path: Path) -> None:
    """AdamW, clipping and smoothing, written out: the same losses and weights to the last bits."""
    options = {
        "epochs": 1, "weight_decay": 0.1, "clip_grad": 0.5, "label_smoothing": 0.1,
        "schedule": "constant", "warmup_epochs": 0,
    }  # fmt: skip
    spec = spec_of(training=options, runtime={"precision": "fp64"})
    found = trained(tmp_path, spec)
    recipe = spec.recipe
    splits = data.load(recipe.data)
    model = models.build(
        recipe.model, classes=splits.classes, image_size=8, channels=1,
        mean=splits.mean, std=splits.std, seed=0,
    ).double()  # fmt: skip
    batches = TrainingBatches(
        splits, recipe.training.augmentation, batch_size=16, seed=0, dtype=torch.float64
    )
    named = dict(model.network.named_parameters())
    spared = {n for n, p in named.items() if p.ndim < 2 or n in ("cls_token", "pos_embed")}
    assert "cls_token" in spared
    moments = {n: (torch.zeros_like(p), torch.zeros_like(p)) for n, p in named.items()}
    losses = []
    for batch in batches.iterate(0, 6):
        step = batch.step + 1
        loss = F.cross_entropy(model(batch.x), batch.y, label_smoothing=0.1)
        losses.append(loss.item())
        gradients = dict(zip(named, torch.autograd.grad(loss, list(named.values())), strict=True))
        norm = sum((g**2).sum() for g in gradients.values()) ** 0.5
        with torch.no_grad():
            for name, p in named.items():
                g = gradients[name] * min(1.0, 0.5 / (norm.item() + 1e-6))
                m, v = moments[name]
                m.mul_(0.9).add_(0.1 * g)
                v.mul_(0.999).add_(0.001 * g**2)
                if name not in spared:
                    p.mul_(1 - 0.01 * 0.1)
                corrected = (v / (1 - 0.999**step)) ** 0.5 + 1e-8
                p.sub_(0.01 * (m / (1 - 0.9**step)) / corrected)
    assert found.steps.losses == pytest.approx(losses, rel=1e-12)
    assert found.history[0]["train_loss"] == pytest.approx(sum(losses) / 6, rel=1e-12)
    for name, p in named.items():
        assert torch.allclose(found.weights[name], p, rtol=0, atol=1e-9), name


def test_validation_is_counted_by_hand(tmp_path: Path) -> None:
    spec = spec_of(training={"epochs": 1}, evaluation={"batch_size": 7})
    found = trained(tmp_path, spec)
    splits = data.load(spec.recipe.data)
    model = models.build(
        spec.recipe.model, classes=splits.classes, image_size=8, channels=1,
        mean=splits.mean, std=splits.std, seed=0,
    ).eval()  # fmt: skip
    model.network.load_state_dict(found.weights)
    with torch.no_grad():
        logits = model(splits.validation.pixels(slice(None)))
    row = found.history[0]
    right = (logits.argmax(1) == splits.validation.labels).double().mean().item()
    assert row["validation_accuracy"] == pytest.approx(right, abs=1e-12)
    loss = F.cross_entropy(logits, splits.validation.labels).item()
    assert row["validation_loss"] == pytest.approx(loss, rel=1e-5)
    assert found.status["best"] == row["validation_accuracy"]


@pytest.mark.parametrize("augmentation", [{}, {"mixup": 0.4}])
def test_accumulation_equals_the_large_batch(tmp_path: Path, augmentation: dict) -> None:
    ends = [
        trained(
            tmp_path,
            spec_of(
                training={"accumulate": parts, "augmentation": augmentation},
                runtime={"precision": "fp64"},
            ),
        )
        for parts in (1, 4)
    ]
    assert ends[0].steps.losses == pytest.approx(ends[1].steps.losses, rel=1e-9)
    assert difference(*ends) < 1e-8


def test_the_average_follows_the_weights(tmp_path: Path) -> None:
    training = {"ema": 0.9, "epochs": 1, "snapshots": [0, 1]}
    found = trained(tmp_path, spec_of(training=training))
    plain = trained(tmp_path, spec_of(training={"epochs": 1}))
    assert found.steps.losses == plain.steps.losses  # averaging changes no training
    from attndrop_repro.store import Store
    from attndrop_repro.training.restore import load_run

    store, run_id = Store(tmp_path), spec_of(training=training).run_id
    first = load_run(store, run_id, epoch=0).model.network.state_dict()
    last = load_run(store, run_id, epoch=1).model.network.state_dict()
    assert all(torch.equal(last[n], plain.weights[n]) for n in last)
    judged = load_run(store, run_id).model.network.state_dict()
    # between where it began and where it ended, and with 0.9^6 of the beginning
    name = "head.bias"
    assert not torch.equal(judged[name], last[name])
    assert (judged[name] - first[name]).norm() < (last[name] - first[name]).norm()


def test_bf16_trains(tmp_path: Path) -> None:
    plain = trained(tmp_path, spec_of("dropout"))
    half = trained(tmp_path, spec_of("dropout", runtime={"precision": "bf16"}))
    assert half.steps.losses != plain.steps.losses
    assert half.steps.losses == pytest.approx(plain.steps.losses, rel=0.15)
    assert all(value.dtype == torch.float32 for value in half.weights.values())


def test_without_decay_adam_and_adamw_are_the_same(tmp_path: Path) -> None:
    shared = {"weight_decay": 0.0, "epochs": 1}
    one, two = (
        trained(tmp_path, spec_of(training={**shared, "optimizer": name}))
        for name in ("adam", "adamw")
    )
    assert one.steps.losses == two.steps.losses


def test_sgd_learns(tmp_path: Path) -> None:
    found = trained(tmp_path, spec_of(training={"optimizer": "sgd", "lr": 0.1, "epochs": 8}))
    losses = [row["train_loss"] for row in found.history]
    assert losses[-1] < losses[0]


def test_compiled_is_the_same_run(tmp_path: Path) -> None:
    model = {"args": {"patch_size": 4, "embed_dim": 8, "depth": 1, "num_heads": 1}}
    model["name"] = "vit_tiny_patch16_224"
    ends = [
        trained(
            tmp_path,
            spec_of("dropout", model=model, training={"epochs": 1}, runtime={"compile": compiled}),
        )
        for compiled in (False, True)
    ]
    assert ends[0].steps.losses == pytest.approx(ends[1].steps.losses, abs=1e-5)


@pytest.mark.parametrize(
    ("runtime", "device", "words"),
    [
        ({"precision": "fp16"}, "cpu", "fp16 needs a GPU"),
        ({}, "gpu", "unknown device"),
        ({}, "cpu:0", "unknown device"),
    ],
)
def test_devices_that_will_not_do(runtime: dict, device: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Machine(Runtime(**runtime), device)


def test_absent_devices_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match="no cuda device here"):
        chosen_device("cuda:1")


def test_the_gradient_norm_is_torchs_own_bit_by_bit() -> None:
    generator = torch.Generator().manual_seed(0)
    weights = [torch.nn.Parameter(torch.randn(n, 3, generator=generator)) for n in (1, 40, 7)]
    assert gradient_norm(weights) == 0
    for weight in weights[:2]:
        weight.grad = torch.randn(weight.shape, generator=generator)
    own = torch.nn.utils.get_total_norm([weight.grad for weight in weights[:2]])
    assert torch.equal(gradient_norm(weights), own)
    weights[2].data = weights[2].data.double()
    weights[2].grad = torch.ones(7, 3, dtype=torch.float64)
    expected = (own.double() ** 2 + 21) ** 0.5
    assert gradient_norm(weights).item() == pytest.approx(expected.item())
