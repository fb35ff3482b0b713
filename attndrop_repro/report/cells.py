"""Cells of means and differences: what is printed, and what is said where nothing was measured."""

from __future__ import annotations

from collections.abc import Mapping

from attndrop_repro.report import statistics
from attndrop_repro.report.quantities import Quantity
from attndrop_repro.report.statistics import Difference
from attndrop_repro.report.table import Cell

ESTIMATE = ("", "low", "high", "n", "missing")
_LONGEST_REASON = 48


def name(text: str) -> Cell:
    """A name."""
    return Cell(text, code=True, raw={"": text})


def text(value: str) -> Cell:
    """Words."""
    return Cell(value, raw={"": value})


def number(value: int | float | None, written: str = "") -> Cell:
    """A plain number; empty for None."""
    if value is None:
        return Cell("", raw={"": None})
    return Cell(written or str(value), raw={"": value})


def missing(reason: str) -> Cell:
    """Why there is no value; cut where it is long (the table of runs has all of it)."""
    return Cell(shortened(reason), missing=True, raw={"n": 0, "missing": reason})


def shortened(reason: str) -> str:
    """One line of at most 48 characters."""
    line = " ".join(reason.split())
    return line if len(line) <= _LONGEST_REASON else line[: _LONGEST_REASON - 1].rstrip() + "…"


def why(gaps: Mapping[int, str]) -> str:
    """One reason for several seeds, the commonest first."""
    reasons: dict[str, int] = {}
    for seed in sorted(gaps):
        reasons[gaps[seed]] = reasons.get(gaps[seed], 0) + 1
    ordered = sorted(reasons, key=lambda reason: -reasons[reason])
    return "; ".join(ordered) or "not measured"


def estimate(quantity: Quantity, values: Mapping[int, float], gaps: Mapping[int, str]) -> Cell:
    """Mean, interval and n; or why there is none.

    Args:
        quantity: What was measured.
        values: Finite values by seed.
        gaps: Reasons by seed for those that have none.
    """
    ordered = [values[seed] for seed in sorted(values)]
    found = statistics.geometric_mean(ordered) if quantity.ratio else statistics.mean(ordered)
    if found is None:
        return missing(why(gaps))
    span: tuple[float, ...] = (found.mean,)
    interval = ""
    if found.low is not None and found.high is not None:
        interval = f"[{quantity.write(found.low)}, {quantity.write(found.high)}]"
        span = (found.mean, found.low, found.high)
    return Cell(
        quantity.write(found.mean),
        interval,
        found.n,
        raw={"": found.mean, "low": found.low, "high": found.high, "n": found.n, "missing": None},
        span=span,
    )


def difference(quantity: Quantity, found: Difference) -> Cell:
    """Mean difference, interval and n."""
    mean = found.interval
    interval = ""
    span: tuple[float, ...] = (mean.mean,)
    if mean.low is not None and mean.high is not None:
        low, high = (quantity.write_apart(end, end=True) for end in (mean.low, mean.high))
        interval = f"[{low}, {high}]"
        span = (mean.mean, mean.low, mean.high)
    return Cell(
        quantity.write_apart(mean.mean),
        interval,
        mean.n,
        strong=found.stands,
        raw={"": mean.mean, "low": mean.low, "high": mean.high, "n": mean.n, "missing": None},
        span=span,
    )


def p_value(value: float | None) -> Cell:
    """A p value."""
    if value is None:
        return Cell("–", raw={"": None})
    text = "< 0.001" if value < 0.001 else "1" if value > 0.9995 else f"{value:.3f}"
    return Cell(text, raw={"": value})
