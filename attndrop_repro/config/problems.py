"""From pydantic's findings to lines that say where, what is wrong, and what would be right."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from attndrop_repro.config import words
from attndrop_repro.config.errors import UsageError, nearest
from attndrop_repro.config.yaml_text import Document, Keys

M = TypeVar("M", bound=BaseModel)


def checked(model: type[M], document: Document) -> M:
    """Validates a document, strictly: no text for a number, no true for 1.

    Raises:
        UsageError: One line for each problem: place, what is wrong, what is allowed.
    """
    try:
        # As JSON, because strict Python input would want tuples, which no YAML file has.
        return model.model_validate_json(json.dumps(document.tree), strict=True)
    except ValidationError as error:
        lines: dict[str, None] = {}
        told: set[Keys] = set()
        for found in error.errors(include_url=False, include_context=False):
            keys = _known_part(found["loc"], found["type"], document)
            if keys not in told:
                told.add(keys)
                lines[f"{document.place(keys)}: {_sentence(model, keys, found)}"] = None
        raise UsageError("\n".join(lines)) from None


def misplaced(model: type[BaseModel], dotted: str) -> str:
    """A hint for a path that does not exist: the nearest that do, with their full path."""
    known = list(words.paths(model))
    last = dotted.rpartition(".")[2]
    same = [path for path in known if path.rpartition(".")[2] == last]
    if same:
        return "; did you mean " + " or ".join(repr(path) for path in same[:3]) + "?"
    hint = nearest(dotted, known)
    if hint.startswith("; did you mean"):
        return hint
    parent = dotted.rpartition(".")[0]
    siblings = [path for path in known if path.rpartition(".")[0] == parent]
    hint = nearest(dotted, siblings)
    if siblings and (parent or hint.startswith("; did you mean")):
        return hint
    hint = nearest(last, {path.rpartition(".")[2] for path in known})
    if not hint.startswith("; did you mean"):
        return nearest(dotted, model.model_fields)
    near = [path for path in known if repr(path.rpartition(".")[2]) in hint]
    return "; did you mean " + " or ".join(repr(path) for path in near[:3]) + "?"


def _known_part(loc: tuple[str | int, ...], kind: str, document: Document) -> Keys:
    """The part of pydantic's location that names a place; the rest are tags of unions."""
    if kind == "missing":
        return loc
    node: Any = document.tree
    for length, key in enumerate(loc):
        items = dict(enumerate(node)) if isinstance(node, list) else node
        if not isinstance(items, dict) or key not in items:
            return loc[:length]
        node = items[key]
    return loc


def _sentence(model: type[BaseModel], keys: Keys, found: Any) -> str:
    dotted = ".".join(str(key) for key in keys)
    info = words.find(model, keys)
    kind = found["type"]
    if kind == "extra_forbidden":
        return f"unknown key {dotted!r}{misplaced(model, dotted)}"
    if kind == "missing":
        what = "a section" if info is None or words.section(info.annotation) else ""
        what = what or (words.expected(info) if info else "")
        about = f" ({info.description})" if info and info.description else ""
        return f"{dotted} is missing: {what}{about}"
    if kind == "value_error":
        message = found["msg"].removeprefix("Value error, ")
        return f"{dotted}: {message}" if dotted else message
    given = _shown(found["input"])
    if info is None:
        return f"{dotted} = {given}: {found['msg']}"
    if words.section(info.annotation):
        return f"{dotted} = {given}: is a section, so a mapping of keys to values"
    if kind == "string_pattern_mismatch":
        return f"{dotted} = {given}: up to 80 lower-case letters, digits, '.', '_', '-'"
    sentence = f"{dotted} = {given}: expected {words.expected(info)}"
    if kind == "literal_error" and isinstance(found["input"], str):
        options = words.expected(info).removeprefix("one of ").split(", ")
        hint = nearest(found["input"], options)
        sentence += hint if "did you mean" in hint else ""
    if kind == "string_type" and isinstance(found["input"], int | float):
        sentence += "; put it in quotes"
    return sentence


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
