"""A tiny classifier of digits that is right most of the time, for tests of measurements."""

from __future__ import annotations

import copy
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attndrop_repro import data, models
from attndrop_repro.config.recipe import Data, Model
from attndrop_repro.data import ImageSplit, Splits
from attndrop_repro.models import PixelModel

MODEL = Model(
    name="vit_tiny_patch16_224",
    args={"patch_size": 4, "embed_dim": 16, "depth": 2, "num_heads": 2, "mlp_ratio": 2},
)


@cache
def splits() -> Splits:
    return data.load(Data(name="digits", test=0.25))


def some(n: int, name: str = "test") -> ImageSplit:
    """The first examples of a split."""
    return splits().named(name).take(range(n))


def untrained(**args: object) -> PixelModel:
    s = splits()
    return models.build(
        Model(name=MODEL.name, args={**MODEL.args, **args}), classes=s.classes, image_size=8,
        channels=1, mean=s.mean, std=s.std, seed=0,
    )  # fmt: skip


@cache
def _trained() -> PixelModel:
    model = untrained()
    x, y = splits().train.pixels(slice(None)), splits().train.labels
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(150):
        rows = torch.arange(step * 64, step * 64 + 64) % len(x)
        optimizer.zero_grad()
        F.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return model.eval()


def trained() -> PixelModel:
    """A model of one's own, about 85 % right, in eval mode."""
    return copy.deepcopy(_trained())


class Shifted(nn.Module):
    """Class by the sign of the mean pixel minus 0.5, logits ±scale times that; two classes."""

    def __init__(self, scale: float = 1.0, classes: int = 2) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(scale))
        self.classes = classes

    def forward(self, x: Tensor) -> Tensor:
        z = (x.flatten(1).mean(1) - 0.5) * self.scale
        rest = [torch.full_like(z, -1e3)] * (self.classes - 2)
        return torch.stack([-z, z, *rest], 1)


def flat_split(levels: list[int], labels: list[int], size: int = 4) -> ImageSplit:
    """Images of one colour each, of 255."""
    images = torch.tensor(levels, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, size, size)
    n = len(levels)
    classes = tuple("ab"[: max(labels) + 1]) if max(labels) < 2 else tuple(map(str, range(4)))
    return ImageSplit(
        "test", images.clone(), torch.tensor(labels), torch.arange(n), classes, 255, size
    )
