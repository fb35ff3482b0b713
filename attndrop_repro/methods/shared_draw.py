"""Draws that all processes of a distributed training share."""

from __future__ import annotations

import torch
from torch import Tensor


def same_on_all_ranks(draw: Tensor) -> Tensor:
    """The draw of rank 0, on every rank; every rank still draws, so their streams keep step."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return draw
    # a sum rather than a broadcast: torch.compile knows how to put it into its graph
    own = draw if torch.distributed.get_rank() == 0 else torch.zeros_like(draw)
    torch.distributed.all_reduce(own)
    return own
