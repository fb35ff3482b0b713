"""A figure's SVG as part of a page: ids of its own, colours that follow the page's theme."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape

_ID = re.compile(r'\bid="([^"]+)"')
_REFERENCE = re.compile(r'(url\(#|href="#)([^)"]+)')
_COLOUR = re.compile(r"(?<=: )#[0-9a-f]{6}\b")
_HEAD = re.compile(r"^.*?<svg\b[^>]*>", re.DOTALL)
_STYLE = re.compile(r"\s*<defs>\s*<style\b.*?</style>\s*</defs>", re.DOTALL)
_VIEW = re.compile(r'viewBox="([^"]+)"')
_METADATA = re.compile(r"\s*<metadata>.*?</metadata>", re.DOTALL)
_FONT = re.compile(r"'DejaVu Sans'(?:, [^;\"]+)?")


def inline(svg: str, name: str, alt: str, themed: Mapping[str, str]) -> str:
    """The element to put into a page.

    Args:
        svg: A file that `figures.canvas.rendered` made.
        name: Prefix of its ids; unique on the page.
        alt: What a screen reader says.
        themed: Colours with their counterparts on a dark page; each becomes a CSS variable with
            the light one as its fallback.
    """
    view = _VIEW.search(svg)
    body = _STYLE.sub("", _METADATA.sub("", _HEAD.sub("", svg, count=1)), count=1)
    body = _ID.sub(lambda found: f'id="{name}-{found[1]}"', body)
    body = _REFERENCE.sub(lambda found: f"{found[1]}{name}-{found[2]}", body)
    body = _FONT.sub("inherit", body)
    body = _COLOUR.sub(
        lambda found: variable(found[0]) if found[0] in themed else found[0],
        body,
    )
    box = f' viewBox="{view[1]}"' if view else ""
    return f'<svg role="img" aria-label="{escape(alt)}"{box}>{body.strip()}'


def variable(colour: str) -> str:
    """A colour as a CSS variable, as in ``var(--c4a4f57,#4a4f57)``."""
    return f"var(--c{colour[1:]},{colour})"
