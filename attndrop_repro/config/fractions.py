"""Perturbation sizes as people write them: ``8/255`` or ``0.031``, where pixels lie in [0, 1]."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from attndrop_repro.config.errors import UsageError

_WHOLE = re.compile(r"[0-9]{1,9}")
_DECIMAL = re.compile(r"[+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?")


class Eps(NamedTuple):
    """A size: `label` as written (``8/255`` and ``0.031`` are two settings), `value` its number."""

    label: str
    value: float


def parse_fraction(text: str | float, what: str = "eps", norm: str = "linf") -> Eps:
    """Reads a size in pixel units; pixels lie in [0, 1] (A12).

    Args:
        text: ``"8/255"``, ``"0.031"``, ``0.031``.
        what: What it is, for the message.
        norm: In which norm. In linf 1 is the largest there can be; in l2, the length over all
            pixels of an image, there may be more.

    Raises:
        UsageError: It is no number, not finite, negative, or above 1 in linf.
    """
    outside = "outside [0, 1]: pixels lie in [0, 1]" if norm == "linf" else "no length of a change"
    written = str(text).strip()
    if isinstance(text, bool):
        raise UsageError(f"{what} {text!r} is not a number; write it as in 8/255 or 0.031")
    above, slash, below = (part.strip() for part in written.partition("/"))
    if slash and _WHOLE.fullmatch(above) and _WHOLE.fullmatch(below):
        if int(below) == 0:
            raise UsageError(f"{what} {written!r} divides by zero")
        label, value = f"{int(above)}/{int(below)}", int(above) / int(below)
    elif not slash and _DECIMAL.fullmatch(written):
        value = float(written)
        label = f"{value:g}" if value == float(f"{value:g}") else repr(value)
    elif written.startswith("-") or written.lower().lstrip("+-.") in ("nan", "inf", "infinity"):
        raise UsageError(f"{what} {written!r} is {outside}")
    else:
        raise UsageError(f"{what} {written!r} is not a number; write it as in 8/255 or 0.031")
    if not math.isfinite(value) or (value > 1 and norm == "linf"):
        hint = f"; did you mean {label}/255?" if value < 256 and value.is_integer() else ""
        raise UsageError(f"{what} {written!r} is {outside}{hint}")
    return Eps(label, value)
