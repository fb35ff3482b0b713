"""Hugging Face models, through the attention interface of `transformers`.

An attention module there asks its config which implementation to call. The swapped class answers
``attndrop`` while it trains, a function registered once with `AttentionInterface`, and otherwise
what the config says: so the model's config is not changed (several models may share one), and in
eval mode, in `generate` and after `remove` the library's own code runs with its own masks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from attndrop_repro.adapters.found import Bound, Found, adapter
from attndrop_repro.adapters.fused import projections
from attndrop_repro.adapters.layers import at_work, running
from attndrop_repro.adapters.roles import around_attention
from attndrop_repro.adapters.sdpa import repeat_heads, split_mask
from attndrop_repro.adapters.swap import BOUND
from attndrop_repro.adapters.tree import Tree, names_of
from attndrop_repro.config.errors import AttndropError
from attndrop_repro.methods import AttentionCall
from attndrop_repro.methods.call import AttentionKind
from attndrop_repro.methods.taps import AttentionTap

NAME = "attndrop"
SUPPORTED = ("sdpa", "eager")
# what an attention may be asked for beyond its masks; none of it has a place in an AttentionCall
UNKNOWN = ("softcap", "s_aux", "head_mask")


@adapter(order=10)
def find(tree: Tree, path: str, module: nn.Module) -> list[Found] | None:
    """An attention that calls what its config names, and its projections.

    Raises:
        AttndropError: The config names an implementation whose masks are not known here.
    """
    if "ALL_ATTENTION_FUNCTIONS" not in names_of(type(module)):
        return None
    config = getattr(module, "config", None)
    implementation = getattr(config, "_attn_implementation", None)
    if implementation not in SUPPORTED:
        raise AttndropError(
            f"{type(module).__name__} at {path!r} runs {implementation!r}, which no method can "
            "get into: call model.set_attn_implementation('sdpa') first"
        )
    if getattr(module, "attn_logit_softcapping", None) is not None:
        raise AttndropError(
            f"{type(module).__name__} at {path!r} has a soft-cap on its logits, which no "
            "method honours"
        )
    kind = _kind(module)
    attention = Found(
        module, path, attention_class, "attention", inputs=("attention-input",), kind=kind,
        heads=_heads(module),
    )  # fmt: skip
    return [attention, *around_attention(tree, path, kind=kind, residual=tree.ends_branch(path))]


class View:
    """A config that names another attention implementation and is the same in all else."""

    def __init__(self, config: Any) -> None:
        self._config, self._attn_implementation = config, NAME

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_config"], name)


def attention_class(base: type[nn.Module]) -> type[nn.Module]:
    """An attention that asks for the method's implementation while it trains."""
    _register()

    class Attention(base):  # type: ignore[misc, valid-type]
        @property
        def config(self) -> Any:
            config = self.__dict__["config"]
            return View(config) if running(self) else config

        @config.setter
        def config(self, value: Any) -> None:
            self.__dict__["config"] = value

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            if not at_work(self):
                return super().forward(*args, **kwargs)
            bound: Bound = self.__dict__[BOUND]
            named = "" if args else _first_tensor(kwargs)
            x = kwargs.pop(named) if named else args[0]
            bound.runtime.enter(bound.site, x)
            x = bound.runtime.hidden(bound.inputs, x)
            if named:
                kwargs[named] = x
            else:
                args = (x, *args[1:])
            bound.x, bound.memory, bound.running = x, _memory(bound, kwargs), True
            try:
                return super().forward(*args, **kwargs)
            finally:
                bound.x, bound.memory, bound.running = None, None, False

    return Attention


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """The implementation that `transformers` calls: one attention through the module's method.

    Args:
        module: A swapped attention, in training.
        query: (B, H, Q, D).
        key: (B, groups, K, D).
        value: (B, groups, K, D).
        attention_mask: Boolean, True where attention is allowed, or additive; None when there is
            nothing to mask but the future.
        dropout: Probability of dropping an attention weight.
        scaling: The factor on Q K^T.
        is_causal: Whether the future is masked where there is no mask; None: as the module says.
        position_bias: Additive bias (T5).
        kwargs: What else the library passes on.

    Returns:
        (B, Q, H, D), and the weights where the model's own implementation returns them.

    Raises:
        AttndropError: The library asks for something that a method knows nothing of.
    """
    bound: Bound = module.__dict__[BOUND]
    assert bound.site is not None
    for name in UNKNOWN:
        if kwargs.get(name) is not None:
            raise AttndropError(
                f"{type(module).__name__} at {bound.site.path!r} uses {name!r}, which no method "
                "honours; call remove() and use another model"
            )
    call = _call(module, bound, query, key, value, attention_mask, is_causal, position_bias)
    call = call.replace(
        dropout_p=dropout,
        scale=query.shape[-1] ** -0.5 if scaling is None else scaling,
        x=bound.x,
        memory=bound.memory,
    )
    runtime, weights = bound.runtime, None
    tap = _tap(module, call) if "attention" in runtime.wanted else None
    if module.__dict__["config"]._attn_implementation == "eager":
        output, weights = runtime.attention_weights(call, tap)
    else:
        changed = runtime.attention_output(call, tap)
        output = call.run() if changed is None else changed
    return output.transpose(1, 2).contiguous(), weights


def _call(
    module: nn.Module, bound: Bound, query: Tensor, key: Tensor, value: Tensor,
    mask: Tensor | None, is_causal: bool | None, position_bias: Tensor | None,
) -> AttentionCall:  # fmt: skip
    assert bound.site is not None
    if is_causal is None:
        is_causal = bool(getattr(module, "is_causal", True))
    queries, keys = query.shape[-2], key.shape[-2]
    if mask is not None and mask.shape[-1] > keys:
        mask = mask[..., :keys]
    bias, allowed = split_mask(mask)
    if position_bias is not None:
        bias = position_bias if bias is None else bias + position_bias
    return AttentionCall(
        query, repeat_heads(key, query), repeat_heads(value, query), bound.site, scale=1.0,
        bias=bias, allowed=allowed, causal=is_causal and mask is None and queries > 1,
    )  # fmt: skip


def _first_tensor(kwargs: Mapping[str, Any]) -> str:
    """The argument that holds the tokens: ``hidden_states`` nearly everywhere."""
    if "hidden_states" in kwargs:
        return "hidden_states"
    return next(name for name, value in kwargs.items() if isinstance(value, Tensor))


def _memory(bound: Bound, kwargs: Mapping[str, Any]) -> Tensor | None:
    """The encoder's tokens, in a cross-attention."""
    if bound.site is None or bound.site.kind != "cross":
        return None
    names = ("key_value_states", "encoder_hidden_states")
    return next((kwargs[name] for name in names if kwargs.get(name) is not None), None)


def _tap(module: nn.Module, call: AttentionCall) -> AttentionTap:
    weights = projections(module)
    if weights is None or (call.site.kind == "cross" and call.memory is None):
        return AttentionTap(call, None, None, None, None)
    w_q, w_k, w_v = (_every_head(weight, call) for weight in weights)
    return AttentionTap(call, call.x, w_q, w_k, w_v)


def _every_head(weight: Tensor, call: AttentionCall) -> Tensor:
    """The projection of grouped heads, once for every query head: (H*D, C)."""
    by_head = weight.reshape(-1, call.q.shape[-1], weight.shape[-1])
    times = call.q.shape[-3] // by_head.shape[0]
    return weight if times == 1 else by_head.repeat_interleave(times, dim=0).flatten(0, 1)


def _kind(module: nn.Module) -> AttentionKind:
    """By what the library says of the module: causal, or part of a decoder and not causal."""
    if getattr(module, "is_causal", True):
        return "decoder-self"
    decoder = getattr(module, "is_decoder", None)
    if decoder is None:
        decoder = getattr(getattr(module, "config", None), "is_decoder", False)
    return "cross" if decoder else "encoder-self"


def _heads(module: nn.Module) -> int:
    for holder in (module, getattr(module, "config", None)):
        for name in ("num_heads", "num_attention_heads", "n_heads"):
            heads = getattr(holder, name, None)
            if isinstance(heads, int):
                return heads
    return 0


def _register() -> None:
    """Makes the implementation known to `transformers`, once."""
    from transformers import AttentionInterface

    if NAME not in AttentionInterface().valid_keys():
        AttentionInterface.register(NAME, attention)
