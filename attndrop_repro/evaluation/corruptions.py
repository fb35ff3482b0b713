"""Common corruptions at five severities, made on the fly, or read from published folders.

After Hendrycks and Dietterich (ICLR 2019), whose files are read by `cifar_c` and `imagenet_c`. What
is made here is of the same kind but not the same pixels: strengths are in the units of the image,
so that they mean something on 8 pixels as on 224, and are given beside each function.

Shapes: N images, C channels, H and W pixels.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from attndrop_repro.config.errors import AttndropError, UsageError, unknown
from attndrop_repro.data import ImageSplit
from attndrop_repro.data.decoding import SUFFIXES
from attndrop_repro.data.folders import Files
from attndrop_repro.randomness import numpy_stream

SEVERITIES = (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class Corrupted:
    """Images that are corrupted when they are asked for; fulfils `data.base.Lazy`.

    Attributes:
        split: The clean images.
        name: Which corruption.
        severity: 1 to 5.
    """

    split: ImageSplit
    name: str
    severity: int

    def __len__(self) -> int:
        return len(self.split)

    def subset(self, rows: Sequence[int]) -> Corrupted:
        """Some of them, in this order."""
        return replace(self, split=self.split.take(rows))

    def open(self, row: int) -> Image.Image:
        """One image, RGB or grey."""
        return _picture(self.decode(row).numpy())

    def decode(self, row: int) -> Tensor:
        """One image, uint8 (C, H, W), full intensity 255; its noise depends on its id alone."""
        pixels = self.split.pixels([row], dtype=torch.float64)[0].numpy()
        stream = numpy_stream(int(self.split.ids[row]), "corruption", self.name, self.severity)
        return torch.from_numpy(_bytes(CORRUPTIONS[self.name](pixels, self.severity, stream)))


def corrupted(split: ImageSplit, name: str, severity: int) -> ImageSplit:
    """A split with every image corrupted, as the model sees it.

    Args:
        split: Clean images.
        name: One of `CORRUPTIONS`.
        severity: 1 to 5.

    Raises:
        UsageError: There is no such corruption or severity.
    """
    if name not in CORRUPTIONS:
        raise unknown("corruption", name, CORRUPTIONS)
    _check_severity(name, severity)
    lazy = Corrupted(split, name, severity)
    images: Tensor | Corrupted = lazy
    if split.in_memory:
        images = torch.stack([lazy.decode(row) for row in range(len(split))])
    return replace(split, name=f"{split.name}+{name}-{severity}", images=images, levels=255)


def published(split: ImageSplit, folder: Path, name: str, severity: int) -> ImageSplit:
    """A corruption from a folder of CIFAR-10-C, CIFAR-100-C or ImageNet-C, whichever it is."""
    if (folder / "labels.npy").is_file():
        return cifar_c(split, folder, name, severity)
    return imagenet_c(split, folder, name, severity)


def cifar_c(split: ImageSplit, folder: Path, name: str, severity: int) -> ImageSplit:
    """A corruption of CIFAR's test set from its published files (CIFAR-10-C, CIFAR-100-C).

    Args:
        split: The clean test split, for its classes.
        folder: Has ``<name>.npy``, five severities of the test set one after the other, uint8
            (5N, 32, 32, 3), and ``labels.npy``.
        name: As in ``gaussian_noise``.
        severity: 1 to 5.

    Raises:
        AttndropError: Files are absent, damaged, or of other data.
    """
    _check_severity(name, severity)
    images, labels = (_array(folder / f"{part}.npy") for part in (name, "labels"))
    n = len(labels) // 5
    fits = images.ndim == 4 and images.dtype == np.uint8 and len(images) == len(labels) == 5 * n
    if not fits or n == 0 or labels.min() < 0 or labels.max() >= len(split.classes):
        raise AttndropError(
            f"{folder}: {name}.npy {images.shape} and labels.npy {labels.shape} are not five "
            f"severities of images with {len(split.classes)} classes"
        )
    rows = slice((severity - 1) * n, severity * n)
    return replace(
        split,
        name=f"{split.name}+{name}-{severity}",
        images=torch.from_numpy(np.moveaxis(images[rows], -1, 1).copy()),
        labels=torch.from_numpy(labels[rows].astype(np.int64)),
        ids=torch.arange(n),
        levels=255,
    )


def imagenet_c(split: ImageSplit, folder: Path, name: str, severity: int) -> ImageSplit:
    """A corruption of an image folder's test set from published files (ImageNet-C).

    Args:
        split: The clean test split, for its classes and size.
        folder: Has ``<name>/<severity>/<class>/<image>``.
        name: As in ``gaussian_noise``.
        severity: 1 to 5.

    Raises:
        AttndropError: Files are absent, or of classes that the data set has not.
    """
    _check_severity(name, severity)
    root = folder / name / str(severity)
    if not root.is_dir():
        raise AttndropError(f"{root} is not there: {folder} must have <name>/<severity>/<class>/")
    found = sorted(path for path in root.iterdir() if path.is_dir())
    number = {label: index for index, label in enumerate(split.classes)}
    strange = [path.name for path in found if path.name not in number]
    if strange or not found:
        raise AttndropError(
            f"{root} has {'no class folders' if not found else f'a class unknown: {strange[0]}'}"
        )
    paths = [
        (str(path), number[label.name])
        for label in found
        for path in sorted(label.iterdir())
        if path.suffix.lower() in SUFFIXES
    ]
    return replace(
        split,
        name=f"{split.name}+{name}-{severity}",
        images=Files(tuple(path for path, _ in paths), split.image_size, 1.0),
        labels=torch.tensor([label for _, label in paths], dtype=torch.long),
        ids=torch.arange(len(paths)),
        levels=255,
    )


def _check_severity(name: str, severity: int) -> None:
    if severity not in SEVERITIES:
        raise UsageError(f"severity {severity} of {name}: choose 1 to 5")


def _array(path: Path) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise AttndropError(f"{path} is not there") from None
    except (ValueError, OSError, EOFError) as error:
        raise AttndropError(f"{path} is damaged: {' '.join(str(error).split())}") from None
    return array


def _bytes(pixels: NDArray[np.float64]) -> NDArray[np.uint8]:
    return np.round(np.clip(pixels, 0, 1) * 255).astype(np.uint8)


def _picture(image: NDArray[np.uint8]) -> Image.Image:
    return Image.fromarray(image[0] if len(image) == 1 else np.moveaxis(image, 0, -1))


Pixels = NDArray[np.float64]  # (C, H, W) in [0, 1]


def noise(x: Pixels, severity: int, stream: np.random.Generator) -> Pixels:
    """Gaussian noise on every pixel, of standard deviation 0.04 to 0.24."""
    return x + stream.normal(0, (0.04, 0.08, 0.12, 0.18, 0.24)[severity - 1], x.shape)


def blur(x: Pixels, severity: int, stream: np.random.Generator) -> Pixels:
    """Gaussian blur; sigma is 0.8 % to 4 % of a side, and at least 0.3 to 1.1 pixels."""
    from scipy.ndimage import gaussian_filter

    share = (0.008, 0.014, 0.02, 0.03, 0.04)[severity - 1]
    least = (0.3, 0.5, 0.7, 0.9, 1.1)[severity - 1]
    sigma = max(share * max(x.shape[1:]), least)
    return np.asarray(gaussian_filter(x, (0, sigma, sigma), mode="nearest"))


def contrast(x: Pixels, severity: int, stream: np.random.Generator) -> Pixels:
    """Distance from the image's mean times 0.75 to 0.15."""
    mean = x.mean(axis=(1, 2), keepdims=True)
    changed: Pixels = (x - mean) * (0.75, 0.6, 0.45, 0.3, 0.15)[severity - 1] + mean
    return changed


def brightness(x: Pixels, severity: int, stream: np.random.Generator) -> Pixels:
    """Every pixel brighter by 0.1 to 0.5."""
    return x + (0.1, 0.2, 0.3, 0.4, 0.5)[severity - 1]


def jpeg(x: Pixels, severity: int, stream: np.random.Generator) -> Pixels:
    """JPEG of quality 60 to 5."""
    quality = (60, 40, 20, 10, 5)[severity - 1]
    file = io.BytesIO()
    _picture(_bytes(x)).save(file, "JPEG", quality=quality)
    back = np.asarray(Image.open(file), dtype=np.float64) / 255
    return back[None] if back.ndim == 2 else np.moveaxis(back, -1, 0)


CORRUPTIONS: dict[str, Callable[[Pixels, int, np.random.Generator], Pixels]] = {
    "noise": noise,
    "blur": blur,
    "contrast": contrast,
    "brightness": brightness,
    "jpeg": jpeg,
}
