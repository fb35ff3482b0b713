"""Two runs on the same examples: which ones changed, and whether more than chance did it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.evaluation import bootstrap, scores
from attndrop_repro.evaluation.probabilities import Floats
from attndrop_repro.store.logits import Logits


@dataclass(frozen=True)
class Difference:
    """Of one metric: second minus first, with a 95 % interval by resampling examples in pairs."""

    first: float
    second: float
    difference: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """Two models on the same n examples.

    Attributes:
        n: Examples.
        both_right: How many both classify correctly.
        both_wrong: How many neither does.
        only_first: Ids of those that only the first does.
        only_second: Ids of those that only the second does.
        mcnemar_p: Two-sided p of McNemar's exact test: whether one is right more often where they
            differ.
        metrics: By name: accuracy, nll, brier.
        agreement: Share of examples with the same predicted class.
    """

    n: int
    both_right: int
    both_wrong: int
    only_first: tuple[int, ...]
    only_second: tuple[int, ...]
    mcnemar_p: float
    metrics: dict[str, Difference]
    agreement: float

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        values = vars(self) | {"metrics": {k: vars(v) for k, v in self.metrics.items()}}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}


def compare(first: Logits, second: Logits, *, seed: int = 0) -> Comparison:
    """Compares two models by their stored logits.

    Args:
        first: Of one model.
        second: Of the other, on the same examples in any order.
        seed: Of the resampling.

    Raises:
        AttndropError: They are not of the same examples, labels or classes.
    """
    from statsmodels.stats.contingency_tables import mcnemar

    one, other = _ordered(first), _ordered(second)
    if not np.array_equal(one.ids, other.ids) or not np.array_equal(one.labels, other.labels):
        raise AttndropError(
            "the two runs were not judged on the same examples: compare runs of one data set and "
            "split"
        )
    if one.logits.shape != other.logits.shape:
        raise AttndropError(
            f"the two runs have {one.logits.shape[1]} and {other.logits.shape[1]} classes"
        )
    right = [scores.top_k(each.logits, each.labels, 1) for each in (one, other)]
    won, lost = (right[1] > right[0]), (right[0] > right[1])
    both = int((right[0] * right[1]).sum())
    neither = len(one.ids) - both - int(won.sum()) - int(lost.sum())
    table = [[both, int(lost.sum())], [int(won.sum()), neither]]
    each = {
        "accuracy": right,
        "nll": [scores.nll_each(c.logits, c.labels) for c in (one, other)],
        "brier": [scores.brier_each(_softmax(c), c.labels) for c in (one, other)],
    }
    return Comparison(
        n=len(one.ids),
        both_right=both,
        both_wrong=neither,
        only_first=tuple(int(i) for i in one.ids[lost]),
        only_second=tuple(int(i) for i in one.ids[won]),
        mcnemar_p=float(mcnemar(table, exact=True).pvalue),
        metrics={name: _difference(a, b, seed, name) for name, (a, b) in each.items()},
        agreement=float((one.logits.argmax(1) == other.logits.argmax(1)).mean()),
    )


def _ordered(content: Logits) -> Logits:
    order = np.argsort(content.ids, kind="stable")
    return Logits(content.logits[order], content.labels[order], content.ids[order])


def _softmax(content: Logits) -> Floats:
    from attndrop_repro.evaluation.probabilities import softmax

    return softmax(content.logits)


def _difference(first: Floats, second: Floats, seed: int, name: str) -> Difference:
    low, high = bootstrap.mean_interval(second - first, seed, "compare", name)
    return Difference(
        float(first.mean()), float(second.mean()), float((second - first).mean()), low, high
    )
