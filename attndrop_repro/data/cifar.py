"""CIFAR-10 and CIFAR-100 in torchvision's layout: the published folder, or its archive as it is."""

from __future__ import annotations

import hashlib
import tarfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.data.download import fetch
from attndrop_repro.data.pickles import read_pickle
from attndrop_repro.data.registry import Raw, Request, Source, register

Files = Callable[[str], bytes]


@dataclass(frozen=True)
class Layout:
    """How one of the two is laid out.

    Attributes:
        folder: Inside the archive, and of an unpacked one.
        archive: Its name.
        train: Pickles of the training set, in order.
        test: Of the test set.
        meta: Pickle with the names of the classes.
        label: Key of the labels.
        names: Key of the names.
        classes: How many.
    """

    folder: str
    archive: str
    train: tuple[str, ...]
    test: str
    meta: str
    label: str
    names: str
    classes: int


CIFAR10 = Layout(
    "cifar-10-batches-py", "cifar-10-python.tar.gz",
    tuple(f"data_batch_{n}" for n in range(1, 6)), "test_batch", "batches.meta",
    "labels", "label_names", 10,
)  # fmt: skip
CIFAR100 = Layout(
    "cifar-100-python", "cifar-100-python.tar.gz", ("train",), "test", "meta",
    "fine_labels", "fine_label_names", 100,
)  # fmt: skip


@register(
    "cifar10",
    "50,000 + 10,000 colour images of 32 x 32, 10 classes",
    layout="--data-dir with cifar-10-batches-py/ or cifar-10-python.tar.gz",
    downloads=True,
    shape=(32, 3, 10),
)
def read_cifar10(request: Request) -> Source:
    """CIFAR-10."""
    return _read(request, CIFAR10)


@register(
    "cifar100",
    "50,000 + 10,000 colour images of 32 x 32, 100 classes",
    layout="--data-dir with cifar-100-python/ or cifar-100-python.tar.gz",
    downloads=True,
    shape=(32, 3, 100),
)
def read_cifar100(request: Request) -> Source:
    """CIFAR-100, with its 100 fine labels."""
    return _read(request, CIFAR100)


def _read(request: Request, layout: Layout) -> Source:
    files = _files(request, layout)
    digest = hashlib.sha256()
    meta = _mapping(read_pickle(files(layout.meta), layout.meta), layout.meta)
    names = tuple(_text(name) for name in _get(meta, layout.names, layout.meta))
    if len(names) != layout.classes:
        raise AttndropError(f"{layout.meta} names {len(names)} classes, not {layout.classes}")
    train = _images(files, layout, layout.train, digest)
    test = _images(files, layout, (layout.test,), digest)
    return Source(train, test, names, digest.hexdigest(), image_size=32, channels=3)


def _images(files: Files, layout: Layout, names: Sequence[str], digest: Any) -> Raw:
    pixels, labels = [], []
    for name in names:
        content = files(name)
        digest.update(content)
        batch = _mapping(read_pickle(content, name), name)
        data = np.asarray(_get(batch, "data", name))
        found = np.asarray(_get(batch, layout.label, name))
        if data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != 3 * 32 * 32:
            raise AttndropError(f"{name} is damaged: its images are not rows of 3072 bytes")
        if found.shape != (len(data),) or found.dtype.kind not in "iu":
            raise AttndropError(f"{name} is damaged: {found.size} labels for {len(data)} images")
        if len(found) and not 0 <= found.min() <= found.max() < layout.classes:
            raise AttndropError(f"{name} is damaged: a label is outside 0 to {layout.classes - 1}")
        pixels.append(data.reshape(-1, 3, 32, 32))
        labels.append(found.astype(np.int64))
    return Raw(torch.from_numpy(np.concatenate(pixels)), torch.from_numpy(np.concatenate(labels)))


def _files(request: Request, layout: Layout) -> Files:
    if request.data_dir is None:
        raise AttndropError(
            f"where are the files? give --data-dir with {layout.folder}/ in it; with --download as "
            "well they are fetched into it"
        )
    for folder in (request.data_dir / layout.folder, request.data_dir):
        if (folder / layout.meta).is_file() and (folder / layout.test).is_file():
            return _from_folder(folder)
    archive = request.data_dir / layout.archive
    if request.download:
        published = _published(layout)
        archive = fetch(published.url, request.data_dir, layout.archive, published.tgz_md5)
    if archive.is_file():
        return _from_archive(archive, layout.folder)
    raise AttndropError(
        f"neither {layout.folder}/ nor {layout.archive} is in {request.data_dir}: put it there, or "
        "let --download get it"
    )


def _published(layout: Layout) -> Any:
    from torchvision import datasets

    return datasets.CIFAR10 if layout is CIFAR10 else datasets.CIFAR100


def _from_folder(folder: Path) -> Files:
    def read(name: str) -> bytes:
        try:
            return (folder / name).read_bytes()
        except OSError as error:
            raise AttndropError(f"cannot read {folder / name}: {error.strerror}") from None

    return read


def _from_archive(archive: Path, folder: str) -> Files:
    # read in memory: nothing is unpacked, so no path in it can point elsewhere
    contents: dict[str, bytes] = {}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                file = tar.extractfile(member) if member.isfile() else None
                if file is not None and member.name.startswith(folder + "/"):
                    contents[member.name.removeprefix(folder + "/")] = file.read()
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise AttndropError(
            f"{archive} is damaged or was not downloaded whole ({error}): remove it and get it "
            "again, as with --download"
        ) from None

    def read(name: str) -> bytes:
        if name not in contents:
            raise AttndropError(f"{archive} is damaged: {folder}/{name} is not in it")
        return contents[name]

    return read


def _mapping(content: Any, name: str) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise AttndropError(f"{name} is damaged: it holds no dictionary")
    return {_text(key): value for key, value in content.items()}


def _get(content: dict[str, Any], key: str, name: str) -> Any:
    if key not in content:
        raise AttndropError(f"{name} is damaged: {key!r} is not in it")
    return content[key]


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
