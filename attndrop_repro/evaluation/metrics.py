"""From logits to rows of the store, with numpy alone: any metric can be computed again later."""

from __future__ import annotations

from typing import Any

import numpy as np

from attndrop_repro.evaluation import bootstrap, calibration, scores, temperature
from attndrop_repro.evaluation.options import CalibrateOptions, EvalOptions
from attndrop_repro.evaluation.probabilities import Floats, checked_labels, softmax, top_label
from attndrop_repro.store.logits import Logits
from attndrop_repro.store.schema import Measurement


def accuracy_rows(
    content: Logits, options: EvalOptions | None = None, *, seed: int = 0
) -> list[Measurement]:
    """Accuracy, top-5 accuracy where there are more than five classes, NLL, Brier score and ECE.

    Each row's detail has a 95 % interval by resampling examples; the ECE's also its bins.

    Args:
        content: Logits, labels and ids of a split.
        options: How many bins the ECE has, and whether they are in its name.
        seed: Of the resampling.

    Raises:
        AttndropError: Logits that are not finite.
    """
    options = options or EvalOptions()
    p = softmax(content.logits)
    truth = checked_labels(content.labels, *p.shape)
    each: dict[str, Floats] = {"accuracy": scores.top_k(content.logits, truth, 1)}
    if p.shape[1] > 5:
        each["top5_accuracy"] = scores.top_k(content.logits, truth, 5)
    each["nll"] = scores.nll_each(content.logits, truth)
    each["brier"] = scores.brier_each(p, truth)
    rows = [
        _row(name, float(values.mean()), len(p), interval=_interval(values, seed, name))
        for name, values in each.items()
    ]
    # of the recipe's bins always: the Brier score does not depend on them, nor does its name
    parts = scores.brier_decomposition(p, truth, options.usual_bins)
    rows[-1]["detail"]["decomposition"] = vars(parts)
    return [*rows, _ece_row("ece", p, content, options, seed)]


def calibration_rows(
    content: Logits, fitted_on: Logits, options: CalibrateOptions | None = None, *, seed: int = 0
) -> list[Measurement]:
    """Every calibration error, and the temperature with the ECE and NLL after it.

    Args:
        content: What the model is judged on.
        fitted_on: What the temperature is fitted on: other examples.
        options: Name of the latter, how many bins the errors have, and whether they are in their
            names.
        seed: Of the resampling.

    Raises:
        AttndropError: Logits that are not finite.
    """
    options = options or CalibrateOptions()
    p, n = softmax(content.logits), len(content.labels)
    errors = {
        "mce": calibration.mce,
        "adaptive_ece": calibration.adaptive_ece,
        "classwise_ece": calibration.classwise_ece,
        "debiased_ece": calibration.debiased_ece,
    }
    rows = [_ece_row("ece", p, content, options, seed)]
    rows += [
        _row(options.binned(name), error(p, content.labels, options.bins), n)
        for name, error in errors.items()
    ]
    fitted = temperature.fit(fitted_on.logits, fitted_on.labels)
    scaled = fitted.scale(content.logits)
    fit: dict[str, Any] = {
        "fit_split": options.fit_split,
        "fit_n": fitted.n,
        "temperature": fitted.value,
        "converged": fitted.converged,
        "reason": fitted.reason,
        "fit_nll_before": fitted.nll_before,
        "fit_nll_after": fitted.nll_after,
    }
    rows.append(_row("temperature", fitted.value, n, **fit))
    after = _ece_row("ece_after_temperature", softmax(scaled), content, options, seed)
    after["detail"].update(fit)
    rows += [after, _row("nll_after_temperature", scores.nll(scaled, content.labels), n, **fit)]
    return rows


def _ece_row(
    metric: str, p: Floats, content: Logits, options: EvalOptions, seed: int
) -> Measurement:
    bins = options.bins
    confidence, correct = top_label(p, content.labels)
    interval = bootstrap.ece_interval(confidence, correct, bins, seed, metric)
    return _row(
        options.binned(metric), calibration.ece(p, content.labels, bins), len(p),
        interval=list(interval), bin_count=bins,
        bins=calibration.reliability(p, content.labels, bins),
        sweep={str(k): v for k, v in calibration.bin_sweep(p, content.labels).items()},
        mean_confidence=float(np.mean(confidence)),
    )  # fmt: skip


def _interval(values: Floats, seed: int, name: str) -> list[float]:
    return list(bootstrap.mean_interval(values, seed, name))


def _row(metric: str, value: float, n: int, **detail: Any) -> Measurement:
    return Measurement(metric=metric, value=value, n=n, detail=detail)
