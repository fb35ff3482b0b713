"""Adversarial examples as files: tensors for machines, a picture for people."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save

from attndrop_repro.config.errors import UsageError
from attndrop_repro.data import ImageSplit
from attndrop_repro.evaluation.attacks import AttackResult
from attndrop_repro.store.atomic import write_bytes

PICTURED = 8


def save_adversarial(folder: Path, result: AttackResult, split: ImageSplit) -> tuple[Path, Path]:
    """Writes the examples of an attack, beside and renamed.

    Args:
        folder: Made if need be.
        result: With images kept.
        split: What was attacked.

    Returns:
        A safetensors file with `clean` and `adversarial` (n, C, H, W), `labels`, `ids`, `correct`
        and `robust` (n,); and a PNG that shows the first broken examples.
    """
    if result.adversarial is None:
        raise UsageError("the attack kept no images: run it with keep=True")
    n = result.n
    clean = split.pixels(slice(0, n))
    s = result.setting
    stem = f"{split.name}-{s.label}-{s.norm}-{s.eps.label.replace('/', 'of')}"
    tensors = {
        "clean": clean,
        "adversarial": result.adversarial.to(clean.dtype).contiguous(),
        "labels": split.labels[:n].clone(),
        "ids": split.ids[:n].clone(),
        "correct": result.correct.to(torch.uint8),
        "robust": result.robust.to(torch.uint8),
    }
    file, picture = folder / f"{stem}.safetensors", folder / f"{stem}.png"
    write_bytes(file, save(tensors, metadata={"attack": s.label, "eps": s.eps.label}))
    write_bytes(picture, _drawn(result, clean, split))
    return file, picture


def _drawn(result: AttackResult, clean: torch.Tensor, split: ImageSplit) -> bytes:
    """A PNG of three rows: clean, adversarial, and their difference, stretched to full range."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    assert result.adversarial is not None
    adversarial = result.adversarial.to(clean.dtype)
    broken = (result.correct & ~result.robust).nonzero()[:, 0]
    changed = (adversarial != clean).flatten(1).any(1).nonzero()[:, 0]
    shown = (broken if len(broken) else changed)[:PICTURED].tolist() or list(
        range(min(PICTURED, len(clean)))
    )
    difference = adversarial - clean
    reach = float(difference[shown].abs().max()) or 1.0
    figure = Figure(figsize=(1.1 * len(shown) + 1.3, 3.9), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(3, len(shown), squeeze=False)
    grey = clean.shape[1] == 1
    rows = (
        ("clean", clean, (0.0, 1.0), "gray"),
        ("adversarial", adversarial, (0.0, 1.0), "gray"),
        (f"difference\n±{reach:.3g}", difference, (-reach, reach), "RdBu_r"),
    )
    for row, (name, images, (low, high), colours) in enumerate(rows):
        for column, index in enumerate(shown):
            axis = axes[row, column]
            pixels = np.moveaxis(images[index].double().numpy(), 0, -1)
            if grey:
                axis.imshow(pixels[..., 0], vmin=low, vmax=high, cmap=colours)
            else:
                axis.imshow(np.clip((pixels - low) / (high - low), 0, 1))
            axis.set_xticks([])
            axis.set_yticks([])
            if row == 0:
                axis.set_title(split.classes[int(split.labels[index])][:14], fontsize=8)
        axes[row, 0].set_ylabel(name, fontsize=8)
    s = result.setting
    what = "broken" if len(broken) else "attacked"
    figure.suptitle(
        f"{s.label}, {s.norm}, eps {s.eps.label}: first {len(shown)} {what} of {result.n}",
        fontsize=9,
    )
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()
