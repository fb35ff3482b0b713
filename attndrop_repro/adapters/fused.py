"""Whatever calls torch's fused attention: timm's models, and anybody's.

The module's class is swapped; in training the library's own forward runs while the fused attention
is intercepted, and in eval mode nothing differs from the library's class.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from attndrop_repro.adapters.found import Bound, Found, adapter
from attndrop_repro.adapters.layers import at_work, running
from attndrop_repro.adapters.roles import PROJECTIONS, around_attention, linear
from attndrop_repro.adapters.sdpa import Intercept
from attndrop_repro.adapters.swap import BOUND
from attndrop_repro.adapters.tree import Tree, uses_sdpa
from attndrop_repro.config.errors import AttndropError
from attndrop_repro.functional.attention_by_rows import possible
from attndrop_repro.functional.joint_projection import joint_projection
from attndrop_repro.methods.call import AttentionCall, AttentionKind
from attndrop_repro.methods.taps import AttentionTap, Mapped

# attentions that show nobody their queries, keys and values
_KNOWN = {("timm.layers.attention", "Attention"), ("attndrop_repro.models.vit7", "Attention")}
T = TypeVar("T")
Three = tuple[T, T, T]


@adapter(order=80)
def find(tree: Tree, path: str, module: nn.Module) -> list[Found] | None:
    """An attention that uses `scaled_dot_product_attention`, and its projections."""
    if not uses_sdpa(module):
        return None
    # queries that come from elsewhere than the tokens: pooling by a learned latent
    kind: AttentionKind = (
        "cross" if isinstance(getattr(module, "latent", None), Tensor) else "encoder-self"
    )
    # what projects by convolutions takes maps, (B, C, height, width), and not tokens
    tokens = any(linear(layer) for layer in module.children())
    attention = Found(
        module, path, attention_class, "attention", kind=kind,
        inputs=("attention-input",) if tokens else (),
        heads=_heads(module), windows=True,
    )  # fmt: skip
    residual = kind != "cross" and tree.ends_branch(path)
    return [attention, *around_attention(tree, path, kind=kind, residual=residual, windows=True)]


def attention_class(base: type[nn.Module]) -> type[nn.Module]:
    """An attention whose training forward lets the method in."""
    known = (base.__module__, base.__qualname__) in _KNOWN

    class Attention(base):  # type: ignore[misc, valid-type]
        @property
        def fused_attn(self) -> bool:
            # timm's switch; of its branches the fused one can be caught
            if "fused_attn" not in self.__dict__:
                raise AttributeError("fused_attn")
            return running(self) or bool(self.__dict__["fused_attn"])

        @fused_attn.setter
        def fused_attn(self, value: bool) -> None:
            self.__dict__["fused_attn"] = value

        def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
            if not at_work(self):
                return super().forward(x, *args, **kwargs)
            bound: Bound = self.__dict__[BOUND]
            runtime = bound.runtime
            runtime.enter(bound.site, x)
            x = runtime.hidden(bound.inputs, x, windows=True)
            assert bound.site is not None

            def make_tap(call: AttentionCall) -> AttentionTap:
                if _packed_otherwise(self, intercept.mapped, call):
                    return AttentionTap(call, x, None, None, None)
                w_q, w_k, w_v = projections(self) or (None, None, None)
                made, own = mapped(self, intercept.mapped, call)
                return AttentionTap(call, x, w_q, w_k, w_v, made, own=own)

            intercept = Intercept(
                runtime, bound.site, owner=type(self).__name__, x=x,
                forbidden=_window_mask(self, args, kwargs),
                make_tap=make_tap if "attention" in runtime.wanted else None,
                weigh=(lambda weight: _weigh(self, weight)) if runtime.weighs else None,
                private=known and possible() and _unwatched(self),
            )  # fmt: skip
            bound.running = True
            try:
                with intercept:
                    output = super().forward(x, *args, **kwargs)
            finally:
                bound.running = False
            if not intercept.calls:
                raise AttndropError(
                    f"{type(self).__name__} at {bound.site.path!r} computed its attention without "
                    "torch's scaled_dot_product_attention: no method can get into it"
                )
            return output

    return Attention


def projections(module: nn.Module) -> Three[Tensor] | None:
    """(w_q, w_k, w_v), each (H*D, C), or None when they cannot be told from its layers."""
    qkv = getattr(module, "qkv", None)
    if isinstance(qkv, nn.Linear):
        proj = getattr(module, "proj", None)
        if not isinstance(proj, nn.Linear) or qkv.out_features != 3 * proj.in_features:
            return None  # grouped heads, or packed in a way of its own
        w_q, w_k, w_v = qkv.weight.chunk(3)
        return w_q, w_k, w_v
    for names in (("q_proj", "k_proj", "v_proj"), ("q", "k", "v"), ("query", "key", "value")):
        layers = [getattr(module, name, None) for name in names]
        q, k, v = layers
        if all(isinstance(layer, nn.Linear) for layer in layers):
            return q.weight, k.weight, v.weight  # type: ignore[union-attr]
    return None


def mapped(
    module: nn.Module, by_weight: Mapping[int, Mapped], call: AttentionCall
) -> tuple[Three[Mapped] | None, bool]:
    """What the projections made of the tokens, or None where one is not known.

    And whether the call's queries, keys and values are just that.

    Args:
        module: The attention.
        by_weight: What linear layers made of the tokens, by the identity of their weights.
        call: Its call.
    """
    if isinstance(qkv := getattr(module, "qkv", None), nn.Linear):
        made = by_weight.get(id(qkv.weight))
        return (None, False) if made is None else _thirds(made, call)
    q, k, v = (by_weight.get(id(weight)) for weight in projections(module) or (None,) * 3)
    return (None if q is None or k is None or v is None else (q, k, v)), False


def _packed_otherwise(
    module: nn.Module, by_weight: Mapping[int, Mapped], call: AttentionCall
) -> bool:
    """Whether its values are seen not to be the last third of what one layer makes: MaxViT's."""
    qkv = getattr(module, "qkv", None)
    made = by_weight.get(id(qkv.weight)) if isinstance(qkv, nn.Linear) else None
    if made is None or not possible():
        return False
    y, v = made.y, call.v
    if v.untyped_storage().data_ptr() != y.untyped_storage().data_ptr():
        return False  # a copy tells nothing
    return bool(v.storage_offset() - y.storage_offset() != 2 * (y.shape[-1] // 3))


def _thirds(made: Mapped, call: AttentionCall) -> tuple[Three[Mapped], bool]:
    """Queries, keys and values apart, of a layer that makes them side by side."""
    q, k, v = made.y.view(*made.y.shape[:-1], 3, -1).unbind(-2)
    joint = joint_projection(call.q, call.k, call.v) if possible() else None
    own = joint is not None and joint.data_ptr() == made.y.data_ptr()
    if own:
        # the views that the attention took: gradients meet there, before they are stacked
        q, k, v = (x.transpose(1, 2).flatten(2) for x in (call.q, call.k, call.v))
    b_q, b_k, b_v = (None,) * 3 if made.bias is None else made.bias.chunk(3)
    at = made.version
    return (Mapped(q, b_q, at), Mapped(k, b_k, at), Mapped(v, b_v, at)), own


def _unwatched(module: nn.Module) -> bool:
    """Whether no hook and no foreign code sees what the projection of queries to values returns."""
    qkv = getattr(module, "qkv", None)
    if type(qkv) is not nn.Linear and not (
        isinstance(qkv, nn.Linear) and BOUND in qkv.__dict__ and _base(qkv) is nn.Linear
    ):
        return False
    norms = [getattr(module, name, None) for name in ("q_norm", "k_norm")]
    return (
        all(norm is None or type(norm) is nn.Identity for norm in norms)
        and not any(layer._forward_hooks for layer in (qkv, *norms) if layer is not None)
        and not torch.nn.modules.module._global_forward_hooks
    )


def _base(module: nn.Module) -> type:
    """The class that a swapped module had before."""
    return type(module).__bases__[0]


def _weigh(module: nn.Module, weight: Tensor) -> Tensor:
    """BEiT and EVA give their layer's weight to `F.linear` themselves, past the layer's forward."""
    for name in PROJECTIONS:
        layer = getattr(module, name, None)
        if isinstance(layer, nn.Linear) and layer.weight is weight:
            bound: Bound | None = layer.__dict__.get(BOUND)
            if bound is not None and bound.site is not None and not bound.weighed:
                return bound.runtime.method.weight(bound.site, weight)
    return weight


def _window_mask(module: nn.Module, args: Any, kwargs: Any) -> Tensor | None:
    """Where Swin's mask of shifted windows forbids, (windows, Q, K): it says so by -100."""
    if not hasattr(module, "window_area"):
        return None
    mask = kwargs.get("mask", args[0] if args else None)
    return mask < -50 if isinstance(mask, Tensor) and mask.is_floating_point() else None


def _heads(module: nn.Module) -> int:
    for name in ("num_heads", "n_heads", "n_head", "heads", "nhead"):
        heads = getattr(module, name, None)
        if isinstance(heads, int):
            return heads
    return 0
