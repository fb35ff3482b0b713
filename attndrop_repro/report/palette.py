"""One look a method everywhere: colour, and dash and marker for those who cannot tell colours.

The colours of the methods that the papers compare most were chosen so that any two differ under
simulated protanopia and deuteranopia, on white and on the dark page; a test holds them to that.
Every other method, and every other composition, gets a look that depends on its name alone.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from attndrop_repro.report import names

INK = "#1d2126"
MUTED = "#626b77"
GRID = "#e1e5ea"
SHADE = "#eef0f3"
PAPER = "#ffffff"

# The same on a dark page.
DARK = {INK: "#e8eaed", MUTED: "#9aa4b1", GRID: "#2c323b", SHADE: "#20252d", PAPER: "#14171c"}


@dataclass(frozen=True)
class Look:
    """How a method is drawn.

    Attributes:
        colour: On white.
        dark: On the dark page.
        marker: matplotlib's.
        dash: matplotlib's: on and off lengths; empty for a solid line.
        hollow: Whether markers are filled with paper.
    """

    colour: str
    dark: str
    marker: str = "o"
    dash: tuple[float, ...] = ()
    hollow: bool = False


_DASH = (4.0, 1.6)
_KNOWN = {
    "none": Look("#4a4f57", "#c9cbd2", "o"),
    "dropout": Look("#c38500", "#eeb533", "s"),
    "attention-dropout": Look("#857322", "#b9ac61", "P"),
    "dropconnect": Look("#199b8e", "#45b49c", "D"),
    "rdrop": Look("#a64f9b", "#d687c6", "v"),
    "dropkey": Look("#589c3c", "#8fcf5b", "X"),
    "dropattention": Look("#d46a94", "#f693b6", "p"),
    "stochastic-depth": Look("#7a5230", "#c79a72", "h"),
    "drophead": Look("#5b5bb5", "#a3a3f0", "d"),
    "dropdim": Look("#2f7f9e", "#72c1de", "<"),
    "explicit-dropout": Look("#9c3848", "#ee8795", "8"),
    "arora": Look("#6d8a3a", "#b5d27f", "*"),
    "attendout": Look("#7b3fa0", "#c295e6", "H"),
    "attentiondrop-hard": Look("#2c7fd1", "#5aa9f5", "^"),
    "attentiondrop-blur": Look("#ce6234", "#fb7b47", ">"),
    "attentiondrop-hard+consistency": Look("#0c3b7b", "#b6d6ff", "^", _DASH, hollow=True),
    "attentiondrop-blur+consistency": Look("#8f2b05", "#ffc2a1", ">", _DASH, hollow=True),
}
_BY_SPELLING = {names.same(name): look for name, look in _KNOWN.items()}

_FURTHER = (
    ("#3f7cac", "#86bce6"),
    ("#b3541e", "#f0a06f"),
    ("#3d8b5f", "#7fd0a2"),
    ("#8a4fbf", "#c39bef"),
    ("#a6761d", "#dcb15c"),
    ("#c2417c", "#f58bb8"),
    ("#4d6b8a", "#9db9d6"),
    ("#6b6b1f", "#bdbd62"),
    ("#1f7a7a", "#62c4c4"),
    ("#8c564b", "#cf9d92"),
)
_MARKERS = ("o", "s", "D", "v", "^", "<", ">", "p", "h", "X", "P", "*", "d")
_DASHES = ((), _DASH, (1.2, 1.4), (5.0, 1.4, 1.2, 1.4), (2.4, 1.2))


def look(method: str) -> Look:
    """The look of a method or composition; the same in every report, for every spelling."""
    spelling = names.same(method)
    if spelling in _BY_SPELLING:
        return _BY_SPELLING[spelling]
    base = _BY_SPELLING.get(spelling - {"consistency"})
    if base is not None and "consistency" in spelling:
        return Look(
            _mixed(base.colour, "#000000", 0.45),
            _mixed(base.dark, "#ffffff", 0.5),
            base.marker,
            _DASH,
            hollow=True,
        )
    digest = hashlib.sha256("+".join(sorted(spelling)).encode()).digest()
    colour, dark = _FURTHER[digest[0] % len(_FURTHER)]
    return Look(
        colour,
        dark,
        _MARKERS[digest[1] % len(_MARKERS)],
        _DASHES[digest[2] % len(_DASHES)],
        hollow=bool(digest[3] % 2),
    )


def _mixed(colour: str, other: str, share: float) -> str:
    pairs = [(int(colour[i : i + 2], 16), int(other[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(a * (1 - share) + b * share):02x}" for a, b in pairs)
