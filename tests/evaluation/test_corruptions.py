"""Common corruptions made on the fly, and the published folders' formats made tiny."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from support import judged

from attndrop_repro.config.errors import AttndropError, UsageError
from attndrop_repro.data import ImageSplit
from attndrop_repro.evaluation.corruptions import (
    CORRUPTIONS,
    Corrupted,
    cifar_c,
    corrupted,
    imagenet_c,
)


def colours(n=6, size=16, classes=("a", "b")):
    images = torch.randint(0, 256, (n, 3, size, size), generator=torch.Generator().manual_seed(0))
    smooth = images.float().mean((2, 3), keepdim=True).expand(-1, -1, size, size) / 2
    images = (images / 2 + smooth).to(torch.uint8)
    labels = torch.arange(n) % 2
    return ImageSplit("test", images, labels, torch.arange(n) + 40, classes, 255, size)


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("split", [judged.some(6), colours()], ids=["digits", "colour"])
def test_severity_grows(name, split):
    clean = split.pixels(slice(None))
    distances = []
    for severity in range(1, 6):
        made = corrupted(split, name, severity)
        pixels = made.pixels(slice(None))
        assert pixels.shape == clean.shape
        assert pixels.min() >= 0
        assert pixels.max() <= 1
        assert made.labels.tolist() == split.labels.tolist()
        assert made.ids.tolist() == split.ids.tolist()
        distances.append(float((pixels - clean).square().mean()))
    assert distances[0] > 0
    assert distances == sorted(distances)
    assert made.name == f"test+{name}-5"


def test_noise_belongs_to_the_image():
    split = colours()
    whole = corrupted(split, "noise", 3).pixels(slice(None))
    turned = corrupted(split.take([3, 1]), "noise", 3).pixels(slice(None))
    assert torch.equal(turned, whole[[3, 1]])
    assert not torch.equal(whole - split.pixels(slice(None)), (whole - whole))
    residual = whole - split.pixels(slice(None))
    assert not torch.equal(residual[0], residual[1])


def test_formulas():
    split = colours(1)
    x = split.pixels([0], dtype=torch.float64)[0]
    mean = x.mean((1, 2), keepdim=True)
    found = corrupted(split, "contrast", 3).pixels([0], dtype=torch.float64)[0]
    assert (found - ((x - mean) * 0.45 + mean)).abs().max() <= 0.5 / 255 + 1e-12
    found = corrupted(split, "brightness", 2).pixels([0], dtype=torch.float64)[0]
    assert (found - (x + 0.2).clamp(0, 1)).abs().max() <= 0.5 / 255 + 1e-12


def test_images_on_disk_stay_there(tmp_path):
    split = colours()

    class OnDisk:
        def __len__(self):
            return len(split)

        def subset(self, rows):
            return split.take(rows).images

        def decode(self, row):
            return split.images[row]

    lazy = ImageSplit(
        "test", OnDisk(), split.labels, split.ids, split.classes, 255, split.image_size
    )
    made = corrupted(lazy, "jpeg", 2)
    assert isinstance(made.images, Corrupted)
    assert torch.equal(made.pixels(slice(None)), corrupted(split, "jpeg", 2).pixels(slice(None)))
    assert made.images.open(0).size == (16, 16)
    assert len(made.images.subset([1, 2])) == 2


def test_wrong_names():
    with pytest.raises(UsageError, match="did you mean 'noise'"):
        corrupted(colours(), "nois", 1)
    for severity in (0, 6):
        with pytest.raises(UsageError, match="choose 1 to 5"):
            corrupted(colours(), "noise", severity)


def test_cifar_c(tmp_path):
    split = colours(size=32)
    images = np.random.default_rng(0).integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)
    labels = np.tile([0, 1, 1, 0], 5)
    np.save(tmp_path / "fog.npy", images)
    np.save(tmp_path / "labels.npy", labels)
    made = cifar_c(split, tmp_path, "fog", 3)
    assert len(made) == 4
    assert np.array_equal(np.moveaxis(made.images.numpy(), 1, -1), images[8:12])
    assert made.labels.tolist() == [0, 1, 1, 0]
    assert made.pixels([0]).max() <= 1
    with pytest.raises(AttndropError, match=r"snow\.npy is not there"):
        cifar_c(split, tmp_path, "snow", 1)
    np.save(tmp_path / "labels.npy", labels + 5)
    with pytest.raises(AttndropError, match="2 classes"):
        cifar_c(split, tmp_path, "fog", 1)
    (tmp_path / "fog.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(AttndropError, match="damaged"):
        cifar_c(split, tmp_path, "fog", 1)


def test_cifar_c_runs_no_code(tmp_path):
    np.save(tmp_path / "fog.npy", np.array([{"a": 1}] * 5, dtype=object), allow_pickle=True)
    np.save(tmp_path / "labels.npy", np.zeros(5, int))
    with pytest.raises(AttndropError, match="damaged"):
        cifar_c(colours(), tmp_path, "fog", 1)


def test_imagenet_c(tmp_path):
    split = colours(size=16)
    for label, value in (("a", 10), ("b", 200)):
        folder = tmp_path / "fog" / "2" / label
        folder.mkdir(parents=True)
        for number in range(2):
            Image.new("RGB", (16, 16), (value,) * 3).save(folder / f"{number}.png")
    made = imagenet_c(split, tmp_path, "fog", 2)
    assert made.labels.tolist() == [0, 0, 1, 1]
    assert made.pixels([3]).mean() == pytest.approx(200 / 255)
    with pytest.raises(AttndropError, match="is not there"):
        imagenet_c(split, tmp_path, "fog", 3)
    (tmp_path / "fog" / "2" / "c").mkdir()
    with pytest.raises(AttndropError, match="a class unknown: c"):
        imagenet_c(split, tmp_path, "fog", 2)
    (tmp_path / "fog" / "4").mkdir()
    with pytest.raises(AttndropError, match="no class folders"):
        imagenet_c(split, tmp_path, "fog", 4)
