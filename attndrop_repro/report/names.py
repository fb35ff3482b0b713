"""What a method's name tells without its code: its parts, and how many passes a step takes.

The report must not import the methods (they import torch). A run says its number of passes in its
provenance; the names below serve runs that do not. A test holds them to the registry.
"""

from __future__ import annotations

TWO_PASSES = frozenset({"consistency", "rdrop"})


def parts(name: str) -> tuple[str, ...]:
    """The parts of a composition, in the order written."""
    return tuple(word for word in (part.strip() for part in name.split("+")) if word)


def same(name: str) -> frozenset[str]:
    """What two spellings of one composition have in common."""
    found = frozenset(parts(name))
    return found - {"none"} if len(found) > 1 else found


def passes(name: str) -> int:
    """Forward passes a training step, by the name."""
    return 2 if TWO_PASSES & same(name) else 1
