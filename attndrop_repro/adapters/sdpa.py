"""Catching `scaled_dot_product_attention` inside a library's own forward."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from attndrop_repro.adapters.runtime import Runtime
from attndrop_repro.config.errors import AttndropError
from attndrop_repro.methods import AttentionCall, Site
from attndrop_repro.methods.taps import AttentionTap, Mapped

FORBIDDEN = -1e4  # libraries write -inf, the dtype's minimum or -1e4; no learned bias comes near
MakeTap = Callable[[AttentionCall], AttentionTap]
Weigh = Callable[[Tensor], Tensor]


class Intercept(TorchFunctionMode):
    """While active, every fused attention goes through the method of `runtime` as one of `site`.

    Attributes:
        calls: How many attentions were caught.
        owner: The class that attends, for messages.
        x: Tokens that enter the attention, (B, N, C), or None.
        forbidden: Boolean for windows, (windows, Q, K), True where the library's own mask says
            "never" by a number that is no minimum (Swin: -100).
        make_tap: From a call to what penalties see, or None when none wants it.
        mapped: By the identity of weights, what linear layers made of `x`; for taps only.
        private: See `AttentionCall.private`.
        weigh: What becomes of a weight that the attention uses without its layer, or None.
    """

    def __init__(
        self,
        runtime: Runtime,
        site: Site,
        *,
        owner: str = "the attention",
        x: Tensor | None = None,
        forbidden: Tensor | None = None,
        make_tap: MakeTap | None = None,
        weigh: Weigh | None = None,
        private: bool = False,
    ) -> None:
        super().__init__()
        self.runtime, self.site, self.x, self.forbidden = runtime, site, x, forbidden
        self.owner, self.make_tap, self.weigh, self.calls = owner, make_tap, weigh, 0
        self.private = private
        self.mapped: dict[int, Mapped] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called by torch for every function of its API."""
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            return self.attention(func, args, kwargs)
        if func is F.linear:
            return self.linear(*args, **kwargs)
        return func(*args, **kwargs)

    def linear(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """One linear map of the library."""
        changed = weight if self.weigh is None else self.weigh(weight)
        y = F.linear(input, changed, bias)
        if self.make_tap is not None and input is self.x and changed is weight:
            made = Mapped.of(y, bias)
            if made is not None:
                self.mapped[id(weight)] = made
        return y

    def attention(self, func: Any, args: Any, kwargs: Any) -> Tensor:
        """One attention of the library through the method."""
        self.calls += 1
        call = call_of(self.site, *args, **kwargs).replace(x=self.x, private=self.private)
        self._check(call)
        if self.forbidden is not None:
            call = forbid(call, self.forbidden)
        tap = None if self.make_tap is None else self.make_tap(call)
        output = self.runtime.attention_output(call, tap)
        if output is None:
            plain: Tensor = func(*args, **kwargs)
            if tap is not None and not call.dropout_p and plain.dim() == 4:
                tap.output = plain
            return plain
        return output.squeeze(1) if _argument(args, kwargs, 0, "query").dim() == 3 else output

    def _check(self, call: AttentionCall) -> None:
        """Refuses what is no attention over tokens with its heads in second place."""
        channels = (
            self.x is not None
            and self.x.dim() == 3
            and call.q.shape[-1] == self.x.shape[1] != call.k.shape[-2] == call.q.shape[-2]
        )
        if channels or call.q.dim() != 4:
            what = "channels, not tokens" if channels else f"{call.q.dim()} dimensions, not 4"
            raise AttndropError(
                f"{self.owner} at {self.site.path!r} attends over {what}: no method can get into "
                "it; call remove() and use another model"
            )


def _argument(args: Any, kwargs: Any, position: int, name: str) -> Tensor:
    return args[position] if len(args) > position else kwargs[name]  # type: ignore[no-any-return]


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
    """The arguments of `scaled_dot_product_attention` as an `AttentionCall`.

    Without heads, (B, N, D), there is one; grouped heads are repeated.
    """
    if query.dim() == 3:
        query, key, value = (t.unsqueeze(1) for t in (query, key, value))
        if attn_mask is not None and attn_mask.dim() == 3:
            attn_mask = attn_mask.unsqueeze(1)
    bias, allowed = split_mask(attn_mask)
    return AttentionCall(
        query, repeat_heads(key, query), repeat_heads(value, query), site,
        scale=1 / math.sqrt(query.shape[-1]) if scale is None else scale,
        bias=bias, allowed=allowed, causal=is_causal, dropout_p=dropout_p,
    )  # fmt: skip


def repeat_heads(t: Tensor, query: Tensor) -> Tensor:
    """Keys or values of grouped heads, (B, groups, K, D), once for every query head."""
    heads, groups = query.shape[-3], t.shape[-3]
    return t if heads == groups else t.repeat_interleave(heads // groups, dim=-3)


def split_mask(mask: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """An SDPA mask as a finite bias and a boolean: True where attention is allowed.

    Args:
        mask: Boolean (True: may be attended), or additive with "never" at or below -1e4.
    """
    if mask is None or mask.dtype == torch.bool:
        return None, mask
    allowed = mask > FORBIDDEN
    return torch.where(allowed, mask, mask.new_zeros(())), allowed


def forbid(call: AttentionCall, forbidden: Tensor) -> AttentionCall:
    """A call whose keys are also forbidden where a window's mask says so.

    Args:
        call: With windows in its first dimension, (B * windows, H, Q, K), B the slower one.
        forbidden: (windows, Q, K).
    """
    windows = forbidden.shape[0]
    keep = (~forbidden).unsqueeze(1).repeat(call.q.shape[0] // windows, 1, 1, 1)
    bias = call.bias
    if bias is not None:
        # there the bias holds the library's own number for "never"
        bias = torch.where(keep, bias, bias.new_zeros(()))
    allowed = call.allowed
    return call.replace(bias=bias, allowed=keep if allowed is None else keep & allowed)
