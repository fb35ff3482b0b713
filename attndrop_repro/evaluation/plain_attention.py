"""Fused attention by its parts, where that is quicker or the only way.

On a CPU the backward pass of the fused form takes longer than that of its parts for short
sequences: an attack, which is little else, gains a fifth on a model of 17 tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from attndrop_repro.adapters.sdpa import call_of
from attndrop_repro.functional.masked_softmax import masked_softmax
from attndrop_repro.methods import Site

SHORT = 128  # keys up to which the parts are quicker

_NOWHERE = Site("attention", 0, 1, "")


def by_parts(
    args: tuple[Any, ...], kwargs: dict[str, Any], dropout: Callable[[Tensor, float], Tensor]
) -> Tensor:
    """`scaled_dot_product_attention` as softmax(logits + bias) V.

    Args:
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        dropout: Called on weights (B, H, Q, K) and their rate, if that is not 0.

    Returns:
        (B, H, Q, D).
    """
    call = call_of(_NOWHERE, *args, **kwargs)
    logits = call.logits() if call.bias is None else call.logits() + call.bias
    weights = masked_softmax(logits, call.visible())
    if call.dropout_p:
        weights = dropout(weights, call.dropout_p)
    return weights @ call.v


class ShortByParts(TorchFunctionMode):
    """While active, fused attention over few keys on a CPU runs by its parts."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called by torch for every function of its API."""
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            keys = args[1] if len(args) > 1 else kwargs["key"]
            if keys.device.type == "cpu" and keys.shape[-2] <= SHORT:
                return by_parts(args, kwargs, F.dropout)
        return func(*args, **kwargs)
