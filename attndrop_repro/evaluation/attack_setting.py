"""What an attack is: its norm, size, steps and restarts (A12). No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from attndrop_repro.config.errors import UsageError, unknown
from attndrop_repro.config.fractions import Eps, parse_fraction

ATTACKS = ("fgsm", "pgd", "autoattack")
NORMS = ("linf", "l2")
TARGETS = ("least-likely", "most-likely", "random")
_TWO = Eps("2/255", 2 / 255)


@dataclass(frozen=True)
class AttackSetting:
    """One attack at one size.

    Attributes:
        name: "fgsm", "pgd" or "autoattack".
        eps: Largest perturbation, pixels in [0, 1].
        norm: Of the perturbation: "linf", or "l2" over all pixels and channels of an image.
        steps: Gradient steps of pgd.
        step_size: Of pgd, in the units of eps.
        restarts: Random starts of pgd; the worst counts.
        target: Which wrong class to aim at by the clean prediction, or None: away from the label.
        draws: 0: the plain model. Else the regulariser stays on, and gradients and predictions are
            means over so many draws (expectation over transformations, Athalye et al. 2018).
    """

    name: str
    eps: Eps
    norm: str = "linf"
    steps: int = 20
    step_size: Eps = _TWO
    restarts: int = 1
    target: str | None = None
    draws: int = 0

    def __post_init__(self) -> None:
        if self.name not in ATTACKS:
            raise unknown("attack", self.name, ATTACKS)
        if self.norm not in NORMS:
            raise unknown("norm", self.norm, NORMS)
        if self.target is not None and self.target not in TARGETS:
            raise unknown("target", self.target, TARGETS)
        if self.steps < 1 or self.restarts < 1 or self.draws < 0:
            raise UsageError("an attack needs at least one step and one restart, and no draws < 0")
        if not self.eps.value >= 0:
            raise UsageError(f"eps {self.eps.label!r} must not be negative")
        if self.name == "fgsm" and self.norm != "linf":
            raise UsageError("fgsm is an attack in linf: use pgd with one step for l2")
        if self.name == "autoattack" and (self.target or self.draws):
            raise UsageError("autoattack chooses targets itself and needs a model without draws")
        if self.draws and self.norm != "linf":
            raise UsageError("attacks on the regularised model are in linf only")

    @property
    def label(self) -> str:
        """The store's `attack` column: the name, and what makes it another attack."""
        target = f"+{self.target}" if self.target else ""
        return f"{self.name}{target}" + (f"+stochastic{self.draws}" if self.draws else "")

    def columns(self) -> dict[str, Any]:
        """The columns of the results store that it fills; what it does not have stays empty."""
        columns: dict[str, Any] = {
            "attack": self.label,
            "norm": self.norm,
            "eps": self.eps.value,
            "eps_label": self.eps.label,
        }
        if self.name == "fgsm":
            columns.update(steps=1, restarts=1)
        elif self.name == "pgd":
            columns.update(steps=self.steps, step_size=self.step_size.value, restarts=self.restarts)
        return columns


def grid(
    names: Sequence[str],
    sizes: Sequence[str | float | Eps],
    *,
    step_size: str | float | Eps | None = None,
    norm: str = "linf",
    steps: int = 20,
    **rest: Any,
) -> list[AttackSetting]:
    """Every named attack at every size, sizes rising; a size given twice counts once.

    Args:
        names: Attacks.
        sizes: As in ``"8/255"``.
        step_size: Of pgd. None: 2/255 in linf; in l2, where a pixel's share of eps is not its size,
            2.5 eps / steps, so that all of the ball can be reached (Madry et al., ICLR 2018).
        norm: Of the perturbation, which decides how large it may be.
        steps: Of pgd.
        rest: Other fields of `AttackSetting`.
    """
    values = {eps.label: eps for eps in (_eps(size, "eps", norm) for size in sizes)}
    ordered = sorted(values.values(), key=lambda eps: eps.value)

    def step(eps: Eps) -> Eps:
        if step_size is not None:
            return _eps(step_size, "step size", norm)
        return _TWO if norm == "linf" else Eps("", 2.5 * eps.value / steps)

    return [
        AttackSetting(name, eps, norm=norm, steps=steps, step_size=step(eps), **rest)
        for name in dict.fromkeys(names)
        for eps in ordered
    ]


def _eps(size: str | float | Eps, what: str, norm: str) -> Eps:
    return size if isinstance(size, Eps) else parse_fraction(size, what, norm)
