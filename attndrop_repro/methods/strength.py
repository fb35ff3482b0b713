"""How strong a perturbation is: one number, or one a layer, a head, a moment, or a learned one.

A setting of type `Probability` or `Positive` takes any of

- a number;
- a list with one number for each layer, or one list for each layer with a number for each head;
- ``{schedule: constant | linear | v-shape, value: ..., start: ..., turn: ...}``;
- ``{learnable: true, init: ..., lr: ...}``;

where ``value`` and ``init`` are again a number or lists. A plain number stays one, so that it can
stand in a column of the results. The method wraps it in a `Strength` and asks `Strength.at`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

import torch
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
)
from pydantic_core import PydanticCustomError, core_schema
from torch import Tensor

from attndrop_repro.config.errors import UsageError
from attndrop_repro.config.words import complaint
from attndrop_repro.methods.base import Learner, Method, S
from attndrop_repro.methods.call import Site, Step
from attndrop_repro.methods.learned_strength import LearnedStrength

Values: TypeAlias = float | tuple[float, ...] | tuple[tuple[float, ...], ...]


class Schedule(BaseModel):
    """A strength that follows the progress of training, 0 to 1 (1 where its length is unknown)."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    schedule: Literal["constant", "linear", "v-shape"]
    value: Values = Field(description="at the end of training")
    start: float | None = Field(
        None, description="at its beginning; linear: 0, v-shape: as at the end"
    )
    turn: float | None = Field(
        None,
        gt=0,
        le=1,
        description="share of training at which linear reaches `value` (1) or v-shape 0 (0.5)",
    )

    def at(self, value: float, progress: float) -> float:
        """The strength at a moment of training, for one entry of `value`."""
        if self.schedule == "linear":
            start = 0.0 if self.start is None else self.start
            share = min(progress / (self.turn or 1.0), 1.0)
            return value if share == 1.0 else start + (value - start) * share
        if self.schedule == "v-shape":
            start, turn = (value if self.start is None else self.start), self.turn or 0.5
            if progress < turn or turn == 1.0:
                return start * (1 - progress / turn)
            return value * (progress - turn) / (1 - turn)
        return value


class Learnable(BaseModel):
    """A strength learned with the model (future work, says the AttentionDrop paper).

    It descends the same training loss by its own Adam, so nothing but the loss holds it up: where
    perturbing costs training loss it falls.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    learnable: Literal[True]
    init: Values = Field(description="where it starts; strictly inside its range")
    lr: float = Field(1e-2, gt=0, description="learning rate, on the logit or logarithm")


StrengthValue: TypeAlias = Values | Schedule | Learnable


@dataclass(frozen=True)
class Range:
    """The range of a strength: pydantic checks every number in it; `attndrop methods` shows it."""

    ge: float
    le: float = math.inf
    open_end: bool = False

    def __str__(self) -> str:
        end = f"{self.le:g}" if math.isfinite(self.le) else "infinity"
        return f"[{self.ge:g}, {end}{')' if self.open_end or self.le == math.inf else ']'}"

    def contains(self, value: float) -> bool:
        """Whether a number is allowed."""
        return self.ge <= value <= self.le and not (self.open_end and value == self.le)

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self.check, serialization=core_schema.plain_serializer_function_ser_schema(_plain)
        )

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        found: dict[str, Any] = {"type": ["number", "array", "object"], "minimum": self.ge}
        if math.isfinite(self.le):
            found["exclusiveMaximum" if self.open_end else "maximum"] = self.le
        return found

    def check(self, value: Any) -> StrengthValue:
        """Reads what a user wrote.

        Raises:
            PydanticCustomError: It is none of the forms, or a number in it is out of range.
        """
        if isinstance(value, BaseModel):
            value = value.model_dump()
        if isinstance(value, Mapping):
            return self._check_mapping(value)
        values = _values(value)
        for number in _numbers(values):
            if not self.contains(number):
                raise _error(f"{number:g} is outside {self}")
        return values

    def _check_mapping(self, value: Mapping[str, Any]) -> Schedule | Learnable:
        if ("schedule" in value) == ("learnable" in value):
            raise _error("a mapping needs either 'schedule' or 'learnable: true'")
        try:
            if "schedule" in value:
                schedule = Schedule.model_validate({**value, "value": self.check(value["value"])})
                if schedule.start is not None:
                    self.check(schedule.start)
                return schedule
            learnable = Learnable.model_validate({**value, "init": self.check(value["init"])})
        except KeyError as missing:
            raise _error(f"{missing} is missing") from None
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(str(part) for part in first["loc"])
            raise _error(f"{field} {complaint(first)}") from None
        for number in _numbers(learnable.init):
            if number in {self.ge, self.le}:
                raise _error(f"init = {number:g} must lie strictly inside {self} to be learned")
        return learnable


Probability: TypeAlias = Annotated[StrengthValue, Range(0, 1)]
ProbabilityBelow1: TypeAlias = Annotated[StrengthValue, Range(0, 1, open_end=True)]
Positive: TypeAlias = Annotated[StrengthValue, Range(0)]


class Strength:
    """A strength at work in one method.

    Args:
        value: The validated setting.
        within: Its range, for learning; see `Range`.
        name: The setting's name, for messages.
    """

    def __init__(self, value: StrengthValue, within: Range, name: str) -> None:
        self.value, self.name = value, name
        self.values: Values
        self._learned: LearnedStrength | None = None
        if isinstance(value, Learnable):
            self.values = value.init
            self._learned = LearnedStrength(name, value.init, value.lr, within.ge, within.le)
        elif isinstance(value, Schedule):
            self.values = value.value
        else:
            self.values = value
        self._progress = 1.0
        self._device = torch.device("cpu")

    @property
    def is_zero(self) -> bool:
        """Whether it is 0 everywhere and for good."""
        if isinstance(self.value, Schedule) and self.value.start:
            return False
        return self._learned is None and not any(_numbers(self.values))

    @property
    def is_learned(self) -> bool:
        """Whether `at` gives tensors that want gradients."""
        return self._learned is not None

    def begin(self, step: Step) -> None:
        """Notes where in training we are."""
        # a number that never changes must not make compiled code depend on the step
        if isinstance(self.value, Schedule) and self.value.schedule != "constant":
            self._progress = step.progress
        self._device = step.device

    def at(self, site: Site) -> float | Tensor:
        """The strength at a place, now.

        Returns:
            A float where it is one; else a tensor: (heads, 1, 1) for values by head, 0-dimensional
            for a learned one.

        Raises:
            UsageError: The lists do not fit the model.
        """
        entry = self._entry(site)
        if self._learned is not None:
            return self._learned.at(site.layer).to(self._device)
        if isinstance(self.value, Schedule):
            schedule, progress = self.value, self._progress
            if isinstance(entry, tuple):
                entry = tuple(schedule.at(value, progress) for value in entry)
            else:
                entry = schedule.at(entry, progress)
        if isinstance(entry, tuple):
            return torch.tensor(entry, device=self._device).view(-1, 1, 1) if any(entry) else 0.0
        return entry

    def learner(self) -> Learner | None:
        """What learns it, if it is learned."""
        return self._learned

    def _entry(self, site: Site) -> float | tuple[float, ...]:
        if not isinstance(self.values, tuple):
            return self.values
        if len(self.values) != site.layers:
            raise UsageError(
                f"{self.name} has {len(self.values)} values by layer, but the model has "
                f"{site.layers} places {site.place!r}: give as many"
            )
        entry = self.values[site.layer]
        if isinstance(entry, tuple) and len(entry) != site.heads:
            raise UsageError(
                f"{self.name} has {len(entry)} values by head for layer {site.layer}, but "
                f"{site.path or site.place!r} has {site.heads} heads: give as many"
            )
        return entry


class OneStrength(Method[S]):
    """A method whose setting `strength_name` says how strong it is; 0 makes it idle."""

    strength_name = "p"

    def __init__(self, settings: S) -> None:
        super().__init__(settings)
        field = type(settings).model_fields[self.strength_name]
        within = next(item for item in field.metadata if isinstance(item, Range))
        value = getattr(settings, self.strength_name)
        self.strength = Strength(value, within, self.strength_name)

    @property
    def idle(self) -> bool:
        """Whether the strength is 0 for good."""
        return self.strength.is_zero

    def begin_step(self, step: Step) -> None:
        """Lets a schedule follow the step."""
        self.strength.begin(step)

    def learner(self) -> Learner | None:
        """What learns the strength, if it is learned."""
        return self.strength.learner()


def _error(message: str) -> PydanticCustomError:
    return PydanticCustomError("strength", "{message}", {"message": message})


def _values(value: Any) -> Values:
    if isinstance(value, Sequence) and not isinstance(value, str):
        entries = tuple(_values(item) for item in value)
        nested = {isinstance(item, tuple) for item in entries}
        if not entries or len(nested) > 1:
            raise _error("a list needs one number for each layer, or one list for each layer")
        if any(isinstance(item, tuple) and isinstance(item[0], tuple) for item in entries):
            raise _error("lists go by layer and head, not deeper")
        return entries  # type: ignore[return-value]
    try:
        if isinstance(value, bool):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError):
        raise _error(
            "should be a number, a list by layer (and head), a schedule or {learnable: true, ...}"
        ) from None
    if not math.isfinite(number):
        raise _error("should be finite")
    return number


def _numbers(values: Values) -> Iterator[float]:
    for item in values if isinstance(values, tuple) else (values,):
        if isinstance(item, tuple):
            yield from item
        else:
            yield item


def _plain(value: StrengthValue) -> Any:
    return value.model_dump(exclude_none=True) if isinstance(value, BaseModel) else value
