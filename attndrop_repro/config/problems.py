"""From pydantic's findings to lines that say where, what is wrong, and what would be right."""

from __future__ import annotations

import difflib
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
        problems: dict[Keys, Any] = {}
        for found in error.errors(include_url=False):
            keys = _known_part(found["loc"], found["type"], document)
            problems.setdefault(keys, found)
        lines = [
            f"{_place(keys, found['type'], document)}: {_sentence(model, keys, found)}"
            for keys, found in problems.items()
            if not _is_misspelt(keys, problems)
        ]
        raise UsageError("\n".join(lines)) from None


def misplaced(model: type[BaseModel], dotted: str) -> str:
    """A hint for a path that does not exist: the nearest that do, with their full path."""
    known = list(words.paths(model))
    parent, _, last = dotted.rpartition(".")
    same = [path for path in known if path.rpartition(".")[2] == last]
    if same:
        return _did_you_mean(same)
    section = words.model_at(model, parent)
    siblings = list(section.model_fields) if section else []
    close = difflib.get_close_matches(last, siblings, n=3, cutoff=0.6)
    if close:
        return _did_you_mean([f"{parent}.{name}" if parent else name for name in close])
    close = difflib.get_close_matches(dotted, known, n=3, cutoff=0.8)
    if close:
        return _did_you_mean(close)
    ends = {path.rpartition(".")[2] for path in known}
    close = difflib.get_close_matches(last, ends, n=1, cutoff=0.8)
    if close:
        return _did_you_mean([path for path in known if path.rpartition(".")[2] == close[0]])
    return "; there are: " + ", ".join(sorted(siblings or model.model_fields))


def _place(keys: Keys, kind: str, document: Document) -> str:
    """Where to look: for a rule about several keys of a section, at the one set from outside."""
    if kind == "value_error":
        below = [place for known, place in document.places.items() if known[: len(keys)] == keys]
        return next((p for p in reversed(below) if p.startswith("--set ")), document.place(keys))
    return document.place(keys)


def _did_you_mean(paths: list[str]) -> str:
    return "; did you mean " + " or ".join(repr(path) for path in paths[:3]) + "?"


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


def _is_misspelt(keys: Keys, problems: dict[Keys, Any]) -> bool:
    """Whether what is missing is there under a name that is told to be unknown."""
    if problems[keys]["type"] != "missing":
        return False
    strange = [
        str(other[-1])
        for other, found in problems.items()
        if found["type"] == "extra_forbidden" and other[:-1] == keys[:-1]
    ]
    return bool(difflib.get_close_matches(str(keys[-1]), strange, cutoff=0.6))


def _sentence(model: type[BaseModel], keys: Keys, found: Any) -> str:
    dotted = ".".join(str(key) for key in keys)
    info, inside = words.find(model, keys)
    kind = found["type"]
    if kind == "extra_forbidden":
        return f"unknown key {dotted!r}{misplaced(model, dotted)}"
    if kind == "missing":
        what = "a section" if info is None or words.section(info.annotation) else ""
        what = what or (words.expected(info) if info else "")
        about = f" ({info.description})" if info and info.description else ""
        return f"{dotted} is missing: {what}{about}"
    if kind == "value_error":
        message = words.complaint(found)
        return f"{dotted}: {message}" if dotted else message
    given = _shown(found["input"])
    if info is None:
        return f"{dotted} = {given}: {words.complaint(found)}"
    if words.section(info.annotation):
        return f"{dotted} = {given}: is a section, so a mapping of keys to values"
    if kind == "string_pattern_mismatch":
        return f"{dotted} = {given}: up to 80 lower-case letters, digits, '.', '_', '-'"
    sentence = f"{dotted} = {given}: expected {words.expected(info, inside)}"
    if kind == "literal_error" and isinstance(found["input"], str):
        options = words.expected(info, inside).removeprefix("one of ").split(", ")
        hint = nearest(found["input"], options)
        sentence += hint if "did you mean" in hint else ""
    if kind == "string_type" and isinstance(found["input"], int | float):
        sentence += "; put it in quotes"
    return sentence


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
