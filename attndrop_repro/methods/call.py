"""One attention as a method sees it: the same object for every library and model.

Shapes: B batch, H heads, Q queries, K keys, D width of a head, N tokens, C model width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from attndrop_repro.functional.attention_by_rows import Change, attention_by_rows, possible
from attndrop_repro.functional.attention_dropout import attention_dropout
from attndrop_repro.functional.drawn_by_rows import DroppedKeys, DroppedWeights
from attndrop_repro.functional.masked_softmax import masked_softmax

AttentionKind = Literal["encoder-self", "decoder-self", "cross"]
Place = Literal[
    "attention",  # the product of soft-max and values
    "attention-input",  # tokens as they enter an attention, before the projections
    "qkv", "q", "k", "v", "proj", "fc1", "fc2",  # linear layers, by what they compute
    "proj-output",  # what the output projection returns
    "mlp-hidden",  # after the activation, as it enters fc2
    "mlp-output",  # what fc2 returns
    "residual",  # a whole residual branch, just before it is added
]  # fmt: skip


@dataclass(frozen=True)
class Site:
    """Where in a model a hook acts.

    Attributes:
        place: What is there.
        layer: Position among the sites of this place, from 0, in order of depth.
        layers: How many sites of this place the model has.
        path: The module's name in the model, for messages.
        kind: Which attention it is or belongs to.
        heads: Attention heads (0 where it means nothing).
        prefix_tokens: Class and register tokens at the start of the sequence.
        width: C of the tokens that enter an attention (0 elsewhere, or where it is not known).
    """

    place: Place
    layer: int
    layers: int
    path: str
    kind: AttentionKind = "encoder-self"
    heads: int = 0
    prefix_tokens: int = 0
    width: int = 0


@dataclass(frozen=True)
class AttentionCall:
    """The inputs of one attention: after norms, rotation and grouping, before the scaled product.

    Attributes:
        q: Queries, (B, H, Q, D).
        k: Keys, (B, H, K, D); grouped heads are already repeated to H.
        v: Values, (B, H, K, D).
        site: Where it is.
        scale: The factor on Q K^T.
        bias: Finite additive bias, broadcastable to (B, H, Q, K), or None.
        allowed: Boolean, broadcastable to (B, H, Q, K); True: this key may be attended. None: all.
        causal: Whether query i may attend key j only for j <= i (counted from the first).
        dropout_p: Dropout on the attention weights, inverted scaling.
        dropped: Keys to be dropped by draws that are not made before they are needed, or None.
        x: Tokens that queries, keys and values are projected from, (B, N, C); None where the
            adapter cannot see them.
        memory: Those of the keys and values where they are others (cross attention), (B, M, C).
        on_weights: What else happens to the attention weights (B, H, Q, K) before they meet the
            values; setting it costs the fused form. None: nothing.
        private: Whether nobody else holds q, k and v as the model made them, or what they are views
            of: no hook waits for a gradient there.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    site: Site
    scale: float
    bias: Tensor | None = None
    allowed: Tensor | None = None
    causal: bool = False
    dropout_p: float = 0.0
    dropped: DroppedKeys | None = None
    x: Tensor | None = None
    memory: Tensor | None = None
    on_weights: Callable[[Tensor], Tensor] | None = None
    private: bool = False

    def replace(self, **changes: Any) -> AttentionCall:
        """A copy with some fields changed."""
        return replace(self, **changes)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(B, H, Q, K) of the logits."""
        return (*self.q.shape[:-1], self.k.shape[-2])

    def visible(self) -> Tensor | None:
        """`allowed`, `causal` and `dropped` in one boolean, broadcastable to (B, H, Q, K), or None.

        Draws that are due are made.
        """
        visible = self.allowed
        if self.causal:
            queries, keys = self.q.shape[-2], self.k.shape[-2]
            past = torch.ones(queries, keys, dtype=torch.bool, device=self.q.device).tril()
            visible = past if visible is None else past & visible
        if self.dropped is None:
            return visible
        keep = self.dropped.whole(self.shape, visible, self.q.device)
        return keep if visible is None else keep & visible

    def settled(self) -> AttentionCall:
        """The same call with nothing left to be drawn."""
        if self.dropped is None:
            return self
        return self.replace(allowed=self.visible(), causal=False, dropped=None)

    def real_keys(self) -> Tensor | None:
        """(B, K), False where no query of any head may attend a key: padding. None: no mask."""
        if self.allowed is None:
            return None
        batch, _, _, keys = self.shape
        allowed = self.allowed.reshape((1,) * (4 - self.allowed.ndim) + self.allowed.shape)
        return allowed.any(1).any(1).expand(batch, keys)

    def drop_keys(self, keep: Tensor) -> AttentionCall:
        """Forbids the keys where ``keep`` is False; (broadcastable to) (B, H, Q, K)."""
        return self.replace(allowed=keep if self.allowed is None else keep & self.allowed)

    def then_on_weights(self, change: Callable[[Tensor], Tensor]) -> AttentionCall:
        """Adds a change of the attention weights after those there are."""
        before = self.on_weights
        if before is None:
            return self.replace(on_weights=change)
        return self.replace(on_weights=lambda weights: change(before(weights)))

    def logits(self) -> Tensor:
        """Scaled Q K^T without bias or mask, (B, H, Q, K)."""
        # scaling the queries first keeps half precision from overflowing
        return (self.q * self.scale) @ self.k.transpose(-2, -1)

    def weigh(self, weights: Tensor) -> Tensor:
        """Attention weights (B, H, Q, K) through dropout to the output, (B, H, Q, D)."""
        p = self.dropout_p
        if 0 < p < 1 and weights.device.type == "cpu":
            # torch's own takes three times as long there
            weights = attention_dropout(weights, torch.rand(weights.shape) >= p, p)
        elif p:
            weights = F.dropout(weights, p)
        if self.on_weights is not None:
            weights = self.on_weights(weights)
        return weights @ self.v

    def run(self) -> Tensor:
        """The attention, softmax(logits + bias) V, (B, H, Q, D); no logits are kept if possible."""
        late = self.dropped if self.dropped is None or not self.dropped.drawn else None
        by_rows = self.bias is None and self.on_weights is None and self.q.device.type == "cpu"
        if by_rows and late is not None and not self.dropout_p and possible():
            return self._by_rows(late)
        settled = self.settled()
        if by_rows and 0 < self.dropout_p < 1:
            if possible():
                return settled._by_rows(DroppedWeights(self.dropout_p))
            return settled._through_weights()  # the same draws
        return settled._fused() if self.on_weights is None else settled._through_weights()

    def _by_rows(self, change: Change) -> Tensor:
        """With draws some rows at a time, the same as of all at once."""
        return attention_by_rows(
            self.q, self.k, self.v, change,
            scale=self.scale, allowed=self.allowed, causal=self.causal, private=self.private,
        )  # fmt: skip

    def _through_weights(self) -> Tensor:
        """With all weights at once."""
        logits = self.logits() if self.bias is None else self.logits() + self.bias
        return self.weigh(masked_softmax(logits, self.visible()))

    def _fused(self) -> Tensor:
        """By torch's fused attention."""
        mask: Tensor | None
        if self.bias is None:
            plain = self.causal and self.allowed is None
            mask = None if plain else self.visible()
        else:
            plain, visible = False, self.visible()
            mask = self.bias.to(self.q.dtype)
            if visible is not None:
                mask = mask.masked_fill(~visible, float("-inf"))
        return F.scaled_dot_product_attention(
            self.q, self.k, self.v, mask, self.dropout_p, is_causal=plain, scale=self.scale
        )


@dataclass(frozen=True)
class Step:
    """The position in training when a forward pass begins.

    Attributes:
        index: Optimiser step, from 0.
        total: Steps of the whole training, or 0 when nobody said.
        pass_index: 0 or 1: which of the passes over the same batch this is.
        attention: The attention sites of the model, in order.
        device: Where draws must live.
    """

    index: int = 0
    total: int = 0
    pass_index: int = 0
    attention: Sequence[Site] = ()
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def progress(self) -> float:
        """The share of training that is over, 0 to 1; 1 when the length is not known."""
        return min(self.index / self.total, 1.0) if self.total > 0 else 1.0
