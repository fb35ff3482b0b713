"""Every method against the baseline on every headline quantity, with Holm over all of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from attndrop_repro.report import cells, statistics
from attndrop_repro.report.group import Group
from attndrop_repro.report.quantities import (
    ACCURACY,
    ECE,
    ECE_AFTER,
    GRADIENT_VARIANCE,
    NLL,
    REFERENCE_EPS,
    Quantity,
    robust,
)
from attndrop_repro.report.statistics import Difference


@dataclass(frozen=True)
class Comparison:
    """One method against the baseline.

    Attributes:
        quantity: What is compared.
        method: The method.
        difference: Paired by seed; None where no seed has both.
        reason: Why there is none.
    """

    quantity: Quantity
    method: str
    difference: Difference | None
    reason: str = ""


def headline(group: Group) -> list[Quantity]:
    """The columns of the main table, in order.

    What the suite measures has its column also where no run has a number yet; what nobody asked
    for and nobody measured has none.
    """
    others = [label for label in group.attacks() if label != "FGSM"]
    plain = [label for label in others if "(" not in label] or others
    pgd = ["PGD-20"] if "PGD-20" in plain or not plain else plain
    attacked = [group.at_reference(label) for label in ["FGSM", *pgd]]
    everything = [ACCURACY, NLL, ECE, ECE_AFTER, *attacked, GRADIENT_VARIANCE]
    return [
        quantity
        for quantity in everything
        if group.has(quantity)
        or (quantity.kind in group.measure and quantity != ECE_AFTER)
        or (quantity.kind == "calibrate" and quantity == ECE and "eval" in group.measure)
    ]


def unmeasured(group: Group) -> list[Quantity]:
    """Headline quantities that the table leaves out because the suite does not measure them."""
    reference = [robust(label, REFERENCE_EPS, 8 / 255) for label in ("FGSM", "PGD-20")]
    shown = {(quantity.metric, quantity.attack) for quantity in headline(group)}
    usual = [ACCURACY, NLL, ECE, ECE_AFTER, *reference, GRADIENT_VARIANCE]
    return [quantity for quantity in usual if (quantity.metric, quantity.attack) not in shown]


def compare(group: Group) -> list[Comparison]:
    """All comparisons of the table, quantity by quantity; empty without a baseline."""
    baseline = group.baseline
    if baseline is None:
        return []
    found = []
    for quantity in headline(group):
        reference = group.values(quantity, baseline)
        for method in group.others:
            values = group.values(quantity, method)
            pair = statistics.paired_ratio if quantity.ratio else statistics.paired
            difference = pair(values, reference)
            reason = ""
            if difference is None and not reference:
                reason = f"baseline: {cells.why(group.gaps(quantity, baseline))}"
            elif difference is None and not values:
                reason = cells.why(group.gaps(quantity, method))
            elif difference is None:
                reason = "no seed has both"
            found.append(Comparison(quantity, method, difference, reason))
    corrected = statistics.holm([one.difference for one in found])
    return [
        Comparison(one.quantity, one.method, difference, one.reason)
        for one, difference in zip(found, corrected, strict=True)
    ]


def family_size(comparisons: Sequence[Comparison]) -> int:
    """How many have a p value: the size of Holm's family."""
    return sum(
        1 for one in comparisons if one.difference is not None and one.difference.p is not None
    )


def typical_detectable(comparisons: Sequence[Comparison]) -> float | None:
    """The median of the smallest detectable differences."""
    found = [
        one.difference.detectable
        for one in comparisons
        if one.difference is not None and one.difference.detectable is not None
    ]
    return median(found) if found else None
