"""Models: built from recipes; pixels in, normalisation inside; first weights by the seed alone."""

import copy
import pickle

import pytest
import timm
import torch

from attndrop_repro.config.errors import UsageError
from attndrop_repro.config.recipe import Model
from attndrop_repro.models import PixelModel, build

TINY = Model(
    name="vit_tiny_patch16_224", args={"patch_size": 4, "embed_dim": 16, "depth": 1, "num_heads": 2}
)


def made(model: Model = TINY, seed: int = 0, size: int = 8, channels: int = 1) -> PixelModel:
    statistics = (0.3, 0.4, 0.5)[:channels]
    return build(
        model, classes=("a", "b", "c"), image_size=size, channels=channels,
        mean=statistics, std=statistics, seed=seed,
    )  # fmt: skip


def test_initial_weights_depend_on_the_seed_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, two, other = made(), made(), made(seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    first, second = one.state_dict(), two.state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    weight = "network.blocks.0.attn.qkv.weight"
    assert not torch.equal(first[weight], other.state_dict()[weight])


def test_normalises_inside_and_keeps_timms_names() -> None:
    model = made(channels=3).eval()
    plain = timm.create_model(
        TINY.name, num_classes=3, img_size=8, in_chans=3, **TINY.args
    ).eval()  # fmt: skip
    plain.load_state_dict(model.network.state_dict())
    pixels = torch.rand(2, 3, 8, 8)
    mean = torch.tensor([0.3, 0.4, 0.5]).view(3, 1, 1)
    assert torch.equal(model(pixels), plain((pixels - mean) / mean))
    assert all(name.startswith("network.") for name in model.state_dict())
    assert model.num_prefix_tokens == 1


def test_copies_and_pickles_are_whole() -> None:
    model = made().eval()
    pixels = torch.rand(2, 1, 8, 8)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(pixels), model(pixels))


@pytest.mark.parametrize("change", [lambda m: m.double(), lambda m: m.to("cpu", torch.float64)])
def test_float64_has_full_statistics(change) -> None:
    model = change(made())
    assert model.dtype == torch.float64
    assert model.mean.item() == 0.3
    assert model(torch.rand(1, 1, 8, 8, dtype=torch.float64)).dtype == torch.float64


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Model(name="vit_tinny_patch16_224"), "vit_tiny_patch16_224"),
        (Model(name="vit8"), "vit7"),
        (TINY.model_copy(update={"args": {**TINY.args, "dept": 1}}), "dept"),
        (TINY.model_copy(update={"args": {**TINY.args, "num_heads": 3}}), "cannot be made"),
        (TINY.model_copy(update={"args": {**TINY.args, "in_chans": 3}}), "in_chans"),
        (TINY.model_copy(update={"args": {**TINY.args, "num_classes": 10}}), "num_classes"),
        (Model(name="vit7", args={"patches": 3}), "patches"),
    ],
)
def test_what_cannot_be_made(model: Model, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        made(model)
    assert "\n" not in str(caught.value)


def test_models_without_an_image_size_are_made_too() -> None:
    model = made(Model(name="resnet10t"), size=32, channels=3).eval()
    assert model(torch.rand(1, 3, 32, 32)).shape == (1, 3)
