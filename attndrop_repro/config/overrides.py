"""``KEY=VALUE`` from the command line, put into a recipe before it is checked."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from attndrop_repro.config import words
from attndrop_repro.config.errors import UsageError, nearest
from attndrop_repro.config.problems import misplaced
from attndrop_repro.config.recipe import FOR_ANY_METHOD, Recipe
from attndrop_repro.config.yaml_text import Document, Keys, parse_value

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


def apply_overrides(document: Document, overrides: Sequence[str]) -> None:
    """Puts overrides into a document, in order; the last of one key counts.

    A key is a path in the recipe (``training.epochs=3``), a method's setting
    (``dropkey.p=0.3``), or a setting of whichever part of the run's method has it (``p=0.3``). The
    latter two are kept under ``settings.*`` until the method is known (`settings_for`).

    Raises:
        UsageError: Not ``KEY=VALUE``, or a path that does not exist; one line for each.
    """
    problems = []
    for written in overrides:
        text = " ".join(written.split())  # a message is one line
        try:
            keys, value = _parsed(written)
        except UsageError as error:
            problems.append(f"--set {text}: {error}")
            continue
        _put(document, keys, value, f"--set {text}")
    if problems:
        raise UsageError("\n".join(problems))


def settings_for(
    recipe: Recipe, parts: Sequence[str], fields: Mapping[str, Collection[str]]
) -> dict[str, dict[str, Any]]:
    """The settings that a recipe and its overrides give to the parts of a method.

    Config may not know the methods, so the caller says which parts there are and what they take.

    Args:
        recipe: As loaded.
        parts: Names of the method's parts, as in ``["attentiondrop-blur", "consistency"]``.
        fields: By part, the names of its settings.

    Returns:
        By part, what is given, unchecked; all else is at the method's defaults.

    Raises:
        UsageError: A setting that no part has, or that a bare name leaves open.
    """
    method = "+".join(parts)
    given = {part: dict(recipe.settings.get(part, {})) for part in parts}
    for part, values in given.items():
        for name in values:
            if name not in fields[part]:
                raise UsageError(
                    f"settings.{part}.{name}: {part!r} has no such setting"
                    f"{nearest(name, fields[part])}"
                )
    outside = recipe.settings.get(FOR_ANY_METHOD, {})
    # Bare names first, so that the one that names its method wins whatever the order.
    for key in sorted(outside, key=lambda key: "." in key):
        part, _, name = key.rpartition(".")
        if part:
            part = _part(part, parts, key)
            _check_setting(key, name, [part], fields)
        else:
            owners = [owner for owner in parts if name in fields[owner]]
            if len(owners) > 1:
                choices = " or ".join(f"{owner}.{name}=..." for owner in owners)
                raise UsageError(f"--set {name}: {method!r} has it more than once: use {choices}")
            if not owners:
                _check_setting(key, name, parts, fields)
            part = owners[0]
        given[part][name] = outside[key]
    return given


def _check_setting(
    key: str, name: str, parts: Sequence[str], fields: Mapping[str, Collection[str]]
) -> None:
    known = {field for part in parts for field in fields[part]}
    if name in known:
        return
    method = "+".join(parts)
    paths = [path for path in words.paths(Recipe) if path.rpartition(".")[2] == name]
    if paths:
        hint = "; did you mean " + " or ".join(repr(path) for path in paths[:3]) + "?"
    else:
        hint = nearest(name, known) or "; it has no settings"
    raise UsageError(f"--set {key}: {method!r} has no setting {name!r}{hint}")


def _part(word: str, parts: Sequence[str], key: str) -> str:
    name = word.replace("_", "-")
    if name in parts:
        return name
    method = "+".join(parts)
    sections = nearest(word, (f for f, i in Recipe.model_fields.items()))
    hint = nearest(name, parts)
    if "did you mean" in sections and "did you mean" not in hint:
        hint = sections
    raise UsageError(f"--set {key}: {word!r} is no part of this run's method {method!r}{hint}")


def _parsed(text: str) -> tuple[Keys, Any]:
    key, equals, value = text.partition("=")
    key, value = key.strip(), value.strip()
    if not equals or not key:
        raise UsageError("write KEY=VALUE, as in training.epochs=3")
    if not value:
        raise UsageError("has no value; write null for none")
    keys = tuple(key.split("."))
    if not all(_WORD.fullmatch(part) for part in keys):
        raise UsageError(
            f"{' '.join(key.split())!r} is no path of names joined by dots{misplaced(Recipe, key)}"
        )
    return _resolved(keys), parse_value(value)


def _resolved(keys: tuple[str, ...]) -> Keys:
    """The path in the recipe that a key stands for."""
    first = keys[0]
    if first not in Recipe.model_fields:
        known = list(words.paths(Recipe))
        dotted = ".".join(keys)
        if len(keys) > 1 and difflib.get_close_matches(dotted, known, n=1, cutoff=0.85):
            raise UsageError(f"there is no {dotted!r}{misplaced(Recipe, dotted)}")
        return ("settings", FOR_ANY_METHOD, dotted)
    if first == "settings" and len(keys) > 2:
        return ("settings", FOR_ANY_METHOD, ".".join(keys[1:]))
    model: Any = Recipe
    for index, key in enumerate(keys):
        if key not in model.model_fields:
            dotted = ".".join(keys)
            raise UsageError(f"there is no {dotted!r} in a recipe{misplaced(Recipe, dotted)}")
        annotation = model.model_fields[key].annotation
        inner = words.section(annotation)
        if inner is None:
            rest = keys[index + 1 :]
            if rest and words.expected(model.model_fields[key]) != "a mapping of keys to values":
                dotted = ".".join(keys[: index + 1])
                raise UsageError(f"{dotted!r} is one value: nothing is inside it")
            return keys
        model = inner
    fields = ", ".join(f"{'.'.join(keys)}.{name}" for name in model.model_fields)
    raise UsageError(f"{'.'.join(keys)!r} is a section; set one of {fields}")


def _put(document: Document, keys: Keys, value: Any, place: str) -> None:
    target: Any = document.tree
    for key in keys[:-1]:
        if target.get(key) is None:
            target[key] = {}
        target = target[key]
        if not isinstance(target, dict):
            return  # the file has a value where a section belongs: the check will say so
    target[keys[-1]] = value
    for known in [known for known in document.places if known[: len(keys)] == keys]:
        del document.places[known]
    document.places[keys] = place
