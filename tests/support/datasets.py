"""Data sets in their true formats, made tiny."""

from __future__ import annotations

import gzip
import pickle
import struct
from pathlib import Path

import numpy as np
from PIL import Image


def write_cifar10(root: Path, each: int = 20) -> Path:
    """Five training pickles and a test pickle, written as torchvision's own reader expects them."""
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    names = [f"data_batch_{n}" for n in range(1, 6)] + ["test_batch"]
    for name in names:
        content = {
            b"data": generator.integers(0, 256, (each, 3072), dtype=np.uint8),
            b"labels": [i % 10 for i in range(each)],
            b"filenames": [f"{i}.png".encode() for i in range(each)],
        }
        (folder / name).write_bytes(pickle.dumps(content, 2))
    meta = {b"label_names": [f"class {i}".encode() for i in range(10)], b"num_vis": 3072}
    (folder / "batches.meta").write_bytes(pickle.dumps(meta, 2))
    return folder


def write_cifar100(root: Path) -> Path:
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    for name, count in (("train", 400), ("test", 100)):
        content = {
            b"data": np.full((count, 3072), 7, np.uint8),
            b"fine_labels": [i % 100 for i in range(count)],
            b"coarse_labels": [0] * count,
        }
        (folder / name).write_bytes(pickle.dumps(content, 2))
    meta = {b"fine_label_names": [f"c{i}".encode() for i in range(100)]}
    (folder / "meta").write_bytes(pickle.dumps(meta, 2))
    return folder


def write_fashion(root: Path, *, packed: bool = True, train: int = 80, size: int = 28) -> None:
    root.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(0)
    for part, count in (("train", train), ("t10k", 20)):
        images = generator.integers(0, 256, (count, size, size), dtype=np.uint8)
        labels = np.arange(count, dtype=np.uint8) % 10
        for name, array in (
            (f"{part}-images-idx3-ubyte", images),
            (f"{part}-labels-idx1-ubyte", labels),
        ):
            head = b"\x00\x00\x08" + bytes([array.ndim])
            head += struct.pack(f">{array.ndim}I", *array.shape)
            content = head + array.tobytes()
            path = root / (f"{name}.gz" if packed else name)
            path.write_bytes(gzip.compress(content) if packed else content)


def write_image(path: Path, colour: tuple[int, int, int] = (10, 20, 30), size: int = 10) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (size, size), colour).save(path)


def write_folders(root: Path, classes: tuple[str, ...] = ("1", "2", "10"), train: int = 8) -> None:
    for label, name in enumerate(classes):
        for number in range(train):
            write_image(root / "train" / name / f"{number}.png", (label, number, 0))
        for number in range(2):
            write_image(root / "val" / name / f"v{number}.png", (label, number, 9))
