"""What measurements say against themselves: failed audits of attacks, failed fits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from attndrop_repro.report.group import Group
from attndrop_repro.report.prose import Code, Text, count, listed, say
from attndrop_repro.report.quantities import ECE_AFTER


def doubts(group: Group) -> list[Text]:
    """One caution for each kind of doubt, with how many measurements have it."""
    found = []
    failed: Counter[str] = Counter()
    attacked = 0
    for quantity, rows in group.scalars.items():
        if not quantity.attack:
            continue
        for row in rows.values():
            audit = row.detail.get("audit")
            names = audit.get("failed") if isinstance(audit, Mapping) else None
            attacked += 1
            failed.update(name for name in names or () if isinstance(name, str))
    if failed:
        found.append(
            say(
                "Of {attacked}, some did not pass an audit of the attack, so that the accuracy may "
                "be too high: {checks}. Causes and remedies: {page}.",
                attacked=count(attacked, "robust accuracy", "robust accuracies"),
                checks=listed([f"{name} ({failed[name]})" for name in sorted(failed)]),
                page=Code("docs/warnings.md"),
            )
        )
    scaled = list(group.scalars.get(ECE_AFTER, {}).values())
    unfit = sum(1 for row in scaled if row.detail.get("converged") is False)
    if unfit:
        found.append(
            say(
                "The temperature was not found for {unfit} of {runs}; their ECE after temperature "
                "is that of temperature 1 or of the last step.",
                unfit=unfit,
                runs=count(len(scaled), "run"),
            )
        )
    return found
