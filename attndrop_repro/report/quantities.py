"""What a report shows of each run: how it is written, and which way is better."""

from __future__ import annotations

import math
from dataclasses import dataclass

MINUS = "\N{MINUS SIGN}"
REFERENCE_EPS = "8/255"


@dataclass(frozen=True)
class _Metric:
    title: str
    kind: str  # the measurement that gives it, as a suite's `measure` names it
    scale: float
    unit: str
    digits: int  # decimals, or significant digits when `significant`
    better: int  # +1 higher, -1 lower, 0 neither
    significant: bool = False
    ratio: bool = False  # spans orders of magnitude: geometric means, compared as a ratio


_METRICS = {
    "accuracy": _Metric("Test accuracy", "eval", 100, "%", 1, 1),
    "nll": _Metric("NLL", "eval", 1, "", 3, -1),
    "ece": _Metric("ECE", "calibrate", 100, "%", 2, -1),
    "ece_after_temperature": _Metric("ECE after temperature", "calibrate", 100, "%", 2, -1),
    "robust_accuracy": _Metric("Robust accuracy", "attack", 100, "%", 1, 1),
    "gradient_variance": _Metric(
        "Gradient variance", "gradvar", 1, "", 3, 0, significant=True, ratio=True
    ),
    "train_seconds": _Metric("Training", "train", 1, "s", 1, -1),
}


@dataclass(frozen=True)
class Quantity:
    """One number of a run.

    Attributes:
        metric: The store's metric.
        attack: Label of the attack, as in "PGD-20"; empty where there is none.
        eps_label: The perturbation as the user wrote it, as in "8/255".
        eps: Its value, pixels in [0, 1]; NaN where there is none.
    """

    metric: str
    attack: str = ""
    eps_label: str = ""
    eps: float = math.nan

    @property
    def key(self) -> str:
        """A name for files and columns, as in ``robust_accuracy.pgd-20.8/255``."""
        return ".".join(part for part in (self.metric, self.attack.lower(), self.eps_label) if part)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.key == other.key

    @property
    def title(self) -> str:
        """What a table's column is headed by."""
        if self.attack:
            return f"{self.attack} at {self.eps_label}"
        return self._metric.title

    @property
    def sentence(self) -> str:
        """What it is called inside running text."""
        if self.attack:
            return f"accuracy under {self.attack} at {self.eps_label}"
        title = self._metric.title
        return title if title.startswith(("NLL", "ECE")) else title[0].lower() + title[1:]

    @property
    def unit(self) -> str:
        """Unit of the written value."""
        return self._metric.unit

    @property
    def better(self) -> int:
        """+1 where higher is better, -1 where lower is, 0 where neither is by itself."""
        return self._metric.better

    @property
    def kind(self) -> str:
        """The measurement that gives it."""
        return self._metric.kind

    @property
    def scale(self) -> float:
        """The stored value times this is the written one."""
        return self._metric.scale

    @property
    def ratio(self) -> bool:
        """Whether it is averaged geometrically and compared as a ratio; it is positive then."""
        return self._metric.ratio

    @property
    def _metric(self) -> _Metric:
        return _METRICS[self.metric]

    def write(self, value: float) -> str:
        """A value as tables print it, without its unit."""
        return written(
            value * self.scale, self._metric.digits, significant=self._metric.significant
        )

    def with_unit(self, value: float) -> str:
        """A value as sentences print it."""
        return f"{self.write(value)} {self.unit}".rstrip()

    def write_apart(self, difference: float, *, end: bool = False) -> str:
        """How far two values are apart, as tables print it: ``+1.2``, or ``×1.2`` of a ratio.

        Args:
            difference: A difference, or a ratio.
            end: Whether it is an end of an interval: ratios have no sign there.
        """
        if self.ratio:
            return f"{'' if end else '×'}{written(difference, 3, significant=True)}"
        return written(
            difference * self.scale,
            self._metric.digits,
            significant=self._metric.significant,
            signed=True,
        )

    def apart(self, difference: float) -> str:
        """The same as sentences print it: of percentages, in points."""
        unit = "" if self.ratio else self.unit_apart
        return f"{self.write_apart(difference)} {unit}".rstrip()

    @property
    def unit_apart(self) -> str:
        """Unit of a difference: points, of percentages; a ratio says that it is one."""
        if self.ratio:
            return "ratio"
        return "points" if self.unit == "%" else self.unit


def written(value: float, digits: int, *, significant: bool = False, signed: bool = False) -> str:
    """A number with a true minus sign; never ``-0.0``.

    Args:
        value: Finite.
        digits: Decimals, or significant digits.
        significant: Which of the two.
        signed: Whether positive numbers get a plus.
    """
    if significant:
        text = f"{value:#.{digits}g}"
        mantissa, _, exponent = text.partition("e")
        mantissa = mantissa.rstrip(".")
        text = f"{mantissa}e{int(exponent)}" if exponent else mantissa
    else:
        text = f"{value:.{digits}f}"
    if not any(digit in text.partition("e")[0] for digit in "123456789"):
        return text.lstrip("-")
    if signed and not text.startswith("-"):
        text = "+" + text
    return text.replace("-", MINUS)


ACCURACY = Quantity("accuracy")
NLL = Quantity("nll")
ECE = Quantity("ece")
ECE_AFTER = Quantity("ece_after_temperature")
GRADIENT_VARIANCE = Quantity("gradient_variance")
SECONDS = Quantity("train_seconds")


def robust(attack: str, eps_label: str, eps: float) -> Quantity:
    """Accuracy under an attack."""
    return Quantity("robust_accuracy", attack, eps_label, eps)
