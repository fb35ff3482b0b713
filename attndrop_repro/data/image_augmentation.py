"""Augmentation one image at a time: policies, random resized crops, erasing.

Used where a batch at a time will not do: for images on disk, and for timm's and torchvision's
policies. Every draw comes from a stream of (seed, epoch, i), so workers, their number and a resumed
run change nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from attndrop_repro.config.errors import UsageError
from attndrop_repro.config.recipe import Augmentation
from attndrop_repro.data.tensor_augmentation import translated
from attndrop_repro.randomness import light_stream, numpy_stream

TORCHVISION_POLICIES = ("cifar10", "svhn", "imagenet")


class ImageAugmentation:
    """From a stored image to a training image, uint8 (C, H, W).

    Args:
        augmentation: The recipe's section.
        seed: The run's seed.
        size: Pixels a side that a random resized crop gives.
        mean: Of the pixels; what policies fill with and erasing draws around.
        std: Likewise.
        levels: The stored value that means 1.0.
    """

    def __init__(
        self,
        augmentation: Augmentation,
        *,
        seed: int,
        size: int,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        levels: int = 255,
    ) -> None:
        self.augmentation, self.seed = augmentation, seed
        self.mean, self.std, self.levels = np.array(mean), np.array(std), levels
        if (augmentation.auto or augmentation.random_resized_crop) and levels != 255:
            raise UsageError("policies and random resized crops need images of 256 levels")
        if augmentation.auto and len(mean) != 3:
            raise UsageError(f"augmentation.auto = {augmentation.auto!r} needs colour images")
        self.policy = policy(augmentation.auto, size, mean) if augmentation.auto else None
        self.crop: Any = None
        if augmentation.random_resized_crop is not None:
            from timm.data.transforms import RandomResizedCropAndInterpolation

            self.crop = RandomResizedCropAndInterpolation(
                size, scale=augmentation.random_resized_crop, interpolation="bicubic"
            )

    def __call__(self, image: Tensor | Image.Image, row: int, epoch: int) -> Tensor:
        """The image of a row as it is in an epoch.

        Args:
            image: uint8 (C, H, W), or an RGB image still in its own size.
            row: Its position in the training split.
            epoch: From 0.
        """
        generator = numpy_stream(self.seed, "augmentation", epoch, row)
        with light_stream(self.seed, "augmentation-library", epoch, row):
            if self.crop is not None:
                image = to_tensor(self.crop(to_pil(image)))
            elif isinstance(image, Image.Image):
                image = to_tensor(image)
            for reach in (self.augmentation.shift, self.augmentation.crop_padding):
                if reach:
                    offset = torch.from_numpy(generator.integers(-reach, reach + 1, (1, 2)))
                    image = translated(image[None], offset, reach)[0]
            if self.augmentation.flip and generator.random() < 0.5:
                image = image.flip(-1)
            if self.policy is not None:
                image = to_tensor(self.policy(to_pil(image)))
        if self.augmentation.erasing and generator.random() < self.augmentation.erasing:
            image = self.erased(image, generator)
        return image.contiguous()

    def erased(self, image: Tensor, generator: np.random.Generator) -> Tensor:
        """Random erasing (Zhong et al. 2020): a box of 2 to 33 % of the area becomes noise.

        The noise is normal with the data's mean and standard deviation, as in DeiT, and cut to
        valid pixels.
        """
        channels, height, width = image.shape
        for _ in range(10):  # a box that does not fit is drawn again, as in the paper
            area = generator.uniform(0.02, 1 / 3) * height * width
            aspect = np.exp(generator.uniform(np.log(0.3), np.log(1 / 0.3)))
            h, w = round(float(np.sqrt(area * aspect))), round(float(np.sqrt(area / aspect)))
            if 0 < h < height and 0 < w < width:
                top, left = generator.integers(height - h + 1), generator.integers(width - w + 1)
                noise = self.mean[:, None, None] + self.std[:, None, None] * (
                    generator.standard_normal((channels, h, w))
                )
                values = np.rint(np.clip(noise, 0, 1) * self.levels).astype(np.uint8)
                image = image.clone()
                image[:, top : top + h, left : left + w] = torch.from_numpy(values)
                break
        return image


def policy(name: str, size: int, mean: tuple[float, ...]) -> Any:
    """A policy by name: torchvision's AutoAugment for its data sets, else timm's grammar.

    Args:
        name: "cifar10", "svhn", "imagenet", or as in "rand-m9-mstd0.5-inc1".
        size: Pixels a side; translations reach 45 % of it.
        mean: What is moved out of view is replaced by this, per channel in [0, 1].

    Raises:
        UsageError: timm cannot read it.
    """
    fill = tuple(min(255, round(255 * m)) for m in mean)
    if name in TORCHVISION_POLICIES:
        from torchvision.transforms import v2

        return v2.AutoAugment(v2.AutoAugmentPolicy(name), fill=list(fill))
    from timm.data import auto_augment

    kind, *sections = name.split("-")
    makers = {
        "rand": auto_augment.rand_augment_transform,
        "augmix": auto_augment.augment_and_mix_transform,
    }
    make = makers.get(kind, auto_augment.auto_augment_transform)
    try:
        unread = [text for text in sections if not re.fullmatch(r"[a-z]+[0-9.]+|w[a-z0-9]+", text)]
        if unread:  # timm passes over what it cannot read
            raise ValueError(f"unknown section {unread[0]}")
        transform = make(name, {"translate_const": int(size * 0.45), "img_mean": fill})
    except (AssertionError, KeyError, ValueError) as error:
        raise UsageError(
            f"augmentation.auto = {name!r} is neither one of {', '.join(TORCHVISION_POLICIES)} "
            f"nor a policy of timm, as in 'rand-m9-mstd0.5-inc1' ({error})"
        ) from None
    for operation in _operations(transform):
        if operation.name.startswith("Posterize"):
            operation.aug_fn = _posterized
    return transform


def _operations(transform: Any) -> Iterator[Any]:
    found: Any = getattr(transform, "ops", None) or getattr(transform, "policy", ())
    for item in found:
        yield from item if isinstance(item, list | tuple) else (item,)


def _posterized(image: Image.Image, bits: int, **_: Any) -> Image.Image:
    # at full strength timm asks for 0 bits, which Pillow refuses
    return image if bits >= 8 else ImageOps.posterize(image, max(1, bits))


def to_pil(image: Tensor | Image.Image) -> Image.Image:
    """uint8 (C, H, W) as an image; images are given back."""
    if isinstance(image, Image.Image):
        return image
    array = image.permute(1, 2, 0).numpy()
    return Image.fromarray(array[..., 0] if array.shape[-1] == 1 else array)


def to_tensor(image: Image.Image) -> Tensor:
    """An image as uint8 (C, H, W)."""
    array = np.array(image)
    return torch.from_numpy(array[None] if array.ndim == 2 else array.transpose(2, 0, 1).copy())
