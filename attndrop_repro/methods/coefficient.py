"""Strengths of terms in a loss: a number or a schedule, one a layer where a term has layers.

Not learned: descending the loss that it weighs, a coefficient only goes to 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from pydantic_core import PydanticCustomError

from attndrop_repro.methods.call import Site
from attndrop_repro.methods.strength import Learnable, Range, Schedule, Strength, StrengthValue

LOSS = Site("residual", 0, 1, "the loss")  # where a coefficient of the whole loss acts


@dataclass(frozen=True)
class CoefficientRange(Range):
    """The range of a coefficient, and whether it may have one value a layer."""

    by_layer: bool = False

    def check(self, value: Any) -> StrengthValue:
        """Reads what a user wrote.

        Raises:
            PydanticCustomError: Out of range, learned, or finer than this coefficient can be.
        """
        checked = super().check(value)
        values = checked.value if isinstance(checked, Schedule) else checked
        nested = isinstance(values, tuple) and (
            not self.by_layer or any(isinstance(item, tuple) for item in values)
        )
        if nested or isinstance(values, Learnable):
            kinds = "a number, a list by layer" if self.by_layer else "a number"
            message = f"should be {kinds} or a schedule"
            raise PydanticCustomError("coefficient", "{message}", {"message": message})
        return checked


Coefficient: TypeAlias = Annotated[StrengthValue, CoefficientRange(0)]
LayerCoefficient: TypeAlias = Annotated[StrengthValue, CoefficientRange(0, by_layer=True)]
LayerProbability: TypeAlias = Annotated[
    StrengthValue, CoefficientRange(0, 1, open_end=True, by_layer=True)
]


def at_work(value: StrengthValue, name: str) -> Strength:
    """A coefficient as the `Strength` that follows the training step."""
    return Strength(value, CoefficientRange(0), name)


def now(strength: Strength, site: Site = LOSS) -> float:
    """The value now, of the whole loss or at a place: always a number, for it has no heads."""
    value = strength.at(site)
    assert isinstance(value, float)
    return value
