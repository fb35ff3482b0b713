"""Sentences with names in them, to be escaped by each format in its own way."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Code:
    """A name as users write it: a method, a setting, a command."""

    text: str


Text = tuple[str | Code, ...]


def say(template: str, **values: object) -> Text:
    """A sentence.

    Args:
        template: With ``{name}`` where a value goes; nothing in it is markup.
        values: `Code` and `Text` keep their kind; all else becomes plain text.
    """
    found: list[str | Code] = []
    for literal, name, _, _ in string.Formatter().parse(template):
        found.append(literal)
        if name is not None:
            value = values[name]
            if isinstance(value, tuple):
                found.extend(value)
            else:
                found.append(value if isinstance(value, Code) else str(value))
    return tuple(part for part in found if part != "")


def listed(words: Sequence[str | Code], *, last: str = "and") -> Text:
    """As in "a, b and c"."""
    found: list[str | Code] = []
    for index, word in enumerate(words):
        if index:
            found.append(f" {last} " if index == len(words) - 1 else ", ")
        found.append(word)
    return tuple(found)


def plain(text: Text) -> str:
    """Without marks."""
    return "".join(part.text if isinstance(part, Code) else part for part in text)


def count(number: int, one: str, many: str = "") -> str:
    """As in "1 run", "3 runs"."""
    return f"{number} {one}" if number == 1 else f"{number} {many or one + 's'}"
