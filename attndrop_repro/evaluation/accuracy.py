"""What a model says of every example of a split."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from attndrop_repro.config.progress import Progress, Silent
from attndrop_repro.data import ImageSplit
from attndrop_repro.data.batches import evaluation_batches
from attndrop_repro.evaluation.guard import forward, place, untouched
from attndrop_repro.store.logits import Logits


def predict(
    model: nn.Module,
    split: ImageSplit,
    *,
    batch_size: int = 500,
    workers: int = 0,
    progress: Progress | None = None,
) -> Logits:
    """Logits of a whole split in eval mode, in its order, every example once.

    Neither `batch_size` nor `workers` changes them, but for rounding on some devices.

    Args:
        model: Takes pixels in [0, 1], gives logits.
        split: What to go through.
        batch_size: At most so many at a time.
        workers: Loader processes, for images on disk.
        progress: Told after each batch.

    Raises:
        AttndropError: An image is damaged.
    """
    device, dtype = place(model)
    progress = progress or Silent()
    found = []
    done = 0
    with untouched(model), torch.no_grad():
        for pixels, _, _ in evaluation_batches(
            split, batch_size, device=device, dtype=dtype, workers=workers
        ):
            found.append(forward(model, pixels).float().cpu())
            done += len(pixels)
            progress.update(done, len(split))
    return Logits(
        torch.cat(found).numpy(),
        split.labels.numpy().astype(np.int64),
        split.ids.numpy().astype(np.int64),
    )
