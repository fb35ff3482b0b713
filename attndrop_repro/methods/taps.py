"""What penalties see of a forward pass.

Shapes: B batch, H heads, Q queries, N tokens, D width of a head, C model width.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from attndrop_repro.methods.call import AttentionCall, Site


@dataclass(frozen=True)
class Mapped:
    """What a linear layer made of tokens X in this pass, so that nobody need do it again.

    Attributes:
        y: X W^T + b, (B, ..., out).
        bias: b, or None.
        version: How often `y` had been written to by then.
    """

    y: Tensor
    bias: Tensor | None
    version: int

    @classmethod
    def of(cls, y: Tensor, bias: Tensor | None) -> Mapped | None:
        """Noted before anybody can write into it; None in inference mode: nothing is counted."""
        if not torch.compiler.is_compiling() and torch.is_inference_mode_enabled():
            return None
        return cls(y, bias, y._version)

    def unbiased(self) -> Tensor | None:
        """X W^T, (B, ..., out); None: an activation was written over it.

        In bfloat16 if the layer computes so; not in float16, too narrow for what is made of it.
        """
        if self.y._version != self.version:
            return None
        y = self.y.float() if self.y.dtype == torch.float16 else self.y
        # not a difference: its backward would negate all of y's gradient for the bias
        return y if self.bias is None else y + self.bias.neg().to(y.dtype)


@dataclass
class AttentionTap:
    """What an attention saw in this pass, for penalties.

    Attributes:
        call: The call as the model made it, before any perturbation.
        x: Tokens before the projections, (B, N, C), or None where the adapter cannot see them;
            those of the queries if keys and values come from others (``call.memory``).
        w_q: Query projection, (H*D, C); likewise `w_k` and `w_v`.
        mapped: What these three made of the tokens, (B, N, H*D) each, or None where not known.
        output: What came of the call, (B, H, Q, D), where no method changed it, else None.
        own: Whether the call's q, k and v are what `mapped` made, untouched.
    """

    call: AttentionCall
    x: Tensor | None
    w_q: Tensor | None
    w_k: Tensor | None
    w_v: Tensor | None
    mapped: tuple[Mapped, Mapped, Mapped] | None = None
    output: Tensor | None = None
    own: bool = False


@dataclass(frozen=True)
class LinearTap:
    """What a linear layer saw in this pass.

    Attributes:
        site: Where it is.
        x: Its input, (B, ..., in).
        weight: (out, in).
        real: Boolean (B, ...): False at padding; None where no position is known to be any.
        mapped: What the layer made of `x`; None where it is not known to be x W^T + b.
    """

    site: Site
    x: Tensor
    weight: Tensor
    real: Tensor | None = None
    mapped: Mapped | None = None


@dataclass
class Taps:
    """All taps of one forward pass, in order of execution.

    Attributes:
        attention: Those of attentions.
        linear: Those of linear layers.
        batch: Examples in the batch, 0 when not known; windowed attention sees more rows.
    """

    attention: list[AttentionTap] = field(default_factory=list)
    linear: list[LinearTap] = field(default_factory=list)
    batch: int = 0

    def real(self, shape: tuple[int, ...]) -> Tensor | None:
        """The padding of the last self-attention, if its tokens, (B, N), have this shape."""
        for tap in reversed(self.attention):
            if tap.call.site.kind != "cross":
                real = tap.call.real_keys()
                return real if real is not None and tuple(real.shape) == shape else None
        return None
