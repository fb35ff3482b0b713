"""What each example or batch adds to the terms of lemma 1, of one parameter.

Shapes: U units (examples or batches), D draws, P numbers of the parameter.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

TERMS = ("regularised", "base", "delta", "covariance", "mask")
_AT_ONCE = 1 << 20  # numbers of a factor: it stays in a processor's cache


def shares(g: Tensor, drawn: Sequence[Tensor], mean_g: Tensor, mean_r: Tensor) -> Tensor:
    """Shares whose mean over all units is the term, (terms, U), float64.

    Args:
        g: Plain gradients (U, P).
        drawn: Regularised ones, D times (U, P).
        mean_g: Mean of g over all units, (P,), float64.
        mean_r: That of the regularised ones, over draws as well.
    """
    mean_d, mean_g, mean_r = (mean_r - mean_g).to(g), mean_g.to(g), mean_r.to(g)
    factors = 3 * len(drawn)
    size = max(1, min(len(g), _AT_ONCE // max(factors * g.shape[1], 1)))
    rows = g.new_empty(size, factors, g.shape[1])
    found = []
    for start in range(0, len(g), size):
        part = slice(start, min(start + size, len(g)))
        found.append(
            _some(rows[: part.stop - start], g[part], [r[part] for r in drawn],
                  mean_g, mean_r, mean_d)
        )  # fmt: skip
    return torch.cat(found, 1)


def _some(
    rows: Tensor, g: Tensor, drawn: Sequence[Tensor], mean_g: Tensor, mean_r: Tensor,
    mean_d: Tensor,
) -> Tensor:  # fmt: skip
    """Shares of the units that fit into `rows`, (U, 3 D, P), which is written over.

    All inner products that are needed, between the plain gradient, the changes by the method, the
    regularised gradients, and the draws' differences from the first one, are in one product.
    """
    count = len(drawn)
    torch.sub(g, mean_g, out=rows[:, 0])
    for draw, r in enumerate(drawn):
        torch.sub(r, g, out=rows[:, 1 + draw])
        rows[:, 1 + draw] -= mean_d
        torch.sub(r, mean_r, out=rows[:, 1 + count + draw])
        if draw:
            torch.sub(r, drawn[0], out=rows[:, 2 * count + draw])
    products = torch.bmm(rows, rows.transpose(1, 2)).double()
    deltas, totals = slice(1, 1 + count), slice(1 + count, 1 + 2 * count)
    between = products[:, 1 + 2 * count :, 1 + 2 * count :]
    squares = products.diagonal(dim1=1, dim2=2)
    # sum over draws of the squared distance from their mean, by their distances from the first
    scatter = between.diagonal(dim1=1, dim2=2).sum(1) - between.sum((1, 2)) / count
    return torch.stack(
        (
            squares[:, totals].mean(1),
            squares[:, 0],
            squares[:, deltas].mean(1),
            products[:, 0, deltas].mean(1),
            scatter / max(count - 1, 1),
        )
    )
