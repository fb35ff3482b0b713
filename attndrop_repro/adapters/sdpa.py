"""Catching `scaled_dot_product_attention` inside a library's own forward."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from attndrop_repro.adapters.runtime import Runtime
from attndrop_repro.methods import AttentionCall, Site
from attndrop_repro.methods.call import AttentionTap


class Intercept(TorchFunctionMode):
    """While active, every fused attention goes through the method of `runtime` as one of `site`."""

    def __init__(self, runtime: Runtime, site: Site, make_tap: Any = None) -> None:
        super().__init__()
        self.runtime, self.site, self.make_tap = runtime, site, make_tap

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called by torch for every function of its API."""
        kwargs = kwargs or {}
        if func is not F.scaled_dot_product_attention:
            return func(*args, **kwargs)
        call = call_of(self.site, *args, **kwargs)
        tap = self.make_tap(call) if self.make_tap is not None else None
        output = self.runtime.attention_output(call, tap)
        return func(*args, **kwargs) if output is None else output


def call_of(
    site: Site,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> AttentionCall:
    """The arguments of `scaled_dot_product_attention` as an `AttentionCall`."""
    if enable_gqa and key.shape[-3] != query.shape[-3]:
        groups = query.shape[-3] // key.shape[-3]
        key, value = (t.repeat_interleave(groups, dim=-3) for t in (key, value))
    bias, allowed = split_mask(attn_mask)
    return AttentionCall(
        query, key, value, site,
        scale=1 / math.sqrt(query.shape[-1]) if scale is None else scale,
        bias=bias, allowed=allowed, causal=is_causal, dropout_p=dropout_p,
    )  # fmt: skip


def split_mask(mask: Tensor | None, forbidden: float = -1e4) -> tuple[Tensor | None, Tensor | None]:
    """An SDPA mask as a finite bias and a boolean.

    Args:
        mask: Boolean (True: may be attended), or additive.
        forbidden: Additive entries at or below this mean "never": libraries write -inf, the dtype's
            minimum or -1e4; no learned bias comes near.
    """
    if mask is None or mask.dtype == torch.bool:
        return None, mask
    allowed = mask > forbidden
    return torch.where(allowed, mask, torch.zeros((), dtype=mask.dtype, device=mask.device)), allowed
