"""Image folders: ``train/<class>/<image>`` and ``val/<class>/<image>``, as of ImageNet."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.data.decoding import SUFFIXES, centre, open_rgb
from attndrop_repro.data.image_augmentation import to_tensor
from attndrop_repro.data.registry import Raw, Request, Source, register

SIZE = 224
_TEST = ("val", "test")


@dataclass(frozen=True)
class Files:
    """Images that stay on disk.

    Attributes:
        paths: Their files.
        size: Pixels a side in evaluation.
        fraction: Share of the shorter side seen in evaluation.
    """

    paths: tuple[str, ...]
    size: int
    fraction: float

    def __len__(self) -> int:
        return len(self.paths)

    def subset(self, rows: Sequence[int]) -> Files:
        """Some of them, in this order."""
        return Files(tuple(self.paths[row] for row in rows), self.size, self.fraction)

    def open(self, row: int) -> Image.Image:
        """One image in its own size, RGB."""
        return open_rgb(Path(self.paths[row]))

    def decode(self, row: int) -> Tensor:
        """One image as evaluation sees it, uint8 (3, size, size)."""
        return to_tensor(centre(self.open(row), self.size, self.fraction))


@register(
    "imagefolder",
    "any images in class folders",
    layout="--data-dir with train/<class>/ and val/<class>/ (or test/<class>/)",
)
def read_folder(request: Request) -> Source:
    """Training images from `train`; `val` or `test` are the test set."""
    from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD

    root = request.data_dir
    if root is None:
        never = "; --download cannot get them" if request.download else ""
        raise AttndropError(
            f"where are the images? give --data-dir with train/ and val/ in it{never}"
        )
    if not (root / "train").is_dir():
        never = ": put the images there, --download cannot get them" if request.download else ""
        raise AttndropError(f"{root} has no folder train/; it must hold train/ and val/{never}")
    held = next((name for name in _TEST if (root / name).is_dir()), None)
    if held is None:
        raise AttndropError(f"{root} has neither val/ nor test/: one of them must be there")
    train = _images(root / "train")
    classes = _in_order(train)
    empty = [name for name in classes if not train[name]]
    if empty:
        raise AttndropError(f"{root / 'train' / empty[0]} holds no image")
    test = _images(root / held)
    strange = sorted(set(test) - set(classes))
    if strange:
        raise AttndropError(
            f"{root / held} has a class that train/ has not: {strange[0]}"
            + (f" and {len(strange) - 1} more" if len(strange) > 1 else "")
        )
    size = request.data.image_size or SIZE
    digest = hashlib.sha256()
    raws = []
    for found in (train, test):
        paths, labels = [], []
        # one list of classes for both: a class missing in a split moves no other's number
        for label, name in enumerate(classes):
            for path, length in found.get(name, ()):
                paths.append(path)
                labels.append(label)
                digest.update(f"{os.path.relpath(path, root)}\0{length}\0".encode())
        files = Files(tuple(paths), size, request.data.crop_fraction)
        raws.append(Raw(files, torch.tensor(labels, dtype=torch.long)))
    return Source(
        raws[0], raws[1], tuple(classes), digest.hexdigest(), image_size=size, channels=3,
        mean=tuple(IMAGENET_DEFAULT_MEAN), std=tuple(IMAGENET_DEFAULT_STD),
    )  # fmt: skip


@register(
    "imagenet",
    "ImageNet-1k (ILSVRC 2012): 1.28 million + 50,000 images, 1,000 classes",
    layout="--data-dir with train/<synset>/ and val/<synset>/",
    shape=(224, 3, 1000),
)
def read_imagenet(request: Request) -> Source:
    """ImageNet, as image folders by synset."""
    return read_folder(request)


def _images(folder: Path) -> dict[str, list[tuple[str, int]]]:
    """By class folder, its images with their sizes in bytes, in order of their names.

    The checksum is over names and sizes: reading 150 GB before every run would help nobody.
    """
    found: dict[str, list[tuple[str, int]]] = {}
    loose = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                found[entry.name] = _in_class(Path(entry.path))
            elif Path(entry.name).suffix.lower() in SUFFIXES:
                loose += 1
    if loose:
        raise AttndropError(
            f"{folder} has {loose} images outside class folders: sort every image into a folder "
            "named by its class (ILSVRC 2012's validation set is published flat)"
        )
    if not found:
        raise AttndropError(f"{folder} has no class folders")
    return found


def _in_class(folder: Path) -> list[tuple[str, int]]:
    images = []
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            if Path(name).suffix.lower() in SUFFIXES and not name.startswith("."):
                path = Path(parent) / name
                images.append((str(path), path.stat().st_size))
    return images


def _in_order(found: dict[str, list[tuple[str, int]]]) -> list[str]:
    """Names in order: numbers by value (1, 2, 10), all else as text."""
    if all(name.isdecimal() for name in found):
        return sorted(found, key=lambda name: (int(name), name))
    return sorted(found)
