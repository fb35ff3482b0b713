"""Cases of the contract test, made from the registry alone: a method that is registered is tested.

The settings come from the fields of each method: what has a `Range` is a strength; alternatives are
the values of a `Literal`; `kinds` is set to the attentions that the model has.
"""

from __future__ import annotations

import copy
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Literal

import pytest
import torch
from support.models import BY_NAME, Batch, Tiny, build, run
from torch import Tensor, nn

import attndrop_repro as attndrop
from attndrop_repro.adapters import Handle
from attndrop_repro.config.errors import AttndropError, UsageError
from attndrop_repro.methods import Method, get, parse
from attndrop_repro.methods.strength import Range

MODELS = (
    "vit", "vit-unfused", "swin", "beit", "eva", "torch-encoder", "torch-transformer", "bert", "t5",
    "llama",
)  # fmt: skip
CHOSEN = (
    "dropkey+dropout",
    "attentiondrop-blur+attention-dropout",
    "attentiondrop-hard+dropkey",
    "explicit-dropout+dropout",
    "arora+dropconnect",
    "drophead+dropdim+stochastic-depth",
    "attentiondrop-blur+dropattention+consistency",
    "attentiondrop-hard+dropout+consistency",
    "attendout+dropout",
    "explicit-dropout+attentiondrop-blur+consistency",
)
Settings = dict[str, dict[str, Any]]


def strengths(cls: type[Method[Any]]) -> dict[str, Range]:
    """The settings of a method that say how strong it is, with their ranges."""
    found = {}
    for name, field in cls.Settings.model_fields.items():
        within = next((item for item in field.metadata if isinstance(item, Range)), None)
        if within is not None:
            found[name] = within
    return found


def at(method: str, value: float, kinds: tuple[str, ...]) -> Settings:
    """Settings of every part with all probabilities at `value`, other strengths at twice that.

    A probability of 1 becomes 0.999 where 1 is out of range.
    """
    settings: Settings = {}
    for cls in parse(method):
        part: dict[str, Any] = {}
        for name, within in strengths(cls).items():
            if within.le <= 1:
                part[name] = min(value, 0.999) if within.open_end else value
            else:
                part[name] = 2 * value
        if "kinds" in cls.Settings.model_fields:
            part["kinds"] = kinds
        settings[cls.name] = part
    return settings


def variants(name: str) -> Iterator[dict[str, Any]]:
    """The examples of a method, and every alternative of each of its settings, one at a time."""
    cls = get(name)
    yield from cls.examples
    for field, info in cls.Settings.model_fields.items():
        if field == "kinds":
            continue
        default = info.get_default(call_default_factory=True)
        if info.annotation is bool:
            alternatives: list[Any] = [not default]
        elif typing.get_origin(info.annotation) is Literal:
            alternatives = [v for v in typing.get_args(info.annotation) if v != default]
        elif typing.get_origin(info.annotation) is tuple and isinstance(default, tuple):
            (item, *_) = typing.get_args(info.annotation)
            alternatives = [(value,) for value in typing.get_args(item)]
        else:
            continue
        for value in alternatives:
            yield {field: value}


def _valid(name: str) -> bool:
    try:
        return bool(parse(name))
    except UsageError:
        return False


@cache
def methods() -> tuple[str, ...]:
    """Every method by itself where it can be, with consistency where it draws, and some chosen."""
    singles = [name for name in attndrop.methods() if name != "none"]
    alone = [name for name in singles if _valid(name)]
    drawing = [name for name in alone if get(name).stochastic and get(name).passes == 1]
    assert all(map(_valid, CHOSEN))
    return tuple(dict.fromkeys([*alone, *(f"{name}+consistency" for name in drawing), *CHOSEN]))


@cache
def all_variants() -> tuple[tuple[str, dict[str, Any]], ...]:
    return tuple(
        (name if _valid(name) else f"dropkey+{name}", variant)
        for name in attndrop.methods()
        if name != "none"
        for variant in variants(name)
    )


@cache
def _built(name: str) -> tuple[nn.Module, Batch]:
    return build(name)


def fresh(name: str) -> tuple[nn.Module, Batch]:
    """A model of its own, the same each time, and a batch of three."""
    model, x = _built(name)
    return copy.deepcopy(model), x


def put(
    model: nn.Module,
    tiny: Tiny | str,
    method: str,
    value: float = 0.5,
    extra: Mapping[str, Any] | None = None,
) -> Handle:
    """A method in a model with all its strengths at a value.

    A method may refuse a kind of model, if it says so in one line; the test ends there, and
    `test_contract_support.py` holds who refuses what.
    """
    tiny = BY_NAME[tiny] if isinstance(tiny, str) else tiny
    settings = at(method, value, tiny.kinds)
    for cls in parse(method):
        fields = cls.Settings.model_fields
        settings[cls.name].update({k: v for k, v in (extra or {}).items() if k in fields})
    try:
        return attndrop.apply(model, method, settings)
    except AttndropError as error:
        raise Refused(str(error)) from error


class Refused(Exception):
    """A method said, in one line, that it does not go into this kind of model."""

    def __init__(self, message: str) -> None:
        assert "\n" not in message
        assert len(message) > 20
        super().__init__(message)


def goes(model: str, method: str, extra: Mapping[str, Any] | None = None) -> bool:
    """Whether a method goes into a model."""
    try:
        put(fresh(model)[0], model, method, extra=extra)
    except Refused:
        return False
    return True


def cases(models: tuple[str, ...] = MODELS) -> pytest.MarkDecorator:
    """Parametrises over methods and models."""
    pairs = [(model, method) for method in methods() for model in models]
    return pytest.mark.parametrize(("model", "method"), pairs)


def some_cases(*always: str) -> pytest.MarkDecorator:
    """Every method on the models named, and each on one more in turn."""
    others = [name for name in MODELS if name not in always]
    pairs = []
    for index, method in enumerate(methods()):
        pairs += [(model, method) for model in (*always, others[index % len(others)])]
    return pytest.mark.parametrize(("model", "method"), pairs)


def in_turn(*models: str) -> pytest.MarkDecorator:
    """Every method on one of the models, in turn; no composition on the first one too."""
    pairs = [(models[i % len(models)], method) for i, method in enumerate(methods())]
    pairs += [(models[0], method) for method in methods() if "+" not in method]
    return pytest.mark.parametrize(("model", "method"), list(dict.fromkeys(pairs)))


def criterion(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())


def targets(model: nn.Module, x: Batch) -> Tensor:
    """Targets for whatever the model returns."""
    shape = run(model, x).shape
    return torch.arange(shape[:-1].numel()).reshape(shape[:-1]) % shape[-1]


def varies(handle: Handle, x: Batch) -> bool:
    """Whether passes over one batch differ, those of one step included.

    Several are compared, for two draws of a few whole heads may well be the same.
    """
    steps = [handle.outputs(x) for _ in range(4)]
    across = max(divergence(steps[0][0], step[0]) for step in steps[1:])
    within = max(divergence(step[0], step[-1]) for step in steps)
    assert all(torch.isfinite(output).all() for step in steps for output in step)
    return across > 0 and (handle.passes == 1 or within > 0)


def divergence(first: Tensor, second: Tensor) -> float:
    """KL of the first to the second, mean over rows, in float64."""
    p, q = first.double().log_softmax(-1), second.double().log_softmax(-1)
    return (p.exp() * (p - q)).sum(-1).mean().item()
