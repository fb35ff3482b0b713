"""YAML as this product reads it: plain values only, and where each of them stands.

Scalars follow YAML 1.2's core rules, not 1.1's: ``no``, ``on`` and ``off`` are text (a method may
be called so), ``1e-3`` is a number, ``0012`` and ``12:30`` are text. Anchors, aliases and tags are
refused: they hide what a file says, and tags are how YAML files come to run code.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from attndrop_repro.config.errors import UsageError

Keys = tuple[str | int, ...]

_LARGEST_FILE = 1_000_000
_DEEPEST = 20
_RULES: tuple[tuple[str, str, str], ...] = (
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("null", r"^(?:~|null|Null|NULL|)$", "~nN"),
    ("int", r"^[-+]?(?:0|[1-9][0-9]{0,18})$", "-+0123456789"),
    (
        "float",
        r"^[-+]?(?:(?:(?:0|[1-9][0-9]*)\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
        r"|(?:0|[1-9][0-9]*)[eE][-+]?[0-9]+)$",
        "-+0123456789.",
    ),
)


class _Loader(yaml.SafeLoader):
    pass


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


for _class in (_Loader, _Dumper):
    _class.yaml_implicit_resolvers = {}
    for _name, _pattern, _first in _RULES:
        _firsts = ["", *_first] if _name == "null" else list(_first)
        _class.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(_pattern), _firsts)


@dataclass
class Document:
    """A mapping read from a file, and the place of every key and item of it.

    Attributes:
        source: The file, as messages name it.
        tree: Plain values: dict, list, str, int, float, bool, None.
        places: By path of keys and indices; ``()`` is the whole document.
    """

    source: str
    tree: dict[str, Any]
    places: dict[Keys, str] = field(default_factory=dict)

    def place(self, keys: Keys) -> str:
        """The place of the longest part of `keys` that exists; as in ``digits.yaml:12``."""
        while keys and keys not in self.places:
            keys = keys[:-1]
        return self.places.get(keys, self.source)


class _Problem(Exception):
    """Something in the text, with its line (from 1) or 0."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line
        self.text = text


def read_document(path: Path, what: str) -> Document:
    """Reads a YAML file whose top is a mapping.

    Args:
        path: The file.
        what: What it should be, for messages: "recipe" or "suite".

    Raises:
        UsageError: The file cannot be read as that; the message has file and line.
    """
    shown = _shown(path)
    try:
        if path.is_dir():
            raise UsageError(f"{shown}: is a folder; name a {what} file in it")
        if path.stat().st_size > _LARGEST_FILE:
            raise UsageError(f"{shown}: has more than {_LARGEST_FILE:,} bytes: not a {what}")
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise UsageError(f"{shown}: cannot be read: {reason}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{shown}: is not text in UTF-8, so not a {what}") from None
    document = Document(shown, {})
    try:
        node = _compose(text)
        if node is None or (isinstance(node, yaml.ScalarNode) and node.value == ""):
            raise UsageError(f"{shown}: is empty; `attndrop recipes` lists {what}s to start from")
        if not isinstance(node, yaml.MappingNode):
            raise _Problem(_line(node), f"a {what} is a mapping of keys to values at its top")
        problems: list[_Problem] = []
        document.tree = _value(node, (), document, problems)
    except _Problem as problem:
        raise UsageError(_located(shown, problem)) from None
    if problems:
        raise UsageError("\n".join(_located(shown, problem) for problem in problems))
    return document


def parse_value(text: str) -> Any:
    """The value of a piece of YAML on one line: a scalar, list or mapping.

    Raises:
        UsageError: It is not valid.
    """
    problems: list[_Problem] = []
    try:
        node = _compose(text)
        value = None if node is None else _value(node, (), Document("", {}), problems)
    except _Problem as problem:
        problems = [problem]
    if problems:
        raise UsageError(problems[0].text)
    return value


def dump(tree: dict[str, Any]) -> str:
    """Writes plain values as YAML that `read_document` reads back unchanged."""
    text = yaml.dump(tree, Dumper=_Dumper, sort_keys=False, width=100)
    return str(text)


def _shown(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _located(shown: str, problem: _Problem) -> str:
    return f"{shown}:{problem.line}: {problem.text}" if problem.line else f"{shown}: {problem.text}"


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _compose(text: str) -> yaml.Node | None:
    try:
        depth = 0
        for event in yaml.parse(text, Loader=_Loader):
            line = event.start_mark.line + 1 if event.start_mark else 0
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                raise _Problem(line, "anchors (&) and aliases (*) are not allowed; write it out")
            tag = getattr(event, "tag", None)
            if tag is not None:
                raise _Problem(line, f"tags are not allowed: remove {tag!r}")
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEEPEST:
                raise _Problem(line, f"nested more than {_DEEPEST} deep")
        node: yaml.Node | None = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(filter(None, (error.context, error.problem)))
        raise _Problem(mark.line + 1 if mark else 0, f"not valid YAML: {what}") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        what = " ".join(str(error).split())
        raise _Problem(0, f"not valid YAML: {what}") from None
    return node


def _value(node: yaml.Node, keys: Keys, document: Document, problems: list[_Problem]) -> Any:
    document.places.setdefault(keys, f"{document.source}:{_line(node)}")
    if isinstance(node, yaml.SequenceNode):
        return [
            _value(item, (*keys, index), document, problems)
            for index, item in enumerate(node.value)
        ]
    if isinstance(node, yaml.MappingNode):
        mapping: dict[str, Any] = {}
        for key_node, item in node.value:
            line = _line(key_node)
            if not isinstance(key_node, yaml.ScalarNode):
                problems.append(_Problem(line, "a key must be one word"))
                continue
            key = str(key_node.value)
            inner = (*keys, key)
            if key in mapping:
                first = document.place(inner).rpartition(":")[2]
                name = ".".join(str(part) for part in inner)
                problems.append(_Problem(line, f"key {name!r} stands here again (line {first})"))
                continue
            document.places[inner] = f"{document.source}:{line}"
            mapping[_text(key, line, problems)] = _value(item, inner, document, problems)
        return mapping
    return _scalar(node, problems)


def _scalar(node: yaml.Node, problems: list[_Problem]) -> Any:
    text = str(node.value)
    kind = node.tag.rpartition(":")[2]
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    if kind == "int":
        return int(text)
    if kind == "float" and math.isfinite(float(text)):
        return float(text)
    return _text(text, _line(node), problems)


def _text(text: str, line: int, problems: list[_Problem]) -> str:
    if any(0xD800 <= ord(char) <= 0xDFFF for char in text):
        problems.append(_Problem(line, "has half a surrogate pair, which is not a character"))
    return text
