"""The report as one Markdown document."""

from __future__ import annotations

from collections.abc import Sequence

from attndrop_repro.config.suite import Suite
from attndrop_repro.report import markdown
from attndrop_repro.report.chapter import Chapter
from attndrop_repro.report.figures.canvas import Picture
from attndrop_repro.report.markdown import escaped, prose
from attndrop_repro.report.prose import Text


def document(suite: Suite, chapters: Sequence[Chapter]) -> str:
    """The whole report; figures are linked files beside it.

    Args:
        suite: What was compared.
        chapters: One a recipe.
    """
    parts = [f"# {escaped(suite.title)}"]
    for one in chapters:
        several = len(chapters) > 1
        if several:
            parts.append(f"## Recipe {escaped(one.group.recipe)}")
        parts += _chapter(one, "###" if several else "##")
    return "\n\n".join(part for part in parts if part) + "\n"


def _chapter(one: Chapter, level: str) -> list[str]:
    days = ""
    if one.days:
        first, last = one.days
        days = f" Measured {first}." if first == last else f" Measured {first} to {last}."
    parts = [
        f"{level} Summary",
        prose(one.summary.lede),
        prose(one.summary.compared) + days,
    ]
    if one.cautions:
        parts += [f"{level}# Before you read on", _list(one.cautions)]
    parts.append(f"{level}# What the data show")
    parts.append(
        "\n".join(
            f"- **{escaped(finding.quantity.title)}** ({finding.verdict}): {prose(finding.text)}"
            for finding in one.summary.findings
        )
        or "Nothing yet: no method and seed that the baseline has too."
    )
    parts += [f"{level}# What they do not show", _list(one.summary.limits)]
    for section in one.sections:
        parts += [f"{level} {escaped(section.title)}", prose(section.intro)]
        parts += [_picture(picture, one.folder) for picture in section.pictures]
        parts += [markdown.table(table) for table in section.tables]
        for table in section.folded:
            parts += [f"{level}# {escaped(table.title)}", markdown.table(table)]
    return parts


def _list(items: Sequence[Text]) -> str:
    return "\n".join(f"- {prose(item)}" for item in items)


def _picture(picture: Picture, folder: str) -> str:
    image = f"![{escaped(picture.alt)}]({folder}figures/{picture.name}.svg)"
    return f"**{escaped(picture.title)}.** {prose(picture.caption)}\n\n{image}"
