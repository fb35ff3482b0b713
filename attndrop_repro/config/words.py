"""The schema in words: every path in it, and what each field expects, for error messages."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

_WORDS: dict[Any, tuple[str, str]] = {
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    str: ("text", "texts"),
    bool: ("true or false", "true or false each"),
    type(None): ("null", "null each"),
}


_LIMITS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("above", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("below", "lt"),
}
_KINDS: dict[str, Any] = {"int": int, "float": float, "bool": bool, "string": str}


def complaint(found: Mapping[str, Any]) -> str:
    """What pydantic found, in our words: "should be at least 1", "should be a whole number".

    Args:
        found: One of the `errors` of a `ValidationError`.
    """
    kind, context = str(found["type"]), found.get("ctx") or {}
    if kind in _LIMITS:
        word, name = _LIMITS[kind]
        return f"should be {word} {context[name]}"
    if kind in ("literal_error", "enum"):
        return f"should be one of {context['expected']}"
    if kind == "finite_number":
        return "should be finite"
    if kind == "extra_forbidden":
        return "is unknown"
    if kind == "missing":
        return "is missing"
    if is_of_kind(kind):
        return f"should be {_kind(_KINDS[kind.partition('_')[0]])}"
    return str(found["msg"]).removeprefix("Value error, ")


def is_of_kind(kind: str) -> bool:
    """Whether a type of pydantic's findings says: another type, or out of range."""
    first, _, rest = kind.partition("_")
    kinds = ("type", "parsing", "from_float", "parsing_size")
    return kind in _LIMITS or (first in _KINDS and rest in kinds)


def section(annotation: Any) -> type[BaseModel] | None:
    """The model that an annotation stands for, if it is one."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return None


def paths(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Every dotted path of a field of `model`, sections left out."""
    for name, info in model.model_fields.items():
        inner = section(info.annotation)
        if inner is None:
            yield prefix + name
        else:
            yield from paths(inner, f"{prefix}{name}.")


def model_at(model: type[BaseModel], dotted: str) -> type[BaseModel] | None:
    """The section at a dotted path; `model` itself at the empty one."""
    current: type[BaseModel] | None = model
    for name in dotted.split(".") if dotted else []:
        if current is None or name not in current.model_fields:
            return None
        current = section(current.model_fields[name].annotation)
    return current


def find(model: type[BaseModel], keys: tuple[str | int, ...]) -> tuple[FieldInfo | None, bool]:
    """The innermost field on a path, and whether the path leads on into the field's value."""
    current: type[BaseModel] | None = model
    found: FieldInfo | None = None
    for key in keys:
        if current is None or key not in current.model_fields:
            return found, current is None
        found = current.model_fields[str(key)]
        current = section(found.annotation)
    return found, False


def expected(info: FieldInfo, inside: bool = False) -> str:
    """What a field takes, with its range: "a whole number, at least 1, or null".

    Args:
        info: The field.
        inside: Rather what each item of its list takes.
    """
    plain, null = _without_null(info.annotation)
    if inside and get_origin(plain) in (tuple, list):
        return _item(get_args(plain)[0])
    words = _kind(plain)
    limits = _range(info)
    if limits:
        words += f", {limits}"
    if null:
        words += ", or null" if limits else " or null"
    return words


def _item(annotation: Any) -> str:
    if get_origin(annotation) is not Annotated:
        return _kind(annotation)
    limits = _limits(
        [inner for outer in annotation.__metadata__ for inner in getattr(outer, "metadata", ())]
    )
    return _kind(annotation) + (f", {limits}" if limits else "")


def _without_null(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation, False
    rest = [arg for arg in get_args(annotation) if arg is not type(None)]
    if len(rest) == len(get_args(annotation)):
        return annotation, False
    return (rest[0] if len(rest) == 1 else Union[tuple(rest)]), True  # noqa: UP007


def _kind(annotation: Any, many: bool = False) -> str:
    if annotation in _WORDS:
        return _WORDS[annotation][many]
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kind(args[0], many)
    if origin is Literal:
        return "one of " + ", ".join(str(arg) for arg in args)
    if origin in (Union, types.UnionType):
        return " or ".join(_kind(arg, many) for arg in args)
    if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
        return f"a list of {_kind(args[0], many=True)}, as in [a, b]"
    if origin is tuple:
        return f"a list of {len(args)} {_kind(args[0], many=True)}"
    if origin is list:
        return f"a list of {_kind(args[0], many=True)}, as in [a, b]"
    return "a mapping of keys to values"


def _range(info: FieldInfo) -> str:
    return _limits(info.metadata)


def _limits(constraints: Iterable[Any]) -> str:
    limits = {}
    for constraint in constraints:
        for name in ("ge", "gt", "le", "lt"):
            value = getattr(constraint, name, None)
            if value is not None:
                limits[name] = value
    low = f"at least {limits['ge']}" if "ge" in limits else ""
    low = f"above {limits['gt']}" if "gt" in limits else low
    high = f"at most {limits['le']}" if "le" in limits else ""
    high = f"below {limits['lt']}" if "lt" in limits else high
    if "ge" in limits and "le" in limits:
        return f"from {limits['ge']} to {limits['le']}"
    return " and ".join(filter(None, (low, high)))
