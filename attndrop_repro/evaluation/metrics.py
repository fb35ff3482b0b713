"""From logits to rows of the store, with numpy alone: any metric can be computed again later."""

from __future__ import annotations

from typing import Any

import numpy as np

from attndrop_repro.evaluation import bootstrap, calibration, scores, temperature
from attndrop_repro.evaluation.probabilities import Floats, checked_labels, softmax, top_label
from attndrop_repro.store.logits import Logits
from attndrop_repro.store.schema import Measurement


def accuracy_rows(content: Logits, *, bins: int = 15, seed: int = 0) -> list[Measurement]:
    """Accuracy, top-5 accuracy where there are more than five classes, NLL, Brier score and ECE.

    Each row's detail has a 95 % interval by resampling examples; the ECE's also its bins.

    Args:
        content: Logits, labels and ids of a split.
        bins: Of the ECE.
        seed: Of the resampling.

    Raises:
        AttndropError: Logits that are not finite.
    """
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
    parts = scores.brier_decomposition(p, truth, bins)
    rows[-1]["detail"]["decomposition"] = vars(parts)
    return [*rows, _ece_row("ece", p, content, bins, seed)]


def calibration_rows(
    content: Logits, fitted_on: Logits, *, fit_split: str, bins: int = 15, seed: int = 0
) -> list[Measurement]:
    """Every calibration error, and the temperature with the ECE and NLL after it.

    Args:
        content: What the model is judged on.
        fitted_on: What the temperature is fitted on: other examples.
        fit_split: Its name.
        bins: Of the errors.
        seed: Of the resampling.

    Raises:
        AttndropError: Logits that are not finite.
    """
    p, n = softmax(content.logits), len(content.labels)
    errors = {
        "mce": calibration.mce,
        "adaptive_ece": calibration.adaptive_ece,
        "classwise_ece": calibration.classwise_ece,
        "debiased_ece": calibration.debiased_ece,
    }
    rows = [_ece_row("ece", p, content, bins, seed)]
    rows += [_row(name, error(p, content.labels, bins), n) for name, error in errors.items()]
    fitted = temperature.fit(fitted_on.logits, fitted_on.labels)
    scaled = fitted.scale(content.logits)
    fit: dict[str, Any] = {
        "fit_split": fit_split,
        "fit_n": fitted.n,
        "temperature": fitted.value,
        "converged": fitted.converged,
        "reason": fitted.reason,
        "fit_nll_before": fitted.nll_before,
        "fit_nll_after": fitted.nll_after,
    }
    rows.append(_row("temperature", fitted.value, n, **fit))
    after = _ece_row("ece_after_temperature", softmax(scaled), content, bins, seed)
    after["detail"].update(fit)
    rows += [after, _row("nll_after_temperature", scores.nll(scaled, content.labels), n, **fit)]
    return rows


def _ece_row(metric: str, p: Floats, content: Logits, bins: int, seed: int) -> Measurement:
    confidence, correct = top_label(p, content.labels)
    interval = bootstrap.ece_interval(confidence, correct, bins, seed, metric)
    return _row(
        metric, calibration.ece(p, content.labels, bins), len(p), interval=list(interval),
        bins=calibration.reliability(p, content.labels, bins), bin_count=bins,
        sweep={str(k): v for k, v in calibration.bin_sweep(p, content.labels).items()},
        mean_confidence=float(np.mean(confidence)),
    )  # fmt: skip


def _interval(values: Floats, seed: int, name: str) -> list[float]:
    return list(bootstrap.mean_interval(values, seed, name))


def _row(metric: str, value: float, n: int, **detail: Any) -> Measurement:
    return Measurement(metric=metric, value=value, n=n, detail=detail)
