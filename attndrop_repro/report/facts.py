"""Nested settings and provenance as plain lines: dotted names with values in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_LONGEST = 160


def flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Name and value of every leaf, names sorted.

    Args:
        value: As from JSON.
        prefix: In front of every name.
    """
    for key in sorted(value, key=str):
        inner = value[key]
        if isinstance(inner, Mapping):
            yield from flat(inner, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", in_words(inner)


def in_words(value: Any) -> str:
    """A value on one line: lists without brackets, nothing as "none", truth as "yes" or "no"."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        text = ", ".join(f"{key} {in_words(value[key])}" for key in sorted(value, key=str))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        text = ", ".join(in_words(one) for one in value)
    else:
        text = str(value)
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
