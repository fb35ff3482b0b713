"""The registry of data sets: any file of this package may register one, nothing else lists them."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from attndrop_repro.config.errors import unknown
from attndrop_repro.config.recipe import Data
from attndrop_repro.data.base import Lazy


@dataclass(frozen=True)
class Raw:
    """Images and labels as a source has them.

    Attributes:
        images: uint8 (N, C, H, W), or images that stay on disk.
        labels: int64 (N,).
    """

    images: Tensor | Lazy
    labels: Tensor


@dataclass(frozen=True)
class Source:
    """A data set as published, before our own splitting.

    Attributes:
        train: Its training set (or all of it).
        test: Its test set; None where none is published and the recipe splits one off.
        classes: Names of the classes.
        checksum: sha256 over what was read.
        image_size: Pixels a side as the model sees them without a recipe's word.
        channels: 1 or 3.
        levels: The value that means 1.0.
        mean: Per channel; None: computed from the training split.
        std: Likewise.
    """

    train: Raw
    test: Raw | None
    classes: tuple[str, ...]
    checksum: str
    image_size: int
    channels: int
    levels: int = 255
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Request:
    """What a reader needs to know.

    Attributes:
        data: The recipe's section.
        data_dir: Where the user says the data are, if anywhere.
        download: Whether the user asked to download what is missing.
    """

    data: Data
    data_dir: Path | None = None
    download: bool = False


Reader = Callable[[Request], Source]


@dataclass(frozen=True)
class Entry:
    """A registered data set.

    Attributes:
        name: As recipes write it.
        summary: One line for `attndrop datasets`.
        layout: Where its files are looked for, in words; empty: it comes with a dependency.
        read: Its reader.
        downloads: Whether `--download` can get it.
        shape: (pixels a side, channels, classes) where they are always the same: what a benchmark
            needs to know without the files.
    """

    name: str
    summary: str
    layout: str
    read: Reader
    downloads: bool = False
    shape: tuple[int, int, int] | None = None


_ENTRIES: dict[str, Entry] = {}


def register(
    name: str,
    summary: str,
    *,
    layout: str = "",
    downloads: bool = False,
    shape: tuple[int, int, int] | None = None,
) -> Callable[[Reader], Reader]:
    """Decorator: makes a reader known by a name; a name given twice is an error."""

    def add(read: Reader) -> Reader:
        known = _ENTRIES.get(name)
        if known is not None and known.read.__qualname__ != read.__qualname__:
            raise ValueError(f"two data sets are called {name!r}")
        _ENTRIES[name] = Entry(name, summary, layout, read, downloads, shape)
        return read

    return add


def _load() -> None:
    import attndrop_repro.data as package

    for info in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        importlib.import_module(info.name)


def names() -> list[str]:
    """All registered names, alphabetical."""
    _load()
    return sorted(_ENTRIES)


def get(name: str) -> Entry:
    """The data set of a name.

    Raises:
        UsageError: There is none; the message has the nearest names.
    """
    if name not in _ENTRIES:
        _load()
    if name not in _ENTRIES:
        raise unknown("data set", name, names())
    return _ENTRIES[name]
