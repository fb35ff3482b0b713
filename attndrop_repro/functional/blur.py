"""Gaussian blur along the token axis.

Convolution is linear, G * (q_i . k_j) = q_i . (G * k)_j: blurring the rows of the logits is
blurring the keys, and blurring rows and columns is blurring keys and queries. So no function here
ever sees logits. For a kernel of odd width w only tokens at most w // 2 away matter.

Shapes: B batch, H heads, N tokens, D features, w width of the kernel; leading axes broadcast.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Edges = Literal["zero", "renormalised"]

# Below this sigma the neighbours' weights underflow to 0 in float64 too: the identity (A10, E1).
SMALLEST_SIGMA = 1e-3


def gaussian_kernel(sigma: Tensor, w: int) -> Tensor:
    """Normalised Gaussian weights at the offsets -(w // 2) ... w // 2.

    Args:
        sigma: Standard deviations in tokens, any shape (...), >= 0; 0 is the identity, its limit.
        w: Width, odd.

    Returns:
        Weights (..., w) that sum to 1.

    Source: AttentionDrop, section 3.2.
    """
    offsets = torch.arange(w, dtype=sigma.dtype, device=sigma.device) - w // 2
    wide = sigma > SMALLEST_SIGMA
    ratio = offsets / torch.where(wide, sigma, 1.0)[..., None]
    weights = torch.where(wide[..., None], torch.exp(-0.5 * ratio**2), (offsets == 0).to(ratio))
    return weights / weights.sum(-1, keepdim=True)


def blur(
    x_bhnd: Tensor,
    kernel: Tensor,
    *,
    linked: Tensor | None = None,
    left_out: int = 0,
    edges: Edges = "zero",
) -> Tensor:
    """Blurs keys or queries along the tokens.

    Args:
        x_bhnd: (B, H, N, D).
        kernel: Symmetric weights (..., w), leading axes broadcastable to (B, H).
        linked: Boolean, broadcastable to (B, H, w, N): whether token j gets anything from its
            neighbour at an offset (`neighbours`). None: from all in the sequence.
        left_out: So many tokens at the start are not blurred, and blur into no other (A7).
        edges: What is missing counts as 0, or the rest is scaled to sum to 1 (A11).

    Returns:
        (B, H, N, D).
    """
    # half precision is summed in float32 and rounded once
    exact = x_bhnd.to(torch.promote_types(x_bhnd.dtype, torch.float32))
    kernel = kernel.to(exact.dtype)
    if linked is None and not left_out and edges == "zero" and not kernel.requires_grad:
        quick: Tensor = _Blur.apply(exact, kernel)
        return quick.to(x_bhnd.dtype)
    weights = _weights(kernel, exact.shape[-2], linked, left_out, edges)
    middle, n = weights.shape[-2] // 2, exact.shape[-2]
    radius = min(middle, n - 1)
    padded = F.pad(exact, (0, 0, radius, radius))
    out = exact * weights[..., middle, :, None]
    for offset in [o for step in range(1, radius + 1) for o in (-step, step)]:
        shifted = padded[..., radius + offset : radius + offset + n, :]
        out = out + shifted * weights[..., middle + offset, :, None]
    return out.to(x_bhnd.dtype)


class _Blur(torch.autograd.Function):
    """The quick form: with zero edges and a symmetric kernel the blur is its own adjoint."""

    @staticmethod
    def forward(x: Tensor, kernel: Tensor) -> Tensor:
        radius, n = kernel.shape[-1] // 2, x.shape[-2]
        taps = kernel[..., None, None].unbind(-3)
        out = x * taps[radius]
        for step in range(1, min(radius, n - 1) + 1):
            # in place into a tensor of our own: one pass over memory for each neighbour
            out[..., step:, :].addcmul_(x[..., :-step, :], taps[radius - step])
            out[..., :-step, :].addcmul_(x[..., step:, :], taps[radius + step])
        return out

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, int | None], x: Tensor, kernel: Tensor
    ) -> tuple[Tensor, int]:
        x = x[None] if in_dims[0] is None else x.movedim(in_dims[0], 0)
        kernel = kernel[None] if in_dims[1] is None else kernel.movedim(in_dims[1], 0)
        ones = [1] * (x.dim() - 1 - kernel.dim())  # the mapped axis goes before those of x
        kernel = kernel.view(kernel.shape[0], *ones, *kernel.shape[1:])
        return _Blur.apply(x.expand(info.batch_size, *x.shape[1:]), kernel), 0

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (kernel,) = ctx.saved_tensors
        return _Blur.apply(grad, kernel), None


def _weights(kernel: Tensor, n: int, linked: Tensor | None, left_out: int, edges: Edges) -> Tensor:
    """How much of each neighbour every token gets, (..., w, N): the kernel with exceptions."""
    w = kernel.shape[-1]
    token = torch.arange(n, device=kernel.device)
    offset = torch.arange(w, device=kernel.device)[:, None] - w // 2
    source = token + offset
    inside = (source >= 0) & (source < n)
    if left_out:
        inside = inside & (source >= left_out) & (token >= left_out)
    if linked is not None:
        inside = inside & linked
    weights = torch.where(inside | (offset == 0), kernel[..., None], 0.0)
    if left_out:
        weights = torch.where((token < left_out) & (offset == 0), 1.0, weights)
    return weights / weights.sum(-2, keepdim=True) if edges == "renormalised" else weights
