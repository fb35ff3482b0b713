"""The tables of a group of runs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from attndrop_repro.report import cells, statistics
from attndrop_repro.report.comparisons import Comparison, family_size, headline, unmeasured
from attndrop_repro.report.facts import flat
from attndrop_repro.report.group import Group
from attndrop_repro.report.prose import Code, Text, count, listed, say
from attndrop_repro.report.quantities import ACCURACY, GRADIENT_VARIANCE, SECONDS, Quantity, written
from attndrop_repro.report.table import Cell, Column, Table

_METHOD = Column("method", "Method", numeric=False)
_MOST_NAMED = 6


def main_table(group: Group) -> Table:
    """Every method on every headline quantity: mean, 95 % interval and n."""
    quantities = headline(group)
    columns = [_METHOD, Column("passes", "Passes")]
    columns += [_column(quantity, group) for quantity in quantities]
    columns += [
        Column("train_seconds", "Training", "s", -1, suffixes=cells.ESTIMATE),
        Column("train_seconds_ratio", "Time ratio", "×"),
    ]
    rows = []
    for method in group.methods:
        row = [cells.name(method), cells.number(group.passes(method))]
        row += [_estimate(group, quantity, method) for quantity in quantities]
        row += [_estimate(group, SECONDS, method), _ratio(group, method)]
        rows.append(tuple(row))
    notes = [_explanation(group), *_left_out(group), *_two_passes(group), *_gaps(group, quantities)]
    return Table("main", "Methods", tuple(columns), tuple(rows), notes=tuple(notes))


def robustness_table(group: Group) -> Table:
    """Accuracy under every attack at every eps."""
    quantities = [quantity for attack in group.attacks() for quantity in group.grid(attack)]
    columns = [_METHOD, *(_column(quantity, group) for quantity in quantities)]
    rows = tuple(
        (cells.name(method), *(_estimate(group, quantity, method) for quantity in quantities))
        for method in group.methods
    )
    notes: list[Text] = [
        say(
            "Share of test examples still classified correctly. eps is the largest change of a "
            "pixel, pixels in [0, 1]. Cells: mean, 95 % t-interval over seeds, n seeds."
        )
    ]
    if not quantities:
        notes = [say("No attack was measured.")]
    return Table("robustness", "Robust accuracy", tuple(columns), rows, notes=tuple(notes))


def difference_table(group: Group, comparisons: Sequence[Comparison]) -> Table:
    """Paired differences from the baseline with tests."""
    columns = (
        Column("quantity", "Quantity", numeric=False, csv_only=True),
        _METHOD,
        Column("scale", "Scale", numeric=False, csv_only=True),
        Column("difference", "Difference", suffixes=cells.ESTIMATE),
        Column("p", "p"),
        Column("p_holm", "p (Holm)"),
        Column("detectable", "Smallest detectable"),
    )
    rows: list[tuple[Cell, ...]] = []
    groups: dict[int, str] = {}
    for quantity, ones in groupby(comparisons, key=lambda one: one.quantity):
        unit = quantity.unit_apart
        arrow = _column(quantity, group).arrow
        groups[len(rows)] = f"{_title(quantity, group)}{f', {unit}' if unit else ''}{arrow}"
        rows += [_comparison(one) for one in ones]
    baseline = group.baseline
    if baseline is None:
        notes = [say("Nothing is compared: {why}.", why=group.no_baseline)]
    else:
        notes = [
            say(
                "Method minus {baseline}, seed by seed (gradient variance: over it, geometric "
                "mean): mean, 95 % t-interval, n pairs. p: paired "
                "t test, two-sided; Holm corrects it over the {family} of this table. Smallest "
                "detectable: the true difference that a test with this n and this spread finds "
                "with power 0.8 at alpha 0.05, before Holm. A difference that is not significant "
                "is not shown to be absent.",
                baseline=Code(baseline),
                family=count(family_size(comparisons), "test"),
            )
        ]
    return Table(
        "differences",
        f"All differences from {baseline}, with tests",
        columns,
        tuple(rows),
        groups,
        tuple(notes),
    )


def run_table(group: Group) -> Table:
    """Every run of the suite, failed and absent ones included."""
    columns = (
        _METHOD,
        Column("seed", "Seed"),
        Column("status", "Status", numeric=False),
        Column("message", "Reason", numeric=False, optional=True, wide=True),
        Column("accuracy", "Test accuracy", "%"),
        Column("train_seconds", "Training", "s"),
        Column("run_id", "Run", numeric=False),
        Column("config_hash", "Configuration", numeric=False),
        Column("code_version", "Code", numeric=False),
        Column("device", "Device", numeric=False),
    )
    rows = []
    for method, seed, run in group.listed():
        if run is None:
            rows.append(
                (
                    cells.name(method),
                    cells.number(seed),
                    Cell("no run", missing=True, raw={"": "no run"}),
                    *(cells.text("") for _ in range(7)),
                )
            )
            continue
        status = Cell(run.status, strong=run.status == "failed", raw={"": run.status})
        rows.append(
            (
                cells.name(method),
                cells.number(seed),
                status,
                cells.text(" ".join(run.message.split())),
                _single(group, ACCURACY, method, seed),
                _single(group, SECONDS, method, seed),
                cells.name(run.run_id),
                cells.name(run.config_hash) if run.config_hash else cells.text(""),
                cells.text(_of_row(group, method, seed, "code_version")),
                cells.text(_of_row(group, method, seed, "device")),
            )
        )
    return Table("runs", "Runs", columns, tuple(rows))


def settings_table(group: Group) -> Table:
    """Settings of every method as its runs have them."""
    columns = (
        _METHOD,
        Column("part", "Part", numeric=False),
        Column("setting", "Setting", numeric=False),
        Column("value", "Value", numeric=False),
    )
    rows: list[tuple[Cell, ...]] = []
    for method in group.methods:
        runs = [group.runs[method, seed] for seed in group.seeds if (method, seed) in group.runs]
        settings = next((run.settings for run in runs if run.settings), {})
        for part in sorted(settings):
            for key, value in flat(settings[part]):
                rows.append(
                    (cells.name(method), cells.name(part), cells.name(key), cells.text(value))
                )
    return Table("settings", "Settings of the methods", columns, tuple(rows))


def _column(quantity: Quantity, group: Group) -> Column:
    title = _title(quantity, group)
    return Column(
        quantity.key,
        title,
        quantity.unit,
        quantity.better,
        suffixes=cells.ESTIMATE,
        log=quantity.ratio,
    )


def _title(quantity: Quantity, group: Group) -> str:
    last = group.last_snapshot()
    if quantity == GRADIENT_VARIANCE and last is not None:
        return f"{quantity.title}, epoch {last}"
    return quantity.title


def _estimate(group: Group, quantity: Quantity, method: str) -> Cell:
    return cells.estimate(quantity, group.values(quantity, method), group.gaps(quantity, method))


def _ratio(group: Group, method: str) -> Cell:
    """Training time over the baseline's, mean of the ratios by seed."""
    if group.baseline is None:
        return cells.text("")
    own, reference = (group.values(SECONDS, name) for name in (method, group.baseline))
    seeds = [seed for seed in sorted(own) if reference.get(seed, 0.0) > 0]
    found = statistics.mean([own[seed] / reference[seed] for seed in seeds])
    if found is None:
        return cells.text("")
    return cells.number(found.mean, written(found.mean, 2))


def _comparison(one: Comparison) -> tuple[Cell, ...]:
    quantity, found = one.quantity, one.difference
    scale = "ratio" if quantity.ratio else "difference"
    first = (
        Cell(quantity.title, raw={"": quantity.key}),
        cells.name(one.method),
        Cell(scale, raw={"": scale}),
    )
    if found is None:
        nothing = Cell("–", raw={"": None})
        return (*first, cells.missing(one.reason), nothing, nothing, nothing)
    enough = found.detectable is not None
    return (
        *first,
        cells.difference(quantity, found),
        cells.p_value(found.p),
        cells.p_value(found.p_holm),
        Cell(
            quantity.write_apart(found.detectable).lstrip("+")
            if found.detectable is not None
            else "–",
            raw={"": found.detectable if enough else None},
        ),
    )


def _single(group: Group, quantity: Quantity, method: str, seed: int) -> Cell:
    value = group.values(quantity, method).get(seed)
    return cells.text("") if value is None else cells.number(value, quantity.write(value))


def _of_row(group: Group, method: str, seed: int, field: str) -> str:
    for quantity in sorted(group.scalars, key=lambda q: q.key):
        row = group.scalars[quantity].get((method, seed))
        if row is not None and getattr(row, field):
            return str(getattr(row, field))
    return ""


def _explanation(group: Group) -> Text:
    sizes = group.sizes()
    return say(
        "Cells: mean, 95 % t-interval over seeds, n seeds; one seed has no interval. An interval "
        "describes the spread over seeds, not over test examples, and with few seeds it may pass "
        "0 or 100 %.{log}{sizes}",
        log=" Gradient variance: geometric mean and interval of its logarithm."
        if group.has(GRADIENT_VARIANCE)
        else "",
        sizes=f" {sizes}." if sizes else "",
    )


def _left_out(group: Group) -> list[Text]:
    found = [quantity.title for quantity in unmeasured(group)]
    return [say("Not measured in any run: {what}.", what=listed(found))] if found else []


def two_pass(group: Group) -> Text:
    """Methods that make two passes a step, named or, where they are many, counted."""
    doubled = [method for method in group.methods if group.passes(method) > 1]
    if len(doubled) > _MOST_NAMED:
        return say("{n} methods (2 in the column of passes)", n=len(doubled))
    return listed([Code(method) for method in doubled])


def _two_passes(group: Group) -> list[Text]:
    doubled = two_pass(group)
    if not doubled:
        return []
    return [
        say(
            "Two forward passes a step: {methods}. That is twice the compute of a one-pass method "
            "at equal epochs. Time ratio: training seconds over the baseline's, mean by seed; they "
            "are wall time, and runs that share a machine slow each other down, so what a method "
            "costs is for {bench} to say.",
            methods=doubled,
            bench=Code("attndrop bench"),
        )
    ]


def _gaps(group: Group, quantities: Sequence[Quantity]) -> list[Text]:
    """Seeds that some cells of a row lack while others of the same cell are there."""
    notes = []
    for method in group.methods:
        reasons: dict[tuple[int, str], None] = {}
        for quantity in quantities:
            gaps = group.gaps(quantity, method)
            if len(gaps) < len(group.seeds):
                reasons |= {(seed, cells.shortened(gaps[seed])): None for seed in gaps}
        if reasons:
            words = [f"seed {seed}: {reason}" for seed, reason in sorted(reasons)]
            why = "; ".join(words)
            end = "" if why.endswith("…") else "."
            notes.append(say("{method}: {why}{end}", method=Code(method), why=why, end=end))
    return notes
