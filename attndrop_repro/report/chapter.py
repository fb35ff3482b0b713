"""Everything that is shown of one recipe, before it has a format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attndrop_repro.report import costs, origins, tables
from attndrop_repro.report.comparisons import compare
from attndrop_repro.report.figures.canvas import Picture
from attndrop_repro.report.figures.forest import forest
from attndrop_repro.report.figures.gradients import gradients
from attndrop_repro.report.figures.learning import learning
from attndrop_repro.report.figures.reliability import reliability
from attndrop_repro.report.figures.robustness import robustness
from attndrop_repro.report.findings import Summary, summarise
from attndrop_repro.report.group import Group
from attndrop_repro.report.prose import Text, say
from attndrop_repro.report.table import Table


@dataclass(frozen=True)
class Section:
    """A heading with what stands below it.

    Attributes:
        name: For anchors.
        title: Heading.
        intro: A sentence; empty for none.
        pictures: Figures, in order.
        tables: Tables, in order.
        folded: Tables that a page shows only when asked.
    """

    name: str
    title: str
    intro: Text = ()
    pictures: tuple[Picture, ...] = ()
    tables: tuple[Table, ...] = ()
    folded: tuple[Table, ...] = ()


@dataclass(frozen=True)
class Chapter:
    """One recipe of a suite.

    Attributes:
        group: Its runs and numbers.
        folder: Of its files in the report, as in "" or "digits-vit/".
        summary: What is said first.
        cautions: What a reader must know before believing the numbers.
        sections: All else.
        days: First and last day of measurement; None without any.
    """

    group: Group
    folder: str
    summary: Summary
    cautions: tuple[Text, ...]
    sections: tuple[Section, ...]
    days: tuple[str, str] | None

    def tables(self) -> list[Table]:
        """All tables, in order."""
        return [table for section in self.sections for table in (*section.tables, *section.folded)]

    def pictures(self) -> list[Picture]:
        """All figures, in order."""
        return [picture for section in self.sections for picture in section.pictures]


def chapter(group: Group, folder: str) -> Chapter:
    """Computes and draws everything of a group."""
    comparisons = compare(group)
    compared = any(one.difference is not None for one in comparisons)
    robust = tables.robustness_table(group)
    facts = (
        origins.open_point_table(group),
        tables.settings_table(group),
        origins.provenance_table(group),
    )
    sections = [
        Section("results", "Results", tables=(tables.main_table(group),)),
        Section(
            "differences",
            "Differences from the baseline",
            pictures=tuple(forest(group, comparisons)),
            folded=(tables.difference_table(group, comparisons),) if compared else (),
            intro=()
            if compared
            else say("Nothing is compared: {why}.", why=group.no_baseline or "no numbers yet"),
        ),
        _illustrated(
            "calibration",
            "Calibration",
            reliability(group),
            "No reliability diagram: no run has an ECE with its bins on the test split.",
        ),
        Section(
            "robustness",
            "Robustness",
            pictures=tuple(robustness(group)),
            tables=(robust,) if len(robust.columns) > 1 else (),
            intro=() if len(robust.columns) > 1 else say("No attack was measured."),
        ),
        _illustrated(
            "gradients",
            "Gradient variance",
            gradients(group),
            "Gradient variance was not measured.",
        ),
        _illustrated(
            "learning", "Learning curves", learning(group), "The store has no training histories."
        ),
        _costs(group),
        Section("runs", "Runs", tables=(tables.run_table(group),)),
        Section(
            "origins",
            "Settings and provenance",
            folded=tuple(table for table in facts if table.rows),
            intro=()
            if any(table.rows for table in facts)
            else say("The store has no run folders."),
        ),
    ]
    return Chapter(
        group,
        folder,
        summarise(group, comparisons),
        group.cautions,
        tuple(sections),
        origins.measured_between(group),
    )


def _costs(group: Group) -> Section:
    made = [table for table in (costs.step_table(group), costs.attention_table(group)) if table]
    return Section(
        "costs", "Cost", tables=tuple(made), intro=() if made else costs.hint(group.recipe)
    )


def _illustrated(name: str, title: str, pictures: Sequence[Picture], without: str) -> Section:
    return Section(name, title, pictures=tuple(pictures), intro=() if pictures else say(without))
