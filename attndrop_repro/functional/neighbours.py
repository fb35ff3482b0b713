"""Which neighbours of a token may blur into it, read off a mask.

The equation blurs a row of logits in which masked entries count as 0. As a blur of keys that is
exact where all queries that see key j see the same of its neighbours: padding, packed segments,
windows, and causal masks a little away from the diagonal. Where they do not, nothing here ever
lets a key through to a query that may not see it.

Shapes: Q queries, K keys, w offsets -(w // 2) ... w // 2; leading axes are those of the mask.
"""

from __future__ import annotations

import torch
from torch import Tensor


def linked_keys(allowed: Tensor, w: int, rows: Tensor | None = None) -> Tensor:
    """Whether every query that sees key j sees its neighbour too, at each offset.

    Args:
        allowed: Boolean (..., Q, K); Q may be 1.
        w: Offsets, odd.
        rows: Boolean, broadcastable to (..., Q, K): pairs that count. None: all.

    Returns:
        Boolean (..., w, K); neighbours outside the sequence are not linked.
    """
    counted = allowed if rows is None else allowed & rows
    radius = w // 2
    padded = torch.nn.functional.pad(allowed, (radius, radius))
    keys = allowed.shape[-1]
    return torch.stack(
        [~(counted & ~padded[..., offset : offset + keys]).any(-2) for offset in range(w)], -2
    )


def linked_on_diagonal(allowed: Tensor, w: int, behind: int) -> Tensor:
    """Whether the one query ``j + behind`` sees the neighbours of key j, at each offset.

    Args:
        allowed: Boolean (..., Q, K).
        w: Offsets, odd.
        behind: How far the query is behind the key.

    Returns:
        Boolean (..., w, K).
    """
    queries, keys = allowed.shape[-2:]
    key = torch.arange(keys, device=allowed.device)
    source = key + torch.arange(w, device=allowed.device)[:, None] - w // 2
    row = (key + behind).expand_as(source)
    inside = (source >= 0) & (source < keys) & (row < queries)
    return allowed[..., row.clamp(max=queries - 1), source.clamp(0, keys - 1)] & inside


def linked_queries(allowed: Tensor, w: int) -> Tensor:
    """Whether the query at each offset sees exactly the same keys.

    Only then does blurring over queries show a query no key that is hidden from it, and no query
    that comes later under a causal mask.

    Args:
        allowed: Boolean (..., Q, K), Q not 1.
        w: Offsets, odd.

    Returns:
        Boolean (..., w, Q).
    """
    radius, queries = w // 2, allowed.shape[-2]
    padded = torch.nn.functional.pad(allowed, (0, 0, radius, radius))
    return torch.stack(
        [(allowed == padded[..., offset : offset + queries, :]).all(-1) for offset in range(w)], -2
    )
