"""Fashion-MNIST: four files in the idx format, packed or not."""

from __future__ import annotations

import gzip
import hashlib
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.data.download import fetch
from attndrop_repro.data.registry import Raw, Request, Source, register

CLASSES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag",
    "Ankle boot",
)  # fmt: skip
DEBIAN = Path("/usr/share/datasets/fashion-mnist")  # the package dataset-fashion-mnist
_INSIDE = ("", "FashionMNIST/raw", "fashion-mnist")


@register(
    "fashion-mnist",
    "60,000 + 10,000 grey images of 28 x 28, 10 classes of clothing",
    layout="--data-dir with train-images-idx3-ubyte.gz and the other three, unpacked or not; else "
    "where Debian's package dataset-fashion-mnist puts them",
    downloads=True,
    shape=(28, 1, 10),
)
def read(request: Request) -> Source:
    """Fashion-MNIST."""
    folder = _folder(request)
    digest = hashlib.sha256()
    parts = []
    for part in ("train", "t10k"):
        images = _idx(folder, f"{part}-images-idx3-ubyte", 3, digest)
        labels = _idx(folder, f"{part}-labels-idx1-ubyte", 1, digest)
        if len(images) != len(labels):
            raise AttndropError(
                f"{folder} is damaged: {len(images)} images but {len(labels)} labels in {part}"
            )
        if len(labels) and labels.max() >= len(CLASSES):
            raise AttndropError(f"{folder} is damaged: a label of {part} is above 9")
        parts.append(
            Raw(torch.from_numpy(images[:, None]), torch.from_numpy(labels.astype(np.int64)))
        )
    train, test = parts
    size = train.images.shape[-1] if isinstance(train.images, torch.Tensor) else 28
    return Source(train, test, CLASSES, digest.hexdigest(), image_size=size, channels=1)


def _folder(request: Request) -> Path:
    given = request.data_dir
    places = [given / inside for inside in _INSIDE] if given is not None else [DEBIAN]
    for place in places:
        if _file(place, "train-images-idx3-ubyte") is not None:
            return place
    if request.download and given is not None:
        from torchvision.datasets import FashionMNIST

        for name, md5 in FashionMNIST.resources:
            fetch(FashionMNIST.mirrors[0] + name, given, name, md5)
        return given
    if given is None:
        raise AttndropError(
            "where are the files? give --data-dir, with --download as well to fetch them into it, "
            "or install Debian's package dataset-fashion-mnist"
        )
    raise AttndropError(
        f"train-images-idx3-ubyte.gz is not in {given}: put the four files there, or let "
        "--download get them"
    )


def _file(folder: Path, name: str) -> Path | None:
    for path in (folder / f"{name}.gz", folder / name):
        if path.is_file():
            return path
    return None


def _idx(folder: Path, name: str, dimensions: int, digest: Any) -> NDArray[np.uint8]:
    path = _file(folder, name)
    if path is None:
        raise AttndropError(f"{name}.gz is not in {folder}")
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError, zlib.error) as error:
        raise AttndropError(f"{path} is damaged: {error}; get it again") from None
    header = 4 + 4 * dimensions
    magic = b"\x00\x00\x08" + bytes([dimensions])  # unsigned bytes, so many dimensions
    if content[:4] != magic or len(content) < header:
        raise AttndropError(f"{path} is damaged: it does not begin as an idx file of images should")
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    if len(content) - header != int(np.prod(shape)):
        raise AttndropError(
            f"{path} is damaged: it should hold {int(np.prod(shape))} bytes, but holds "
            f"{len(content) - header}; get it again"
        )
    digest.update(content)
    return np.frombuffer(bytearray(content[header:]), np.uint8).reshape(shape)
