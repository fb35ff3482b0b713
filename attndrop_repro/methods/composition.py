"""Composition: `a+b` is a method whose hooks are those of its parts, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from torch import Tensor, nn

from attndrop_repro.config import words
from attndrop_repro.config.errors import UsageError, nearest
from attndrop_repro.methods import registry
from attndrop_repro.methods.base import EXCLUSIVE, Learner, Method, Task
from attndrop_repro.methods.call import AttentionCall, Site, Step
from attndrop_repro.methods.settings import Settings
from attndrop_repro.methods.taps import Taps


def parse(name: str) -> list[type[Method[Any]]]:
    """The methods of a composition in canonical order: by name, objectives last.

    Perturbations that must see the model's own masks (`Method.first`) come before all others.

    Args:
        name: As in ``"attentiondrop-blur+consistency"``; ``"none"`` and repetitions add nothing.

    Raises:
        UsageError: A name is unknown, or two parts need the same exclusive hook.
    """
    words = [word.strip() for word in name.split("+")]
    if not all(words):
        raise UsageError(f"method {name!r} has an empty part; write it as a+b")
    classes = {word: registry.get(word) for word in words}
    if len(classes) > 1:
        classes.pop("none", None)
    parts = sorted(
        classes.values(), key=lambda cls: (cls.overrides("objective"), not cls.first, cls.name)
    )
    for hook in EXCLUSIVE:
        holders = [cls.name for cls in parts if cls.overrides(hook)]
        if len(holders) > 1:
            raise UsageError(f"{' and '.join(holders)} do not compose: both need the hook {hook!r}")
    if any(cls.passes > 1 for cls in parts) and not any(cls.stochastic for cls in parts):
        raise UsageError(
            f"{name!r} compares two passes that would be equal: add a stochastic method, as in "
            f"'dropout+{parts[-1].name}'"
        )
    return parts


def canonical(name: str) -> str:
    """The one spelling of a composition: ``consistency+dropkey`` is ``dropkey+consistency``."""
    return "+".join(cls.name for cls in parse(name))


def resolve(name: str, settings: Mapping[str, Any]) -> dict[str, Settings]:
    """Settings of every part, checked.

    A key of `settings` is a setting of the parts (``p=0.1``), or a part's name with a mapping
    (``{"dropkey": {"p": 0.1}}``; hyphens may be underscores), which wins.

    Raises:
        UsageError: Unknown or ambiguous key, wrong type, out of range: named, with the range.
    """
    parts = parse(name)
    given: dict[str, dict[str, Any]] = {cls.name: {} for cls in parts}
    for key, value in settings.items():
        part = key.replace("_", "-")
        if part in given and isinstance(value, Mapping):
            continue
        owners = [cls.name for cls in parts if key in cls.Settings.model_fields]
        if len(owners) > 1:
            raise UsageError(
                f"setting {key!r} is one of {' and of '.join(owners)}: write "
                f"{owners[0]}={{{key}: ...}} for the one that you mean"
            )
        if not owners:
            known = {field for cls in parts for field in cls.Settings.model_fields}
            if isinstance(value, Mapping):  # meant for a part
                known |= set(given)
            raise UsageError(f"{name!r} has no setting {key!r}{nearest(key, known)}")
        given[owners[0]][key] = value
    for key, value in settings.items():
        part = key.replace("_", "-")
        if part in given and isinstance(value, Mapping):
            given[part].update(value)
    return {cls.name: _validated(cls, given[cls.name]) for cls in parts}


def _validated(cls: type[Method[Any]], values: Mapping[str, Any]) -> Settings:
    try:
        return cls.Settings.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            hint = nearest(field, cls.Settings.model_fields)
            raise UsageError(f"method {cls.name!r} has no setting {field!r}{hint}") from None
        info, inside = words.find(cls.Settings, first["loc"])
        reason = words.complaint(first)
        if info is not None and words.is_of_kind(first["type"]):
            reason = f"expected {words.expected(info, inside)}"
        # a rule about several settings has no place of its own, and their whole input says nothing
        where = f"{cls.name}.{field} = {first['input']!r}" if field else cls.name
        raise UsageError(f"{where}: {reason}") from None


def build(name: str, settings: Mapping[str, Any] | None = None) -> Method[Any]:
    """A method or composition with its settings; see `resolve` for their form."""
    resolved = resolve(name, settings or {})
    built = [registry.get(part)(value) for part, value in resolved.items()]
    return built[0] if len(built) == 1 else Composite(built)


class Composite(Method[Settings]):
    """Several methods as one; made by `build`."""

    reference = "composition"

    def __init__(self, parts: Sequence[Method[Any]]) -> None:
        super().__init__(Settings())
        self.parts = tuple(parts)
        self.name = "+".join(part.name for part in parts)  # type: ignore[misc]
        self._at_work = tuple(part for part in parts if not part.idle)
        self.passes = max((part.passes for part in self._at_work), default=1)  # type: ignore[misc]
        self.stochastic = any(part.stochastic for part in self._at_work)  # type: ignore[misc]
        self.needs = frozenset().union(*(part.needs for part in self._at_work))

    @property
    def idle(self) -> bool:
        """Whether every part is."""
        return len(self._at_work) == 0  # torch.compile cannot negate a tuple

    def _holder(self, hook: str) -> Method[Any] | None:
        return next((part for part in self._at_work if part.overrides(hook)), None)

    def prepare(self, attention: Sequence[Site]) -> None:
        """All parts make what they need."""
        for part in self._at_work:
            part.prepare(attention)

    def begin_step(self, step: Step) -> None:
        """All parts draw, in canonical order."""
        for part in self._at_work:
            part.begin_step(step)

    def rewrite(self, call: AttentionCall) -> AttentionCall:
        """All parts rewrite, in canonical order."""
        for part in self._at_work:
            call = part.rewrite(call)
        return call

    def attend(self, call: AttentionCall) -> Tensor:
        """The one part that takes attention over, or the plain attention."""
        holder = self._holder("attend")
        return call.run() if holder is None else holder.attend(call)

    def weight(self, site: Site, weight: Tensor) -> Tensor:
        """All parts."""
        for part in self._at_work:
            weight = part.weight(site, weight)
        return weight

    def hidden(self, site: Site, x: Tensor) -> Tensor:
        """All parts."""
        for part in self._at_work:
            x = part.hidden(site, x)
        return x

    def taps(self) -> frozenset[str]:
        """What any part wants to see."""
        return frozenset().union(*(part.taps() for part in self._at_work))

    def penalty(self, taps: Taps) -> Tensor:
        """The sum over the parts that have one."""
        penalties = [part.penalty(taps) for part in self._at_work if part.taps()]
        total = penalties[0]
        for more in penalties[1:]:
            total = total + more
        return total

    def objective(self, outputs: Sequence[Tensor], y: Any, task: Task) -> Tensor:
        """That of the one part which has its own, or the task's."""
        holder = self._holder("objective")
        chosen = super().objective if holder is None else holder.objective
        return chosen(outputs, y, task)

    def learner(self) -> Learner | None:
        """Those of all parts that have one, as one."""
        learners = {part.name: part.learner() for part in self._at_work}
        found = {name: learner for name, learner in learners.items() if learner is not None}
        return Learners(found) if found else None


class Learners:
    """The learners of several methods as one; their names are prefixed by the method's."""

    def __init__(self, learners: Mapping[str, Learner]) -> None:
        self.learners = dict(learners)
        self.held_out = any(each.held_out for each in self.learners.values())

    def modules(self) -> nn.Module:
        """All their modules, by method."""
        return nn.ModuleDict({name: each.modules() for name, each in self.learners.items()})

    def update(
        self, evaluate: Callable[..., Tensor], x: Any, y: Any, task: Task
    ) -> dict[str, float]:
        """One update of each."""
        return {
            f"{name}.{key}": value
            for name, each in self.learners.items()
            for key, value in each.update(evaluate, x, y, task).items()
        }

    def state_dict(self) -> dict[str, Any]:
        """All their states."""
        return {
            f"{name}/{key}": value
            for name, each in self.learners.items()
            for key, value in each.state_dict().items()
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what `state_dict` gave."""
        for name, each in self.learners.items():
            prefix = f"{name}/"
            each.load_state_dict(
                {
                    key.removeprefix(prefix): value
                    for key, value in state.items()
                    if key.startswith(prefix)
                }
            )


def parts_of(method: Method[Any]) -> tuple[Method[Any], ...]:
    """The single methods that a method consists of."""
    return method.parts if isinstance(method, Composite) else (method,)
