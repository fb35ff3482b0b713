"""CIFAR in torchvision's layout, made tiny: read from a folder and from the archive as it is."""

import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from support.datasets import write_cifar10, write_cifar100

from attndrop_repro import data
from attndrop_repro.config.errors import AttndropError
from attndrop_repro.config.recipe import Data

CIFAR = Data(name="cifar10", validation=0.2)


def test_same_as_torchvision(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path)
    splits = data.load(CIFAR, data_dir=tmp_path)
    test = pickle.loads((folder / "test_batch").read_bytes())
    images = torch.from_numpy(test[b"data"].reshape(-1, 3, 32, 32))
    assert torch.equal(splits.test.images, images)
    assert splits.test.labels.tolist() == test[b"labels"]
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (80, 20, 20)
    assert splits.classes[3] == "class 3"
    assert (splits.channels, splits.image_size) == (3, 32)
    # rows are red, green, blue planes
    assert splits.test.pixels([0])[0, 1, 0, 0] == test[b"data"][0, 1024] / np.float32(255)


def test_folder_itself_and_archive_give_the_same(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path / "a")
    with tarfile.open(tmp_path / "cifar-10-python.tar.gz", "w:gz") as tar:
        tar.add(folder, "cifar-10-batches-py")
    whole = data.load(CIFAR, data_dir=tmp_path / "a")
    for place in (folder, tmp_path):
        other = data.load(CIFAR, data_dir=place)
        assert other.checksum == whole.checksum
        assert torch.equal(other.train.images, whole.train.images)


def test_cifar100_has_fine_labels(tmp_path: Path) -> None:
    write_cifar100(tmp_path)
    splits = data.load(Data(name="cifar100", validation=0.25), data_dir=tmp_path)
    assert len(splits.classes) == 100
    assert splits.train.labels.bincount(minlength=100).tolist() == [3] * 100
    assert splits.std == (1.0, 1.0, 1.0)  # constant images: centred, never divided by nothing


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: (f / "data_batch_3").unlink(), "data_batch_3"),
        (lambda f: (f / "data_batch_3").write_bytes(b"\x80\x02}"), "data_batch_3 is damaged"),
        (lambda f: (f / "test_batch").write_bytes(pickle.dumps({b"data": [1]})), "test_batch"),
        (
            lambda f: (f / "test_batch").write_bytes(
                pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": [10]})
            ),
            "outside 0 to 9",
        ),
        (
            lambda f: (f / "test_batch").write_bytes(
                pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1]})
            ),
            "1 labels for 2 images",
        ),
    ],
)
def test_damaged(tmp_path: Path, change, words: str) -> None:
    folder = write_cifar10(tmp_path)
    change(folder)
    with pytest.raises(AttndropError, match=words) as caught:
        data.load(CIFAR, data_dir=tmp_path)
    assert "\n" not in str(caught.value)


def test_truncated_archive_is_named(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path / "a")
    archive = tmp_path / "cifar-10-python.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, "cifar-10-batches-py")
    archive.write_bytes(archive.read_bytes()[:5000])
    with pytest.raises(AttndropError, match=r"cifar-10-python.tar.gz is damaged.*--download"):
        data.load(CIFAR, data_dir=tmp_path)


def test_absent(tmp_path: Path) -> None:
    with pytest.raises(AttndropError, match="--data-dir"):
        data.load(CIFAR)
    with pytest.raises(AttndropError, match="--download"):
        data.load(CIFAR, data_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []  # nothing is downloaded unasked
