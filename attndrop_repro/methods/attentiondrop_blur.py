"""AttentionDrop by blurred smoothing: keys blurred along the tokens, which blurs the logits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import torch
from pydantic import field_validator, model_validator
from torch import Tensor

from attndrop_repro.functional.blur import Edges, blur, gaussian_kernel
from attndrop_repro.functional.neighbours import (
    linked_keys,
    linked_on_diagonal,
    linked_queries,
)
from attndrop_repro.methods.call import AttentionCall, Step
from attndrop_repro.methods.registry import register
from attndrop_repro.methods.scope import Scoped, TokenScope
from attndrop_repro.methods.settings import setting
from attndrop_repro.methods.shared_draw import same_on_all_ranks
from attndrop_repro.methods.side_by_side import KeySet, side_by_side
from attndrop_repro.methods.strength import Positive


class BlurSettings(TokenScope):
    """Settings of blurred attention smoothing."""

    sigma_max: Positive = setting(
        0.5,
        "Sigma is drawn from U(0, sigma_max).",
        symbol="sigma_max",
        unit="tokens",
        source="AttentionDrop, section 3.2 and appendix C",
    )
    w: int = setting(
        5,
        "Width of the kernel, odd.",
        symbol="w",
        unit="tokens",
        source="AttentionDrop, section 3.2 and appendix C",
        ge=1,
    )
    axes: Literal["rows", "rows_and_columns"] = setting(
        "rows",
        "Blur over keys (text), or over keys and queries (PyTorch listing).",
        open_point="A2",
    )
    sigma_per: Literal["batch", "layer", "sample"] = setting(
        "batch",
        "One sigma for all layers of a pass, one for each layer, or one for each sample.",
        open_point="A6",
    )
    edges: Edges = setting(
        "zero",
        "Beyond the sequence logits count as 0, or the kernel is renormalised.",
        source="AttentionDrop, section 3.2: zero padding",
        open_point="A11",
    )
    bias: Literal["after", "with_logits"] = setting(
        "after",
        "An additive bias is added after the blur, or blurred with the logits.",
        open_point="A14",
    )
    causal: Literal["exact", "past_only"] = setting(
        "exact",
        "Under a causal mask: the logits' own blur with the future as 0 (the w // 2 nearest keys "
        "are computed apart, at w // 2 more attentions), or a kernel over the past only.",
        open_point="A7",
    )

    @field_validator("w")
    @classmethod
    def _odd(cls, w: int) -> int:
        if w % 2 == 0:
            raise ValueError("w must be odd, so that the kernel has a centre")
        return w

    @model_validator(mode="after")
    def _columns_of_encoders_only(self) -> BlurSettings:
        if self.axes == "rows_and_columns" and set(self.kinds) != {"encoder-self"}:
            raise ValueError(
                "axes = rows_and_columns needs kinds = encoder-self: blurring over the queries of "
                "a decoder would let it see later positions"
            )
        return self


@register
class BlurredSmoothing(Scoped[BlurSettings]):
    """Rows of the logits blurred by a Gaussian kernel of width w, sigma ~ U(0, sigma_max)."""

    name = "attentiondrop-blur"
    reference = "Baig et al., AttentionDrop, arXiv 2504.12088, section 3.2"
    notes = (
        "Blurs the keys, which equals blurring the logits. sigma = 0 is the identity. With sigma "
        "<= 0.5 the width hardly matters (E13). All ranks share one sigma."
    )
    Settings = BlurSettings
    strength_name = "sigma_max"
    examples = ({"w": 15, "edges": "renormalised", "skip_prefix_keys": True},)
    first = True  # which neighbours may blur is read off the mask, before keys are dropped from it

    def __init__(self, settings: BlurSettings) -> None:
        super().__init__(settings)
        self._draw: Tensor | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Copies of a model draw for themselves; under vmap a draw does not outlive its pass."""
        return {**self.__dict__, "_draw": None}

    @property
    def idle(self) -> bool:
        """Whether sigma is 0 for good, or the kernel has one weight only."""
        return self.strength.is_zero or self.settings.w == 1

    def begin_step(self, step: Step) -> None:
        """Draws sigma / sigma_max for this pass."""
        super().begin_step(step)
        if self.settings.sigma_per == "sample":
            self._draw = None  # how many there are shows at the first attention
            return
        shape = (len(step.attention),) if self.settings.sigma_per == "layer" else ()
        self._draw = same_on_all_ranks(torch.rand(shape, device=step.device))

    def drawn(self) -> Tensor | None:
        """Sigma / sigma_max of this pass."""
        return self._draw

    def recall(self, drawn: Tensor) -> None:
        """Takes an earlier pass's sigma again."""
        self._draw = drawn

    def rewrite(self, call: AttentionCall) -> AttentionCall:
        """Blurs the keys, and the queries with rows_and_columns."""
        s, sigma_max = self.settings, self.here(call.site)
        if sigma_max is None or s.w == 1:
            return call
        kernel, visible = gaussian_kernel(self._sigma(call, sigma_max), s.w), _mask(call)
        smoothed = call if s.axes == "rows" else self._blur_queries(call, kernel, visible)
        sets = [
            self._key_set(smoothed, kernel, visible, linked, where)
            for linked, where in self._sharing(call, visible)
        ]
        prefix = call.site.prefix_tokens
        if s.skip_prefix_queries and prefix:
            plain = torch.arange(call.shape[2], device=call.q.device)[:, None] < prefix
            sets = [each.only(~plain) for each in sets]
            sets.append(KeySet(call.k, call.bias, plain))
        return side_by_side(smoothed, sets, visible)

    def _sigma(self, call: AttentionCall, sigma_max: float | Tensor) -> Tensor:
        """The sigma of this pass and place: (), (B, 1), (H,) or (B, H)."""
        per, draw = self.settings.sigma_per, self._draw
        if per == "sample" and (draw is None or draw.shape[0] != call.shape[0]):
            draw = self._draw = torch.rand(call.shape[0], 1, device=call.q.device)
        assert draw is not None, "begin_step draws sigma before every pass"
        if per == "layer":
            draw = draw[call.site.layer]
        if isinstance(sigma_max, Tensor):
            sigma_max = sigma_max.flatten()
        return (draw * sigma_max).to(torch.promote_types(call.k.dtype, torch.float32))

    def _sharing(
        self, call: AttentionCall, visible: Tensor | None
    ) -> Iterator[tuple[Tensor | None, Tensor | None]]:
        """For each set of keys: which neighbours are linked, and which elements it serves.

        One set serves all but the elements near a causal diagonal, of which each query
        sees fewer neighbours than the next.
        """
        s = self.settings
        if visible is None:
            yield None, None
        elif visible.shape[-2] == 1:
            yield linked_keys(visible, s.w), None
        elif s.causal == "exact" and (call.causal or call.site.kind == "decoder-self"):
            queries, keys = call.shape[-2:]
            key = torch.arange(keys, device=call.k.device)
            behind = torch.arange(queries, device=call.k.device)[:, None] - key
            radius = min(s.w // 2, keys - 1)
            far = (behind < 0) | (behind >= radius)
            yield linked_keys(visible, s.w, far), far
            for step in range(radius):
                yield linked_on_diagonal(visible, s.w, step), behind == step
        else:
            yield linked_keys(visible, s.w), None

    def _key_set(
        self,
        call: AttentionCall,
        kernel: Tensor,
        visible: Tensor | None,
        linked: Tensor | None,
        where: Tensor | None,
    ) -> KeySet:
        s = self.settings
        left_out = call.site.prefix_tokens if s.skip_prefix_keys else 0

        def over_keys(x: Tensor) -> Tensor:
            if visible is not None and visible.shape[-2] == 1 and s.edges == "zero":
                # padding alone: keys that count as 0 need no exceptions, which is quicker
                x = x.masked_fill(~visible.transpose(-2, -1), 0.0)
                return blur(x, kernel, left_out=left_out)
            return blur(x, kernel, linked=linked, left_out=left_out, edges=s.edges)

        bias = call.bias
        if bias is not None and s.bias == "with_logits":
            bias = bias.expand(*bias.shape[:-1], call.shape[-1])
            bias = over_keys(bias.transpose(-2, -1)).transpose(-2, -1)
        return KeySet(over_keys(call.k), bias, where)

    def _blur_queries(
        self, call: AttentionCall, kernel: Tensor, visible: Tensor | None
    ) -> AttentionCall:
        s, linked = self.settings, None
        if visible is not None:
            # in self-attention a token that is nobody's key is padding, as a query too
            linked = linked_keys(visible.any(-2, keepdim=True), s.w)
            if visible.shape[-2] > 1:
                linked = linked & linked_queries(visible, s.w)
        left_out = call.site.prefix_tokens if s.skip_prefix_queries else 0

        def over_queries(x: Tensor) -> Tensor:
            return blur(x, kernel, linked=linked, left_out=left_out, edges=s.edges)

        bias = call.bias
        if bias is not None and s.bias == "with_logits":
            bias = over_queries(bias.expand(*bias.shape[:-2], call.shape[-2], bias.shape[-1]))
        return call.replace(q=over_queries(call.q), bias=bias)


def _mask(call: AttentionCall) -> Tensor | None:
    """What the call allows, as (B | 1, H | 1, Q | 1, K)."""
    visible = call.visible()
    if visible is None:
        return None
    visible = visible.view(*[1] * (4 - visible.dim()), *visible.shape)
    return visible.expand(*visible.shape[:-1], call.shape[-1])
