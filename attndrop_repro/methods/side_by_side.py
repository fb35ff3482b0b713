"""Several sets of keys in one attention, where not all queries meet the same keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attndrop_repro.methods.call import AttentionCall


@dataclass(frozen=True)
class KeySet:
    """The keys that some elements of an attention see.

    Attributes:
        k: Keys (B, H, K, D), one for each of the call's.
        bias: Additive bias, broadcastable to (B, H, Q, K), or None.
        where: Boolean (Q, K) or (Q, 1): the elements it serves. None: all.
    """

    k: Tensor
    bias: Tensor | None
    where: Tensor | None

    def only(self, where: Tensor) -> KeySet:
        """The same for fewer elements."""
        return replace(self, where=where if self.where is None else self.where & where)


def side_by_side(
    call: AttentionCall, sets: Sequence[KeySet], visible: Tensor | None
) -> AttentionCall:
    """The call over all sets of keys, each query seeing each key in the one set that serves it.

    Args:
        call: The attention; its keys and bias are replaced.
        sets: Sets whose `where` share out all elements between them.
        visible: What the call allows, (B | 1, H | 1, Q | 1, K); None: all.

    Returns:
        A call with K times as many keys as there are sets; the causal flag has moved to its mask.
    """
    if len(sets) == 1 and sets[0].where is None:
        return call.replace(k=sets[0].k, bias=sets[0].bias)
    queries, keys = call.shape[-2:]
    served = [s.where.expand(queries, keys) for s in sets if s.where is not None]
    allowed = torch.cat(served, -1)
    if visible is not None:
        allowed = allowed & torch.cat([visible] * len(sets), -1)
    biases = [s.bias for s in sets if s.bias is not None]
    return call.replace(
        k=torch.cat([s.k for s in sets], -2),
        v=torch.cat([call.v] * len(sets), -2),
        bias=torch.cat(_alike(biases, keys), -1) if biases else None,
        allowed=allowed,
        causal=False,
    )


def _alike(biases: Sequence[Tensor], keys: int) -> list[Tensor]:
    shape = torch.broadcast_shapes((1, keys), *(bias.shape for bias in biases))  # type: ignore[no-untyped-call]
    return [bias.expand(shape) for bias in biases]
