"""timm models, by capability: what runs `scaled_dot_product_attention` in training is caught."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from attndrop_repro.adapters.runtime import Runtime
from attndrop_repro.adapters.sdpa import Intercept
from attndrop_repro.adapters.swap import BOUND, Swap
from attndrop_repro.methods import Site
from attndrop_repro.methods.call import AttentionCall, AttentionTap


@dataclass
class Bound:
    """What a swapped module is bound to."""

    runtime: Runtime
    site: Site
    input_site: Site | None = None
    output_sites: tuple[Site, ...] = ()


def attention_class(base: type[nn.Module]) -> type[nn.Module]:
    """A timm attention whose training forward lets the method in."""

    class Attention(base):  # type: ignore[misc, valid-type]
        @property
        def fused_attn(self) -> bool:
            # in training the fused branch is the one that calls SDPA, and so can be caught
            return True if _at_work(self) else bool(self.__dict__["fused_attn"])

        @fused_attn.setter
        def fused_attn(self, value: bool) -> None:
            self.__dict__["fused_attn"] = value

        def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
            if not _at_work(self):
                return super().forward(x, *args, **kwargs)
            bound: Bound = self.__dict__[BOUND]
            if bound.input_site is not None:
                x = bound.runtime.method.hidden(bound.input_site, x)
            make_tap = None
            if "attention" in bound.runtime.wanted:

                def make_tap(call: AttentionCall) -> AttentionTap:
                    return AttentionTap(call, x, *projections(self))

            with Intercept(bound.runtime, bound.site, make_tap):
                return super().forward(x, *args, **kwargs)

    return Attention


def linear_class(base: type[nn.Module]) -> type[nn.Module]:
    """A linear layer whose weight, input and output the method may change in training."""

    class Linear(base):  # type: ignore[misc, valid-type]
        def forward(self, x: Tensor) -> Tensor:
            if not _at_work(self):
                return super().forward(x)  # type: ignore[no-any-return]
            bound: Bound = self.__dict__[BOUND]
            method = bound.runtime.method
            if bound.input_site is not None:
                x = method.hidden(bound.input_site, x)
            bound.runtime.linear_tap(bound.site, x, self.weight)
            y = F.linear(x, method.weight(bound.site, self.weight), self.bias)
            for site in bound.output_sites:
                y = method.hidden(site, y)
            return y

    return Linear


def _at_work(module: nn.Module) -> bool:
    bound = module.__dict__.get(BOUND)
    return bound is not None and module.training and not bound.runtime.idle


def projections(module: nn.Module) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """(w_q, w_k, w_v), each (H*D, C)."""
    qkv = getattr(module, "qkv", None)
    if isinstance(qkv, nn.Linear):
        w_q, w_k, w_v = qkv.weight.chunk(3)
        return w_q, w_k, w_v
    q, k, v = (getattr(module, f"{name}_proj", None) for name in "qkv")
    return tuple(None if layer is None else layer.weight for layer in (q, k, v))  # type: ignore[return-value]


@dataclass
class Found:
    """A module to swap and what it is."""

    module: nn.Module
    make: Swap
    path: str
    places: dict[str, str]  # role in Bound -> place
    heads: int = 0
    prefix_tokens: int = 0


def find(model: nn.Module) -> Iterator[Found]:
    """Every site of a timm model, in order of depth."""
    prefix = int(getattr(model, "num_prefix_tokens", 0) or 0)
    for path, module in model.named_modules():
        if "fused_attn" in module.__dict__ or hasattr(type(module), "fused_attn"):
            yield Found(
                module, attention_class, path, {"site": "attention", "input": "attention-input"},
                heads=int(getattr(module, "num_heads", 0)), prefix_tokens=prefix,
            )  # fmt: skip
            for name in ("qkv", "q", "k", "v", "q_proj", "k_proj", "v_proj", "proj"):
                layer = getattr(module, name, None)
                if isinstance(layer, nn.Linear):
                    places = {"site": name.removesuffix("_proj")}
                    if name == "proj":
                        places["output"] = "proj-output"
                    yield Found(layer, linear_class, f"{path}.{name}", places)
        elif hasattr(module, "fc1") and hasattr(module, "fc2"):
            yield Found(module.fc1, linear_class, f"{path}.fc1", {"site": "fc1"})
            yield Found(
                module.fc2, linear_class, f"{path}.fc2",
                {"site": "fc2", "input": "mlp-hidden", "output": "mlp-output"},
            )  # fmt: skip
