"""Where a number comes from: code, dependencies, data, device, and what the papers left open."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import attndrop_repro
from attndrop_repro.config.spec import RunSpec
from attndrop_repro.data import Splits
from attndrop_repro.methods import registry

_DEPENDENCIES = (
    "accelerate", "numpy", "pillow", "safetensors", "scikit-learn", "scipy", "timm", "torch",
    "torchvision", "transformers",
)  # fmt: skip


def provenance(
    spec: RunSpec, splits: Splits, device: torch.device, processes: int, passes: int
) -> dict[str, Any]:
    """What is recorded with a run, as JSON values.

    Args:
        spec: The run.
        splits: Its data.
        device: Where it is trained.
        processes: How many train it together.
        passes: Forward passes a training step.
    """
    return {
        "code_version": code_version(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "dependencies": dependencies(),
        "data": {
            "name": spec.recipe.data.name,
            "checksum": splits.checksum,
            "classes": list(splits.classes),
            "train": len(splits.train),
            "validation": len(splits.validation),
            "test": len(splits.test),
            "mean": list(splits.mean),
            "std": list(splits.std),
        },
        "device": device_name(device),
        "threads": spec.recipe.runtime.threads,
        "processes": processes,
        "passes": passes,
        "precision": spec.recipe.runtime.precision,
        "deterministic": spec.recipe.runtime.deterministic,
        "open_points": open_points(spec),
        "init_from": spec.init_from,
    }


def code_version() -> str:
    """The package's version, and in a checkout the commit, with + when it has changes."""
    version = attndrop_repro.__version__
    root = Path(attndrop_repro.__file__).parent.parent
    if not (root / ".git").exists():
        return version
    commit = _git(root, "rev-parse", "--short=12", "HEAD")
    if not commit:
        return version
    changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", "attndrop_repro")
    return f"{version}+g{commit}{'.dirty' if changed else ''}"


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments],
            capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def dependencies() -> dict[str, str]:
    """Versions of what numbers depend on."""
    found = {}
    for name in _DEPENDENCIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "absent"
    return found


def device_name(device: torch.device) -> str:
    """The device in words, as in "cuda: NVIDIA H100" or "cpu: x86_64, AVX512"."""
    if device.type == "cuda":
        return f"cuda: {torch.cuda.get_device_name(device)}"
    if device.type == "cpu":
        return f"cpu: {platform.machine()}, {torch.backends.cpu.get_cpu_capability()}"
    return f"{device.type}: {platform.machine()}, {sys.platform}"


def open_points(spec: RunSpec) -> dict[str, dict[str, Any]]:
    """By id, as in "A1", the value of every setting that answers an open point of the papers."""
    recipe = spec.recipe
    attack = recipe.evaluation.attack
    found: dict[str, dict[str, Any]] = {
        "A8": {
            "image_size": recipe.data.image_size,
            "init_from": spec.init_from,
            **recipe.model.args,
        },
        "A12": {**attack.model_dump(mode="json"), "ece_bins": recipe.evaluation.ece_bins},
        "A15": recipe.evaluation.gradient_variance.model_dump(mode="json"),
        "A17": recipe.training.model_dump(mode="json"),
        "A19": {"seed": spec.seed},
    }
    for part, settings in spec.settings.items():
        fields = registry.get(part).Settings.model_fields
        for name, value in settings.items():
            extra = fields[name].json_schema_extra if name in fields else None
            points = extra.get("open_point", "") if isinstance(extra, dict) else ""
            for point in re.findall(r"A\d+", str(points)):
                found.setdefault(point, {})[f"{part}.{name}"] = value
    return dict(sorted(found.items(), key=lambda item: int(item[0][1:])))
