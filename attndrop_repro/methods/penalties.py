"""What explicit dropout and Arora's penalty have in common: targets, coefficients, taps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import torch
from pydantic import field_validator
from torch import Tensor

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.functional.attention_mass import attention_mass
from attndrop_repro.functional.explicit_dropout import masked, wide
from attndrop_repro.methods.call import AttentionCall, Site, Step
from attndrop_repro.methods.coefficient import LayerCoefficient, LayerProbability, at_work, now
from attndrop_repro.methods.scope import Scope, Scoped
from attndrop_repro.methods.settings import setting
from attndrop_repro.methods.taps import AttentionTap, LinearTap, Mapped, Taps

Target = Literal["q", "k", "v", "av", "ff"]


class PenaltySettings(Scope):
    """Settings of a penalty on what dropping features would do."""

    p: LayerProbability = setting(
        0.2, "Probability that a feature would be dropped.",
        symbol="p", unit="probability", source="Agrawal et al., section 4.1 (0.2)",
    )  # fmt: skip
    targets: tuple[Target, ...] = setting(
        ("v", "ff"),
        "Where features would be dropped: on their way to queries, keys, values, attended values "
        "(av), and into both feed-forward layers (ff).",
        source="Agrawal et al., sections 3.2 and 3.3", min_length=1,
    )  # fmt: skip
    lam: LayerCoefficient = setting(
        0.001, "Coefficient of every target's penalty: a number, a list by layer, a schedule.",
        symbol="lambda", source="Agrawal et al., eq. 22 and table 5; 0.0005 in the text (X3)",
    )  # fmt: skip
    lam_by_target: dict[Target, LayerCoefficient] = setting(
        {}, "Coefficients of single targets in place of lam, as in {ff: [0.001, 0.0005]}.",
        symbol="lambda", source="Agrawal et al., eq. 22",
    )  # fmt: skip

    @field_validator("targets", mode="before")
    @classmethod
    def _one_target_is_a_list(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @field_validator("targets")
    @classmethod
    def _each_once(cls, value: tuple[Target, ...]) -> tuple[Target, ...]:
        return tuple(dict.fromkeys(value))


PS = TypeVar("PS", bound=PenaltySettings)


@dataclass(frozen=True)
class Seen:
    """What a penalty needs of an attention, all there.

    Attributes:
        call: The attention as the model made it.
        x: Tokens of the queries, (B, N, C).
        real: Which of them are no padding, (B, N), or None for all. In cross-attention nothing
            tells.
        memory: Tokens of keys and values; `x` in self-attention.
        real_memory: Which of those are no padding.
        w_q: Query projection, (H D, C), without bias; likewise `w_k` and `w_v`.
        mapped: What the three projections made of the tokens, or None where it is not known.
        output: The model's own attention output, (B, H, Q, D), where no method changed it.
        known: Projections that were computed already.
        terms: Penalties that were.
    """

    call: AttentionCall
    x: Tensor
    real: Tensor | None
    memory: Tensor
    real_memory: Tensor | None
    w_q: Tensor
    w_k: Tensor
    w_v: Tensor
    mapped: tuple[Mapped, Mapped, Mapped] | None = None
    output: Tensor | None = None
    known: dict[str, Tensor | None] = field(default_factory=dict)
    terms: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, tap: AttentionTap, name: str) -> Seen:
        """From a tap, for the method of this name.

        Raises:
            AttndropError: The adapter could not see tokens or projections.
        """
        call, x, w_q, w_k, w_v = tap.call, tap.x, tap.w_q, tap.w_k, tap.w_v
        if x is None or w_q is None or w_k is None or w_v is None:
            raise AttndropError(
                f"{name} needs the tokens and projections of {call.site.path!r}, which this kind "
                "of model does not show: choose the target ff alone, or other kinds of attention"
            )
        real = call.real_keys()
        if call.memory is not None:
            return cls(call, x, None, call.memory, real, w_q, w_k, w_v)
        output = tap.output if tap.own else None
        return cls(call, x, real, x, real, w_q, w_k, w_v, tap.mapped, output)

    def projected(self, which: Literal["q", "k", "v"]) -> Tensor | None:
        """X W_q^T, memory W_k^T or memory W_v^T, (B, ..., H D), where the model has made it."""
        if self.mapped is None:
            return None
        if which not in self.known:
            self.known[which] = self.mapped["qkv".index(which)].unbiased()
        return self.known[which]

    def attended(self) -> Tensor | None:
        """A V without biases, (B, H, Q, D), if the model has made it: rows of A add to 1."""
        if self.output is None or self.call.allowed is not None or self.mapped is None:
            return None
        output, values = self.output, self.mapped[2]
        if values.y._version != values.version:
            return None
        bias = values.bias
        if bias is None:
            return output
        return output + bias.neg().to(output.dtype).view(output.shape[1], 1, -1)


class Penalty(Scoped[PS]):
    """Adds sum_layers sum_targets lambda J to the loss and perturbs nothing.

    Attention taps are always wanted, for they know which tokens are padding.
    """

    stochastic = False
    per_image = True  # whether penalties on attention are means over the rows that it sees

    def __init__(self, settings: PS) -> None:
        super().__init__(settings)
        values = {t: settings.lam_by_target.get(t, settings.lam) for t in settings.targets}
        lam = {t: at_work(value, f"{self.name}.lam of {t}") for t, value in values.items()}
        self._lam = {t: strength for t, strength in lam.items() if not strength.is_zero}
        self._attention = tuple(t for t in self._lam if t != "ff")
        needs = {"attention"} if self._attention else set()
        self.needs = frozenset(needs | ({"fc1", "fc2"} if "ff" in self._lam else set()))

    @property
    def idle(self) -> bool:
        """Whether p or all coefficients are 0 for good."""
        return super().idle or not self._lam

    def prepare(self, attention: Sequence[Site]) -> None:
        """Refuses a model where nothing is in scope or projections cannot be told apart."""
        if not self._attention:
            return
        super().prepare(attention)
        blind = [site.path for site in attention if self.settings.covers(site) and not site.width]
        if blind:
            raise AttndropError(
                f"{self.name} needs the projections of {blind[0]!r}, which this kind of model does "
                "not show: choose the target ff alone, or other kinds of attention"
            )

    def begin_step(self, step: Step) -> None:
        """Lets schedules follow the step; refuses a scope that finds nothing in the model."""
        if self._attention:
            super().begin_step(step)
        else:
            self.strength.begin(step)
        for strength in self._lam.values():
            strength.begin(step)

    def taps(self) -> frozenset[str]:
        """Attentions, and the feed-forward layers where they are a target."""
        return frozenset({"attention", *(("fc1", "fc2") if "ff" in self._lam else ())})

    def penalty(self, taps: Taps) -> Tensor:
        """The sum over layers and targets.

        Raises:
            AttndropError: The adapter cannot see what a target needs, or nothing is in scope.
        """
        terms = list(self._terms(taps))
        if not terms:
            raise AttndropError(f"{self.name} found nothing to penalise: widen its kinds or layers")
        return torch.stack(terms).sum()

    def _terms(self, taps: Taps) -> Iterator[Tensor]:
        for tap in taps.attention:
            site = tap.call.site
            if self._attention and self.settings.covers(site):
                seen = Seen.of(tap, self.name)
                with torch.autocast(tap.call.q.device.type, enabled=False):
                    for target in self._attention:
                        value = self.attention_term(target, seen, now(self.strength, site))
                        if self.per_image and taps.batch and len(seen.x) % taps.batch == 0:
                            # windows of one image are rows of x; the mean is over images
                            value = value * (len(seen.x) / taps.batch)
                        yield now(self._lam[target], site) * value
        for linear in taps.linear:
            if self.settings.covers(linear.site):
                with torch.autocast(linear.x.device.type, enabled=False):
                    value = self.linear_term(linear, now(self.strength, linear.site))
                    yield now(self._lam["ff"], linear.site) * value

    def attention_term(self, target: Target, seen: Seen, p: float) -> Tensor:
        """The penalty of one target at one attention; scalar."""
        raise AssertionError(f"{self.name} has no penalty on attention")

    def linear_term(self, tap: LinearTap, p: float) -> Tensor:
        """The penalty at one feed-forward layer; scalar."""
        raise AssertionError(f"{self.name} has no penalty on linear layers")


def average(seen: Seen, values: Tensor) -> Tensor:
    """A times other values, (B, H, K, D), by the model's own attention without dropout.

    Fused, so that no (Q, K) matrix is made; 0 at padded queries; in float32 at least.
    """
    call, real = seen.call, seen.real
    output = call.replace(q=wide(call.q), k=wide(call.k), v=values, dropout_p=0.0).run()
    return output if real is None else masked(output, real[:, None].expand(output.shape[:-1]))


def mass(seen: Seen) -> Tensor:
    """The diagonal of A^T A, (B, H, K), without dropout or padded queries; float32 at least."""
    call = seen.call
    return attention_mass(
        call.q, call.k, scale=call.scale, bias=call.bias, allowed=call.allowed,
        causal=call.causal, real=seen.real,
    )  # fmt: skip
