"""Image files of any kind as three channels of bytes; a broken one is named."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from attndrop_repro.config.errors import AttndropError

SUFFIXES = frozenset(
    (".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".pgm", ".pnm", ".webp", ".tif", ".tiff", ".gif")
)
_BROKEN = (
    OSError, SyntaxError, ValueError, EOFError, struct.error, zlib.error, IndexError, OverflowError,
    Image.DecompressionBombError,
)  # fmt: skip


def open_rgb(path: Path) -> Image.Image:
    """An image as RGB: grey is repeated, palettes looked up, alpha left out, 16 bits made 8.

    Raises:
        AttndropError: It is broken; the message names it.
    """
    try:
        with Image.open(path) as image:
            image.load()
            return _rgb(image)
    except _BROKEN as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise AttndropError(
            f"image {path} is broken: {reason}; replace it or remove it from the data"
        ) from None


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # 16 bits and more: a conversion by PIL would clip, not scale
        values = np.asarray(image).astype(np.int64)
        if values.size and values.max() > 255:
            values = np.rint(np.clip(values, 0, 65535) / 257)
        image = Image.fromarray(np.clip(values, 0, 255).astype(np.uint8))
    elif image.mode == "F":
        raise ValueError("floating point pixels have no agreed range")
    elif image.mode in ("P", "PA"):
        image = image.convert("RGBA")
    return image.convert("RGB")


def centre(image: Image.Image, size: int, fraction: float) -> Image.Image:
    """The middle of an image: shorter side to ``size / fraction``, then a square of `size`.

    Args:
        image: RGB, of any size.
        size: Pixels a side of the result.
        fraction: Share of the shorter side that is seen.
    """
    shorter = max(size, round(size / fraction))
    width, height = image.size
    scale = shorter / min(width, height)
    wide, high = max(shorter, round(width * scale)), max(shorter, round(height * scale))
    if (wide, high) != image.size:
        image = image.resize((wide, high), Image.Resampling.BICUBIC)
    left, top = (wide - size) // 2, (high - size) // 2
    return image.crop((left, top, left + size, top + size))
