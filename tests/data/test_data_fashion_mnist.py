"""Fashion-MNIST: tiny idx files, packed or not; the true ones where Debian's package is there."""

import gzip
from pathlib import Path

import pytest
import torch
from support.datasets import write_fashion

from attndrop_repro import data
from attndrop_repro.config.errors import AttndropError
from attndrop_repro.config.recipe import Data
from attndrop_repro.data import fashion_mnist

FASHION = Data(name="fashion-mnist", validation=0.25)


def test_packed_unpacked_and_torchvisions_folder_agree(tmp_path: Path) -> None:
    write_fashion(tmp_path / "a")
    write_fashion(tmp_path / "b", packed=False)
    write_fashion(tmp_path / "c" / "FashionMNIST" / "raw")
    found = [data.load(FASHION, data_dir=tmp_path / name) for name in "abc"]
    assert len({splits.checksum for splits in found}) == 1
    assert all(torch.equal(splits.test.images, found[0].test.images) for splits in found)
    assert found[0].test.labels.tolist() == [i % 10 for i in range(20)]
    assert (len(found[0].train), len(found[0].validation)) == (60, 20)
    assert (found[0].channels, found[0].image_size) == (1, 28)


def test_resized_in_evaluation(tmp_path: Path) -> None:
    write_fashion(tmp_path)
    splits = data.load(FASHION.model_copy(update={"image_size": 32}), data_dir=tmp_path)
    pixels = splits.test.pixels([0, 1], dtype=torch.float64)
    assert pixels.shape == (2, 1, 32, 32)
    assert pixels.dtype == torch.float64
    assert 0 <= pixels.min() <= pixels.max() <= 1


@pytest.mark.parametrize("name", ["train-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"])
@pytest.mark.parametrize("damage", ["cut", "empty", "other", "gone", "short"])
def test_damaged_files_are_named(tmp_path: Path, name: str, damage: str) -> None:
    write_fashion(tmp_path)
    path = tmp_path / name
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    elif damage == "short":
        path.write_bytes(gzip.compress(gzip.decompress(content)[:-1]))
    else:
        path.write_bytes(
            {"cut": content[:-20], "empty": b"", "other": gzip.compress(b"x" * 99)}[damage]
        )
    with pytest.raises(AttndropError, match=name.split(".")[0]) as caught:
        data.load(FASHION, data_dir=tmp_path)
    assert "\n" not in str(caught.value)


def test_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fashion_mnist, "DEBIAN", tmp_path / "nowhere")
    with pytest.raises(AttndropError, match="dataset-fashion-mnist"):
        data.load(FASHION)
    with pytest.raises(AttndropError, match="--download"):
        data.load(FASHION, data_dir=tmp_path)


def test_where_debian_puts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_fashion(tmp_path / "debian")
    monkeypatch.setattr(fashion_mnist, "DEBIAN", tmp_path / "debian")
    assert len(data.load(FASHION).test) == 20
