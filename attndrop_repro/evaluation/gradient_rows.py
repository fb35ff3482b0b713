"""Gradient variance as rows of the store."""

from __future__ import annotations

from typing import Any

from attndrop_repro.evaluation.gradient_variance import GradientVariance, Spread
from attndrop_repro.evaluation.options import GradvarOptions
from attndrop_repro.store.schema import Measurement

METRICS = {
    "gradient_variance": "regularised",
    "gradient_variance_base": "base",
    "gradient_variance_delta": "delta",
    "gradient_covariance": "covariance",
}


def gradient_rows(
    found: GradientVariance, options: GradvarOptions, available: int, method: str
) -> list[Measurement]:
    """One row for each term of lemma 1; the first carries what belongs to all.

    Args:
        found: What was measured.
        options: How.
        available: Examples in the split.
        method: The method that was on.
    """
    total = found.total
    if options.per == "batch":
        available //= options.batch_size
    shared: dict[str, Any] = {
        "available": available,
        "mode": "train",
        "method": method,
        "per": options.per,
        "perturbation": options.perturbation,
        "draws": found.draws,
        "policy": found.policy,
    }
    if "batch" in (options.per, options.perturbation):
        shared["batch_size"] = options.batch_size
    rows = []
    for metric, term in METRICS.items():
        detail = {**shared, "interval": list(total.intervals[term])}
        if metric == "gradient_variance":
            detail |= _parts(total)
            if found.layers:
                detail["layers"] = {name: _layer(spread) for name, spread in found.layers.items()}
        value = getattr(total, term)
        rows.append(
            Measurement(
                metric=metric, value=value, n=found.units, split=options.split, detail=detail
            )
        )
    return rows


def _parts(spread: Spread) -> dict[str, Any]:
    return {
        "data_part": spread.data,
        "mask_part": spread.mask,
        "mask_interval": list(spread.intervals.get("mask", ())),
        "condition_held": spread.lowers,
        "identity_error": spread.identity_error,
        "mean_gradient_square": spread.mean_square,
        "mean_delta_square": spread.mean_delta_square,
    }


def _layer(spread: Spread) -> dict[str, Any]:
    values = {term: getattr(spread, term) for term in METRICS.values()}
    intervals = {term: list(spread.intervals[term]) for term in METRICS.values()}
    return {**values, **_parts(spread), "intervals": intervals}
