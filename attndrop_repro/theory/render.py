"""The errata as rows and as the page `docs/errata.md`, both from the checks themselves."""

from __future__ import annotations

from typing import TypedDict

from attndrop_repro.theory.erratum import Erratum, errata

PAPERS = {
    "E": "AttentionDrop (arXiv 2504.12088)",
    "X": "Explicit dropout (Agrawal, Oleksiienko, Iosifidis)",
}

_HEAD = """# Errata

What the papers print, what is true, and what this product does about it. Every entry is a check
that computes both sides; this page is written by `attndrop errata --markdown` and a test fails when
it is stale. Run `attndrop errata` to see the checks run, `attndrop errata E6` for one of them.
"""


class Row(TypedDict):
    """One erratum with what its check found."""

    id: str
    title: str
    place: str
    printed: str
    true: str
    consequence: str
    confirmed: bool
    numbers: dict[str, float]


def row(entry: Erratum) -> Row:
    """Runs the check of one erratum."""
    found = entry.check()
    return Row(
        id=entry.id, title=entry.title, place=entry.place, printed=found.printed, true=found.true,
        consequence=entry.consequence, confirmed=found.confirmed, numbers=found.numbers,
    )  # fmt: skip


def rows() -> list[Row]:
    """Runs all checks, E1 to E17, then X1 to X8."""
    return [row(entry) for entry in errata()]


def markdown() -> str:
    """The page `docs/errata.md`."""
    parts, paper = [_HEAD], ""
    for entry in rows():
        if entry["id"][0] != paper:
            paper = entry["id"][0]
            parts.append(f"## {PAPERS[paper]}\n")
        verdict = "" if entry["confirmed"] else "\n\n**Not confirmed by the check.**"
        parts.append(
            f"### {entry['id']}: {_escape(entry['title'])}\n\n"
            f"- Where: {_escape(entry['place'])}\n"
            f"- Printed: {_escape(entry['printed'])}\n"
            f"- True: {_escape(entry['true'])}\n"
            f"- Here: {_escape(entry['consequence'])}{verdict}\n"
        )
    return "\n".join(parts)


def _escape(text: str) -> str:
    """Outside of backticks nothing may be read as mark-up."""
    pieces = text.split("`")
    for i in range(0, len(pieces), 2):
        pieces[i] = "".join("\\" + c if c in "*_[]<>#|" else c for c in pieces[i])
    return "`".join(pieces)
