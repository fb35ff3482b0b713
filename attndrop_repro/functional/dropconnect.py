"""DropConnect (Wan et al., ICML 2013): dropout of weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from attndrop_repro.functional.dropout import dropout


def drop_connections(weight: Tensor, p: float | Tensor, blocks: Sequence[bool] = (True,)) -> Tensor:
    """Each weight is 0 with probability p, else divided by 1 - p: one draw for the whole batch.

    The paper draws for every example and approximates inference by sampling; here the draw is per
    forward, and inference is the plain model.

    Args:
        weight: (out, in).
        p: Probability to drop, as in `functional.dropout.dropout`.
        blocks: Which of equal blocks of rows are dropped, as queries, keys and values in one layer.

    Returns:
        (out, in).
    """
    if all(blocks):
        return dropout(weight, p)
    rows = weight.chunk(len(blocks))
    return torch.cat([dropout(r, p) if drop else r for r, drop in zip(rows, blocks, strict=True)])
