"""Every shipped recipe: its model can be made, and it trains a few steps on data of its format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support.datasets import write_cifar10, write_cifar100, write_fashion, write_folders

from attndrop_repro import data
from attndrop_repro.config.load import load_recipe
from attndrop_repro.config.paths import recipe_file, recipe_names
from attndrop_repro.config.spec import RunSpec
from attndrop_repro.methods import resolve
from attndrop_repro.models.registry import construct, own
from attndrop_repro.store import Store
from attndrop_repro.training import train

RECIPES = {
    "deit-s-imagenet", "digits-vit", "vit-b16-cifar10", "vit-b16-cifar100", "vit-b16-imagenet",
    "vit-mini-fashion-mnist", "vit-mini-fashion-mnist-2k", "vit-mini-fashion-mnist-2k-noisy",
    "vit7-cifar10", "vit7-cifar100",
}  # fmt: skip
SHAPES = {
    "imagenet": (1000, 224, 3),
    "cifar10": (10, 32, 3),
    "cifar100": (100, 32, 3),
    "fashion-mnist": (10, 28, 1),
    "digits": (10, 8, 1),
}
PARAMETERS = {"vit-b16-imagenet": 86_567_656, "deit-s-imagenet": 22_050_664}


def test_all_are_there() -> None:
    assert set(recipe_names()) >= RECIPES


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_its_model_can_be_made_at_full_size(name: str) -> None:
    recipe = load_recipe(name)
    classes, size, channels = SHAPES[recipe.data.name]
    with torch.device("meta"):
        network = construct(
            recipe.model.name, num_classes=classes, img_size=recipe.data.image_size or size,
            in_chans=channels, **recipe.model.args,
        )  # fmt: skip
    count = sum(p.numel() for p in network.parameters())
    assert count == PARAMETERS.get(name, count)


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_its_header_has_command_cost_and_what_it_reaches(name: str) -> None:
    lines = recipe_file(name).read_text().splitlines()
    head = "\n".join(line for line in lines if line.startswith("#"))
    assert f"--recipe {name}" in head
    assert "Cost:" in head
    assert "Reaches:" in head
    assert len(lines) <= 50  # one screen


def write_data(name: str, root: Path) -> None:
    if name == "imagenet":
        write_folders(root, ("n01440764", "n01443537", "n01484850"), train=12)
    elif name == "cifar10":
        write_cifar10(root)
    elif name == "cifar100":
        write_cifar100(root)
    elif name == "fashion-mnist":
        write_fashion(root, train=2400)


@pytest.mark.parametrize("name", sorted(RECIPES - {"digits-vit"}))
def test_it_trains_a_few_steps(tmp_path: Path, name: str) -> None:
    changes = ["training.epochs=1", "training.snapshots=[]", "training.batch_size=8"]
    changes += ["evaluation.gradient_variance.epochs=[]", "training.warmup_epochs=0"]
    recipe = load_recipe(name, changes)
    changes += ["model.args.depth=1", "model.args.embed_dim=24", "model.args.num_heads=2"]
    validation = {"imagenet": 0.3, "cifar100": 0.25}.get(recipe.data.name, 0.2)
    changes.append(f"data.validation={validation}")
    if recipe.data.train_images:
        changes.append("data.train_images=40")
    if recipe.data.image_size:
        changes.append("data.image_size=32")
    recipe = load_recipe(name, changes)
    write_data(recipe.data.name, tmp_path)
    spec = RunSpec(
        recipe=recipe,
        method="none",
        settings={"none": resolve("none", {})["none"].model_dump()},
        seed=0,
    )
    seen: list[Any] = []

    class Enough(BaseException):
        pass

    def few(batch: Any, loss: Any, rate: float) -> None:
        seen.append(float(loss))
        if len(seen) == 3:
            raise Enough

    with pytest.raises(Enough):
        train(spec, Store(tmp_path / "store"), data_dir=tmp_path, device="cpu", observe=few)
    assert all(0 < loss < 20 for loss in seen)


def test_a_fifth_of_the_labels_is_wrong(tmp_path: Path) -> None:
    write_fashion(tmp_path, train=2400)
    noisy = load_recipe("vit-mini-fashion-mnist-2k-noisy").data
    right = noisy.model_copy(update={"label_noise": 0.0})
    one, two = (data.load(section, data_dir=tmp_path).train for section in (noisy, right))
    assert torch.equal(one.images, two.images)
    assert (one.labels != two.labels).sum() == 400
    assert right == load_recipe("vit-mini-fashion-mnist-2k").data


def test_vit7_is_ours() -> None:
    assert "vit7" in own()
