"""Attention calls for the tests of methods, and the blur of logits as its definition says."""

from __future__ import annotations

import torch
from torch import Tensor

from attndrop_repro.methods import AttentionCall, Method, Site, Step, build


def make_call(
    batch: int = 2,
    heads: int = 3,
    queries: int = 6,
    keys: int | None = None,
    width: int = 4,
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    bias: tuple[int, ...] | None = None,
    kind: str = "encoder-self",
    prefix_tokens: int = 0,
    layer: int = 0,
    layers: int = 1,
    **fields: object,
) -> AttentionCall:
    """A random call whose tensors want gradients; `bias` is the shape of one."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Tensor:
        x = torch.randn(*shape, generator=generator, dtype=torch.float64)
        return x.to(dtype).requires_grad_()

    keys = queries if keys is None else keys
    site = Site(
        "attention", layer, layers, "attn", kind=kind, heads=heads, prefix_tokens=prefix_tokens
    )  # type: ignore[arg-type]
    q = random(batch, heads, queries, width)
    k, v = random(batch, heads, keys, width), random(batch, heads, keys, width)
    extra = {} if bias is None else {"bias": random(*bias)}
    return AttentionCall(q, k, v, site, scale=width**-0.5, **extra, **fields)  # type: ignore[arg-type]


def ready(name: str, call: AttentionCall, seed: int = 0, **settings: object) -> Method:
    """A method that has begun a step, with its draws from `seed` on."""
    method = build(name, settings)
    site = call.site
    sites = [
        Site("attention", i, site.layers, "attn", site.kind, site.heads, site.prefix_tokens)
        for i in range(site.layers)
    ]
    method.prepare(sites)
    torch.manual_seed(seed)
    method.begin_step(Step(attention=sites))
    return method


def output(method: Method, call: AttentionCall) -> Tensor:
    """The attention under a method, as an adapter runs it."""
    return method.attend(method.rewrite(call))


def grads(y: Tensor, call: AttentionCall, seed: int = 0) -> list[Tensor]:
    """Gradients of a random functional of `y` with respect to what the call holds."""
    weight = torch.randn(
        y.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    wanted = [x for x in (call.q, call.k, call.v, call.bias) if x is not None]
    found = torch.autograd.grad((y * weight).sum(), wanted, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(wanted, found, strict=True)]


def visible(call: AttentionCall) -> Tensor:
    """The call's mask in full."""
    mask = call.visible()
    full = torch.ones(call.shape, dtype=torch.bool)
    return full if mask is None else full & mask


def blurred_logits(
    call: AttentionCall,
    kernel: Tensor,
    *,
    columns: bool = False,
    edges: str = "zero",
    bias: str = "after",
    skip_prefix_keys: bool = False,
    skip_prefix_queries: bool = False,
    past_only: bool = False,
) -> Tensor:
    """Attention output with blurred logits, entry by entry: masked logits count as 0.

    `kernel` is (w,) or (B, H, w).
    """
    see, logits = visible(call), call.q @ call.k.transpose(-2, -1) * call.scale
    if call.bias is not None and bias == "with_logits":
        logits = logits + call.bias
    kernel = kernel.expand(*call.shape[:2], kernel.shape[-1])
    prefix = call.site.prefix_tokens
    first_key = prefix if skip_prefix_keys else 0
    first_query = prefix if skip_prefix_queries else 0
    _, _, queries, keys = call.shape
    radius = kernel.shape[-1] // 2

    def along_keys(i: int, j: int) -> Tensor:
        total, mass = torch.zeros(call.shape[:2], dtype=logits.dtype), 0.0
        for o in range(-radius, radius + 1):
            if first_key <= j + o < keys and not (past_only and o > 0):
                weight = kernel[..., o + radius] * see[..., i, j + o]
                total, mass = total + weight * logits[..., i, j + o], mass + weight
        return total / mass.masked_fill(mass == 0, 1.0) if edges == "renormalised" else total

    rows = [
        torch.stack(
            [
                logits[..., i, j] if i < first_query or j < first_key else along_keys(i, j)
                for j in range(keys)
            ],
            -1,
        )
        for i in range(queries)
    ]
    blurred = torch.stack(rows, -2)
    if columns:
        real = see.any(-2)  # a token that is nobody's key is padding
        new = []
        for i in range(queries):
            if i < first_query:
                new.append(blurred[..., i, :])
                continue
            total, mass = torch.zeros_like(blurred[..., i, :]), 0.0
            for o in range(-radius, radius + 1):
                if first_query <= i + o < queries:
                    weight = kernel[..., o + radius, None] * see[..., i + o, :]
                    weight = weight * real[..., i + o, None]
                    total, mass = total + weight * blurred[..., i + o, :], mass + weight
            new.append(total / mass.masked_fill(mass == 0, 1.0) if edges != "zero" else total)
        blurred = torch.stack(new, -2)
    if call.bias is not None and bias == "after":
        blurred = blurred + call.bias
    weights = blurred.masked_fill(~see, -torch.inf).softmax(-1)
    return weights.nan_to_num() @ call.v
