"""The errors that a user sees: one line that says what is wrong and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class AttndropError(Exception):
    """Something failed that the user can act on; printed as one line, exit status 1."""

    exit_code = 1


class UsageError(AttndropError):
    """The request itself is wrong (a typo, a value out of range); exit status 2."""

    exit_code = 2


def nearest(word: str, known: Iterable[str]) -> str:
    """Returns a hint such as ``; did you mean 'dropkey'?``, or what there is when nothing is near.

    Args:
        word: What the user wrote.
        known: Every valid word.
    """
    words = sorted(known)
    close = difflib.get_close_matches(word, words, n=3, cutoff=0.6)
    if not close and len(word) > 2:  # part of a name, as in "blur"
        close = [known for known in words if word.lower() in known.lower()][:3]
    if close:
        return "; did you mean " + " or ".join(repr(w) for w in close) + "?"
    more = f" and {len(words) - 20} more" if len(words) > 20 else ""
    return "; there are: " + ", ".join(words[:20]) + more if words else ""


def unknown(what: str, word: str, known: Iterable[str]) -> UsageError:
    """An error for a name that does not exist, with the nearest ones.

    Args:
        what: The kind of thing, as in "method".
        word: What the user wrote.
        known: Every valid name.
    """
    return UsageError(f"unknown {what} {word!r}{nearest(word, known)}")
