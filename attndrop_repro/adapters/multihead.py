"""`nn.MultiheadAttention`, alone and in torch's and torchvision's layers.

Its forward gives nothing a hook could hold on to: the fused attention is called out of reach of a
torch-function mode, and the input projection has no layer. So the swapped class has a training
forward of its own, made of the module's public parameters; in eval mode the library's runs, with
its fast path.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attndrop_repro.adapters.found import Bound, Found, adapter
from attndrop_repro.adapters.layers import at_work
from attndrop_repro.adapters.roles import around_attention, feed_forward
from attndrop_repro.adapters.sdpa import split_mask
from attndrop_repro.adapters.swap import BOUND
from attndrop_repro.adapters.tree import Tree
from attndrop_repro.config.errors import AttndropError
from attndrop_repro.methods import AttentionCall, Site
from attndrop_repro.methods.call import AttentionKind
from attndrop_repro.methods.taps import AttentionTap


@adapter(order=20)
def find(tree: Tree, path: str, module: nn.Module) -> list[Found] | None:
    """An attention of torch, and its output projection.

    Raises:
        AttndropError: It appends keys of its own to the sequence.
    """
    if type(module).forward is not nn.MultiheadAttention.forward:
        return None
    assert isinstance(module, nn.MultiheadAttention)
    if module.bias_k is not None or module.add_zero_attn:
        option = "add_zero_attn" if module.add_zero_attn else "add_bias_kv"
        raise AttndropError(
            f"{type(module).__name__} at {path!r} has {option}=True, keys that are no tokens: no "
            "method is defined on those; build the model without it"
        )
    kind = _kind(tree, path, module)
    packed = module._qkv_same_embed_dim
    attention = Found(
        module, path, attention_class, "attention", inputs=("attention-input",),
        weights=("qkv",) if packed else ("q", "k", "v"), kind=kind, heads=module.num_heads,
    )  # fmt: skip
    return [attention, *around_attention(tree, path, kind=kind, residual=tree.ends_branch(path))]


@adapter(order=21)
def find_layer(tree: Tree, path: str, module: nn.Module) -> list[Found] | None:
    """The feed-forward layers of a Transformer layer of torch, which may put the sequence first."""
    if not isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
        return None
    return list(
        feed_forward(
            tree, path, module, residual=True, sequence_first=not module.self_attn.batch_first
        )
    )


def attention_class(base: type[nn.Module]) -> type[nn.Module]:
    """A `nn.MultiheadAttention` whose training forward lets the method in."""

    class MultiheadAttention(base):  # type: ignore[misc, valid-type]
        def forward(
            self,
            query: Tensor,
            key: Tensor,
            value: Tensor,
            key_padding_mask: Tensor | None = None,
            need_weights: bool = True,
            attn_mask: Tensor | None = None,
            average_attn_weights: bool = True,
            is_causal: bool = False,
        ) -> tuple[Tensor, Tensor | None]:
            if not at_work(self):
                return super().forward(  # type: ignore[no-any-return]
                    query, key, value, key_padding_mask, need_weights, attn_mask,
                    average_attn_weights, is_causal,
                )  # fmt: skip
            bound: Bound = self.__dict__[BOUND]
            runtime = bound.runtime
            runtime.enter(bound.site, query)
            batched, itself, shared = query.dim() == 3, key is query, value is key
            turn = batched and not self.batch_first
            if key_padding_mask is not None and not batched:
                key_padding_mask = key_padding_mask.unsqueeze(0)
            query = runtime.hidden(bound.inputs, _batch_first(query, turn))
            key = query if itself else _batch_first(key, turn)
            value = key if shared else _batch_first(value, turn)
            q, k, v = _project(self, bound, query, key, value)
            bias, allowed = _masks(key_padding_mask, attn_mask, self.num_heads, is_causal)
            call = AttentionCall(
                q, k, v, _site(bound, itself), scale=1 / math.sqrt(self.head_dim), bias=bias,
                allowed=allowed, causal=is_causal, dropout_p=self.dropout,
                x=query, memory=None if itself and shared else key,
            )  # fmt: skip
            tap = None
            if "attention" in runtime.wanted:
                # values from elsewhere than the keys have no place in a tap
                x = query if shared else None
                tap = AttentionTap(call, x, *_weights(self))
            weights = None
            if need_weights:
                output, weights = runtime.attention_weights(call, tap)
                weights = weights.mean(dim=1) if average_attn_weights else weights
            else:
                changed = runtime.attention_output(call, tap)
                output = call.run() if changed is None else changed
            output = self.out_proj(output.transpose(1, 2).flatten(2))
            if not batched:
                return output.squeeze(0), None if weights is None else weights.squeeze(0)
            return output.transpose(0, 1) if turn else output, weights

    return MultiheadAttention


def _batch_first(t: Tensor, turn: bool) -> Tensor:
    """(B, N, C) from (N, B, C), from (B, N, C) as it is, or from (N, C) without a batch."""
    if t.dim() == 2:
        return t.unsqueeze(0)
    return t.transpose(0, 1) if turn else t


def _project(
    module: nn.MultiheadAttention, bound: Bound, query: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, ...]:
    """Queries, keys and values by head, (B, H, N, D)."""
    weights: Sequence[Tensor] = _weights(module)
    if bound.runtime.weighs:
        weigh = bound.runtime.method.weight
        if len(bound.weights) == 1:
            weights = weigh(bound.weights[0], module.in_proj_weight).chunk(3)
        else:
            weights = [weigh(site, w) for site, w in zip(bound.weights, weights, strict=True)]
    biases = (None,) * 3 if module.in_proj_bias is None else module.in_proj_bias.chunk(3)
    tokens = (query, key, value)
    projected = [F.linear(x, w, b) for x, w, b in zip(tokens, weights, biases, strict=True)]
    heads = (module.num_heads, module.head_dim)
    return tuple(t.reshape(*t.shape[:-1], *heads).transpose(1, 2) for t in projected)


def _weights(module: nn.MultiheadAttention) -> tuple[Tensor, Tensor, Tensor]:
    if module._qkv_same_embed_dim:
        w_q, w_k, w_v = module.in_proj_weight.chunk(3)
        return w_q, w_k, w_v
    return module.q_proj_weight, module.k_proj_weight, module.v_proj_weight


def _masks(
    key_padding: Tensor | None, attention: Tensor | None, heads: int, causal: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Torch's two masks as a bias and a boolean, both broadcastable to (B, H, Q, K).

    Args:
        key_padding: (B, K), True where a key is padding; or additive.
        attention: (Q, K) or (B * H, Q, K), True where attention is forbidden; or additive.
        heads: H.
        causal: Whether the attention mask is the causal one, and so nothing besides the flag.
    """
    if causal:
        attention = None
    elif attention is not None and attention.dim() == 3:
        attention = attention.reshape(-1, heads, *attention.shape[-2:])
    if key_padding is not None:
        key_padding = key_padding[:, None, None, :]
    bias: Tensor | None = None
    allowed: Tensor | None = None
    for mask in (key_padding, attention):
        if mask is None:
            continue
        more, keep = split_mask(~mask if mask.dtype == torch.bool else mask)
        bias = more if bias is None else bias if more is None else bias + more
        allowed = keep if allowed is None else allowed if keep is None else allowed & keep
    return bias, allowed


def _site(bound: Bound, itself: bool) -> Site:
    """Its site; where keys are not the queries' tokens it is a cross-attention."""
    assert bound.site is not None
    if itself or bound.site.kind == "cross":
        return bound.site
    return replace(bound.site, kind="cross")


def _kind(tree: Tree, path: str, module: nn.Module) -> AttentionKind:
    parent = next((around for _, around in tree.ancestors(path)), None)
    if not isinstance(parent, nn.TransformerDecoderLayer):
        return "encoder-self"
    return "cross" if module is parent.multihead_attn else "decoder-self"
