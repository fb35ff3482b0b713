"""Image folders: every kind of image, classes from one place, and what is wrong is named."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support.datasets import write_folders, write_image

from attndrop_repro import data
from attndrop_repro.config.errors import AttndropError, UsageError
from attndrop_repro.config.recipe import Data
from attndrop_repro.data.decoding import centre, open_rgb

FOLDER = Data(name="imagefolder", image_size=8, validation=0.25)


def test_numbers_are_in_order_of_value_and_splits_agree(tmp_path: Path) -> None:
    write_folders(tmp_path)
    splits = data.load(FOLDER, data_dir=tmp_path)
    assert splits.classes == ("1", "2", "10")
    for split in (splits.train, splits.validation, splits.test):
        red = (split.pixels(slice(None))[:, 0, 0, 0] * 255).round().long()
        assert torch.equal(red, split.labels)
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (18, 6, 6)


def test_a_class_missing_in_val_moves_no_other(tmp_path: Path) -> None:
    write_folders(tmp_path, ("a", "b", "c"))
    for path in (tmp_path / "val" / "b").iterdir():
        path.unlink()
    (tmp_path / "val" / "b").rmdir()
    splits = data.load(FOLDER, data_dir=tmp_path)
    assert splits.test.labels.tolist() == [0, 0, 2, 2]


def test_a_class_missing_in_train_is_an_error(tmp_path: Path) -> None:
    write_folders(tmp_path, ("a", "b"))
    write_image(tmp_path / "val" / "z" / "x.png")
    with pytest.raises(AttndropError, match="class that train/ has not: z"):
        data.load(FOLDER, data_dir=tmp_path)


def test_flat_validation_is_refused(tmp_path: Path) -> None:
    write_folders(tmp_path)
    write_image(tmp_path / "val" / "ILSVRC2012_val_00000001.JPEG")
    with pytest.raises(AttndropError, match=r"val has 1 images outside class folders"):
        data.load(Data(name="imagenet", image_size=8), data_dir=tmp_path)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda root: None, "no folder train/"),
        (lambda root: (root / "train").mkdir(), "neither val/ nor test/"),
        (
            lambda root: ((root / "train").mkdir(), (root / "val").mkdir()),
            "train has no class folders",
        ),
        (
            lambda root: (
                (root / "train" / "a").mkdir(parents=True),
                write_image(root / "val" / "a" / "x.png"),
            ),
            "a holds no image",
        ),
    ],
)
def test_incomplete(tmp_path: Path, make, words: str) -> None:
    make(tmp_path)
    with pytest.raises(AttndropError, match=words):
        data.load(FOLDER, data_dir=tmp_path)


MODES = {
    "grey.png": Image.new("L", (5, 7), 200),
    "grey-alpha.png": Image.new("LA", (5, 7), (200, 9)),
    "palette.png": Image.new("RGB", (5, 7), (200, 100, 0)).convert("P"),
    "palette-transparent.gif": Image.new("P", (5, 7), 0),
    "alpha.png": Image.new("RGBA", (5, 7), (200, 100, 0, 9)),
    "cmyk.jpg": Image.new("CMYK", (5, 7), (0, 0, 0, 0)),
    "sixteen.png": Image.fromarray(np.full((7, 5), 200 * 257, np.uint16)),
    "bits.png": Image.new("1", (5, 7), 1),
    "dot.png": Image.new("RGB", (1, 1), (200, 100, 0)),
}
COLOURS = {
    "grey.png": (200, 200, 200),
    "grey-alpha.png": (200, 200, 200),
    "alpha.png": (200, 100, 0),
    "cmyk.jpg": (255, 255, 255),
    "sixteen.png": (200, 200, 200),
    "bits.png": (255, 255, 255),
    "dot.png": (200, 100, 0),
}


@pytest.mark.parametrize("name", MODES)
def test_every_kind_becomes_three_channels(tmp_path: Path, name: str) -> None:
    MODES[name].save(tmp_path / name)
    image = open_rgb(tmp_path / name)
    assert image.mode == "RGB"
    if name in COLOURS:
        assert image.getpixel((0, 0)) == COLOURS[name]
    assert centre(image, 8, 0.875).size == (8, 8)


@pytest.mark.parametrize("keep", [0, 1, 40, 0.5])
@pytest.mark.parametrize("suffix", ["png", "jpg", "webp"])
def test_broken_images_are_named(tmp_path: Path, keep: float, suffix: str) -> None:
    path = tmp_path / f"broken.{suffix}"
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content)) if keep == 0.5 else int(keep)])
    with pytest.raises(AttndropError, match=r"broken\.") as caught:
        open_rgb(path)
    assert "\n" not in str(caught.value)


def test_centre_sees_the_middle() -> None:
    array = np.zeros((32, 64, 3), np.uint8)
    array[:, 24:40] = 255
    seen = np.asarray(centre(Image.fromarray(array), 14, 0.875))
    assert seen.shape == (14, 14, 3)
    assert seen[7, 7].min() == 255  # of 16 x 32, columns 9 to 23: the middle is white
    assert seen[7, 0].max() == 0


def test_checksum_sees_names_and_sizes(tmp_path: Path) -> None:
    write_folders(tmp_path)
    before = data.load(FOLDER, data_dir=tmp_path).checksum
    assert data.load(FOLDER, data_dir=tmp_path).checksum == before
    write_image(tmp_path / "train" / "1" / "more.png")
    assert data.load(FOLDER, data_dir=tmp_path).checksum != before


@pytest.mark.parametrize("name", ["imagefolder", "cifar10", "fashion-mnist", "digits"])
def test_a_mistyped_folder_is_said_to_be_absent(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    for place, what in (("absent", "not there"), ("file", "no folder")):
        with pytest.raises(UsageError, match=f"--data-dir .*{place} is {what}"):
            data.load(Data(name=name), data_dir=tmp_path / place)


def test_what_cannot_be_downloaded_is_said(tmp_path: Path) -> None:
    for folder in (tmp_path, None):
        with pytest.raises(AttndropError, match="--download cannot get them"):
            data.load(FOLDER, data_dir=folder, download=True)
