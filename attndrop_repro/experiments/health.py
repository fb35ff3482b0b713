"""Is this machine fit to run experiments? Every finding has a remedy."""

from __future__ import annotations

import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Literal

from attndrop_repro import __version__
from attndrop_repro.config.errors import AttndropError
from attndrop_repro.experiments.engine_local import cores

GIB = 2**30
LITTLE_MEMORY, LITTLE_DISK = 2 * GIB, 1 * GIB


@dataclass(frozen=True)
class Check:
    """One finding.

    Attributes:
        name: What was looked at.
        state: "problem" means that something will fail; "note" that something is worth knowing.
        found: What there is.
        remedy: What to do about it; empty when nothing is to be done.
    """

    name: str
    state: Literal["ok", "note", "problem"]
    found: str
    remedy: str = ""

    def to_json(self) -> dict[str, str]:
        """As a plain dictionary."""
        return asdict(self)


def check(results: Path) -> Iterator[Check]:
    """Looks at everything, one finding after the other.

    Args:
        results: Folder of the results store; it need not exist.
    """
    yield Check("python", "ok", platform.python_version())
    yield Check("attndrop", "ok", __version__)
    yield _dependencies()
    yield _torch()
    yield Check("cores", "ok", str(cores()))
    yield _memory()
    yield from _store(results)
    yield from _data_sets()
    yield _accelerator()


def _dependencies() -> Check:
    """What pyproject.toml asks for, as the installation recorded it."""
    from packaging.requirements import Requirement

    try:
        wanted = metadata.requires("attndrop_repro") or []
    except metadata.PackageNotFoundError:
        return Check("packages", "note", "attndrop itself is not installed (run from a folder)")
    faults, number = [], 0
    for requirement in map(Requirement, wanted):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        number += 1
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            faults.append(f"{requirement.name} is missing")
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            faults.append(f"{requirement.name} is {version}, not {requirement.specifier}")
    if faults:
        return Check("packages", "problem", "; ".join(faults), "run pip install again")
    return Check("packages", "ok", f"all {number} fit")


def _torch() -> Check:
    """Torch and torchvision are built for each other: 2.N goes with 0.(N + 15)."""
    found = []
    for name in ("torch", "torchvision"):
        try:
            found.append(f"{name} {import_module(name).__version__}")
        except Exception as error:  # a mismatched pair raises RuntimeError, a broken one OSError
            text = " ".join(str(error).split())
            return Check("torch", "problem", f"{name} does not import: {text}", "reinstall both")
    return pairing(*found)


def pairing(torch: str, torchvision: str) -> Check:
    """Whether two versions belong together.

    Args:
        torch: As in "torch 2.14.1+cpu".
        torchvision: As in "torchvision 0.29.1".
    """
    numbers = [re.search(r" (\d+)\.(\d+)", text) for text in (torch, torchvision)]
    found = f"{torch}, {torchvision}"
    if all(numbers):
        (major, minor), (_, vision) = (map(int, match.groups()) for match in numbers if match)
        if major == 2 and vision != minor + 15:
            remedy = f"install torchvision 0.{minor + 15}, which belongs to torch 2.{minor}"
            return Check("torch", "problem", found, remedy)
    return Check("torch", "ok", found)


def _memory() -> Check:
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return Check("memory", "note", "unknown on this system")
    found = f"{total / GIB:.1f} GiB"
    if total < LITTLE_MEMORY:
        return Check("memory", "note", found, "use --jobs 1: a worker needs about 1 GiB")
    return Check("memory", "ok", found)


def _store(results: Path) -> Iterator[Check]:
    place = results.absolute()
    there = next(folder for folder in (place, *place.parents) if folder.exists())
    remedy = "choose another folder with --results DIR"
    if not there.is_dir():
        yield Check("results", "problem", f"{there} is not a folder", remedy)
        return
    try:
        with tempfile.NamedTemporaryFile(dir=there, prefix=".attndrop-doctor-"):
            yield Check("results", "ok", f"{place} is writable")
    except OSError as error:
        yield Check("results", "problem", f"{there}: {error.strerror}", remedy)
        return
    free = shutil.disk_usage(there).free
    enough = free >= LITTLE_DISK
    yield Check(
        "disk",
        "ok" if enough else "problem",
        f"{free / GIB:.1f} GiB free under {there}",
        "" if enough else "make room, or " + remedy,
    )


def _data_sets() -> Iterator[Check]:
    from attndrop_repro import data

    for name in data.names():
        yield Check(f"data: {name}", *_found(name))


def _found(name: str) -> tuple[Literal["ok", "note", "problem"], str, str]:
    from attndrop_repro import data
    from attndrop_repro.config.recipe import Data
    from attndrop_repro.data.registry import Request

    entry = data.describe(name)
    try:
        source = entry.read(Request(Data(name=name)))
    except AttndropError as error:
        if entry.layout:  # its files may be anywhere: --data-dir says where
            return "note", "not found without --data-dir", f"see attndrop datasets show {name}"
        return "problem", str(error), "reinstall the package that brings it"
    images = sum(len(part.labels) for part in (source.train, source.test) if part is not None)
    return "ok", f"{images:,} images", ""


def _accelerator() -> Check:
    try:
        import torch
    except Exception:
        return Check("accelerator", "note", "unknown: torch does not import")
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        return Check("accelerator", "ok", ", ".join(names))
    if torch.backends.mps.is_available():
        return Check("accelerator", "ok", "Apple GPU (mps)")
    if Path("/proc/driver/nvidia/version").exists():
        remedy = "torch cannot use the driver: update it, or install a torch that matches it"
        return Check("accelerator", "problem", "an NVIDIA driver without CUDA in torch", remedy)
    return Check("accelerator", "note", "none: everything runs on the CPU")
