"""Explicit dropout: deterministic penalties in place of masks."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from attndrop_repro.functional.explicit_dropout import (
    Form,
    Normalisation,
    attended_penalty,
    linear_penalty,
    logit_penalty,
    masked,
    wide,
)
from attndrop_repro.methods.base import WITHOUT_GPT2
from attndrop_repro.methods.penalties import (
    Penalty,
    PenaltySettings,
    Seen,
    Target,
    average,
    mass,
)
from attndrop_repro.methods.registry import register
from attndrop_repro.methods.settings import setting
from attndrop_repro.methods.taps import LinearTap


class ExplicitDropoutSettings(PenaltySettings):
    """Settings of `ExplicitDropout`."""

    form: Form = setting(
        "paper",
        "paper: p^2 for all pairs of features, as printed. exact: the expectation under the "
        "paper's masks. inverted: the expectation when what is kept is scaled by 1 / (1 - p).",
        source="Agrawal et al., eqs 4 to 20; errata X1, X2",
    )  # fmt: skip
    batch: Literal["mean", "sum"] = setting(
        "mean", "Mean or sum over the examples.", source="not said (X8)"
    )
    tokens: Literal["sum", "mean"] = setting(
        "sum", "Sum over tokens, or that divided by the example's real tokens.",
        source="sum in eq. 19, 1/n in eq. 106 (X8)",
    )  # fmt: skip
    heads: Literal["merged", "sum", "mean"] = setting(
        "merged",
        "All heads' projections as one matrix, as printed; or each head's own penalty, summed or "
        "averaged.",
        source="not said (X8)",
    )  # fmt: skip
    scaled: bool = setting(
        False, "Whether q and k are about logits with their factor 1/sqrt(d), or without it.",
        source="1/sqrt(d) in eq. 2, gone from eq. 7 on (X8)",
    )  # fmt: skip


@register
class ExplicitDropout(Penalty[ExplicitDropoutSettings]):
    """J = 1/2 Tr[B Lambda] for each target and layer, added to the loss.

    Where heads matter: q and k by the setting `heads` (merged: Q and K of all heads side by side,
    as if there were one); v and ff mix no heads; av uses every head's own attention weights.
    Attention weights are the model's, before any other method touches them.
    """

    name = "explicit-dropout"
    reference = "Agrawal, Oleksiienko and Iosifidis, Explicit Dropout, section 3"
    notes = (
        "As printed the penalties are 4 to 5 times smaller at p = 0.2 than the dropping they stand "
        "for (X1), and q equals k (X5); with the inverted scaling that the paper names no cross "
        "term is left (X2). form chooses. Biases take no part. Padding counts nowhere."
    )
    models = WITHOUT_GPT2
    Settings = ExplicitDropoutSettings

    def __init__(self, settings: ExplicitDropoutSettings) -> None:
        super().__init__(settings)
        self._over = Normalisation(settings.batch, settings.tokens, settings.heads)
        self.per_image = settings.batch == "mean" and settings.tokens == "sum"

    def attention_term(self, target: Target, seen: Seen, p: float) -> Tensor:
        """The penalty of q, k, v or av at one attention."""
        form, over, heads = self.settings.form, self._over, seen.call.q.shape[1]
        scale = seen.call.scale if self.settings.scaled else 1.0
        x, real, memory, real_memory = seen.x, seen.real, seen.memory, seen.real_memory
        if target == "k" and form == "paper" and memory is x and "q" in seen.terms:
            return seen.terms["q"]  # as printed they are the same (X5)
        if target == "q":
            seen.terms["q"] = logit_penalty(
                x, memory, seen.w_q, seen.w_k, p, form, real=real, real_other=real_memory,
                over=over, heads=heads, scale=scale, mapped=self._of(seen, "q"),
                mapped_other=seen.projected("k"),
            )  # fmt: skip
            return seen.terms["q"]
        if target == "k":
            return logit_penalty(
                memory, x, seen.w_k, seen.w_q, p, form, real=real_memory, real_other=real,
                over=over, heads=heads, scale=scale, mapped=self._of(seen, "k"),
                mapped_other=seen.projected("q"),
            )  # fmt: skip
        if target == "v":
            return linear_penalty(
                memory, seen.w_v, p, form, real=real_memory, over=over, heads=heads,
                mapped=self._of(seen, "v"),
            )  # fmt: skip
        attended, squares = self._attended(seen)
        return attended_penalty(
            memory, seen.w_v, attended, squares, p, form, real=real_memory, over=over
        )

    def _of(self, seen: Seen, which: Literal["q", "k", "v"]) -> Tensor | None:
        """A projection whose features drop, if the form asks for it."""
        return None if self.settings.form == "inverted" else seen.projected(which)

    def _attended(self, seen: Seen) -> tuple[Tensor | None, Tensor | None]:
        """A V and the diagonal of A^T A, each where the form needs it."""
        form = self.settings.form
        squares = None if form == "paper" else mass(seen)
        if form == "inverted":
            return None, squares
        attended = seen.attended()
        if attended is None:
            values = masked(wide(seen.memory), seen.real_memory) @ wide(seen.w_v).mT
            v_bhkd = values.view(*values.shape[:2], seen.call.q.shape[1], -1).transpose(1, 2)
            attended = average(seen, v_bhkd)
        return attended, squares

    def linear_term(self, tap: LinearTap, p: float) -> Tensor:
        """The penalty at one feed-forward layer; for the second, X is the hidden activation."""
        mapped = tap.mapped if self.settings.form != "inverted" else None
        return linear_penalty(
            tap.x, tap.weight, p, self.settings.form, real=tap.real, over=self._over,
            mapped=None if mapped is None else mapped.unbiased(),
        )  # fmt: skip
