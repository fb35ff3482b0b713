"""scikit-learn's handwritten digits: 1,797 grey images of 8 x 8 pixels with 17 levels, offline."""

from __future__ import annotations

import hashlib

import numpy as np
import torch

from attndrop_repro.data.registry import Raw, Request, Source, register


@register(
    "digits",
    "scikit-learn's 1,797 handwritten digits, 8 x 8 grey; comes with scikit-learn",
    shape=(8, 1, 10),
)
def read(request: Request) -> Source:
    """All images as one set; the recipe's `test` says which share is the test set."""
    from sklearn.datasets import load_digits

    values, labels = load_digits(return_X_y=True)
    images = np.ascontiguousarray(values.reshape(-1, 1, 8, 8)).astype(np.uint8)
    classes = labels.astype(np.int64)
    digest = hashlib.sha256(images.tobytes() + classes.tobytes()).hexdigest()
    return Source(
        Raw(torch.from_numpy(images), torch.from_numpy(classes)),
        None,
        tuple(str(digit) for digit in range(10)),
        digest,
        image_size=8,
        channels=1,
        levels=16,
    )
