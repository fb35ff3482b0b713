"""The runs of one recipe and what was measured of them: what tables and figures are drawn from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from attndrop_repro.report import names
from attndrop_repro.report.prose import Text
from attndrop_repro.report.quantities import GRADIENT_VARIANCE, REFERENCE_EPS, Quantity, robust
from attndrop_repro.report.rows import Row
from attndrop_repro.report.runs import Run

Key = tuple[str, int]  # method, seed
NAN = "not a number (NaN)"
NOT_POSITIVE = "not positive"


@dataclass(frozen=True)
class Group:
    """One recipe of a suite.

    Attributes:
        recipe: Its name.
        dataset: What was learned, as the store names it.
        model: What was trained.
        methods: In the suite's order.
        baseline: One of them, or None: then nothing is compared.
        no_baseline: Why there is none.
        seeds: The suite's.
        measure: Kinds of measurement the suite asks for.
        runs: By method and seed; what is absent was never started.
        scalars: By quantity, method and seed.
        series: By metric, method and seed: the row of every epoch.
        costs: Rows of benchmarks that are shown with it.
        cautions: What a reader must know before believing the numbers.
    """

    recipe: str
    dataset: str
    model: str
    methods: tuple[str, ...]
    baseline: str | None
    no_baseline: str
    seeds: tuple[int, ...]
    measure: frozenset[str]
    runs: Mapping[Key, Run]
    scalars: Mapping[Quantity, Mapping[Key, Row]]
    series: Mapping[str, Mapping[Key, Mapping[int, Row]]]
    costs: tuple[Row, ...] = ()
    cautions: tuple[Text, ...] = ()

    @property
    def others(self) -> tuple[str, ...]:
        """All methods but the baseline."""
        return tuple(method for method in self.methods if method != self.baseline)

    def has(self, quantity: Quantity) -> bool:
        """Whether any run has a number for it."""
        return any(self.values(quantity, method) for method in self.methods)

    def values(self, quantity: Quantity, method: str) -> dict[int, float]:
        """The usable values by seed: finite, and positive where they are compared as ratios."""
        found = self.scalars.get(quantity, {})
        return {
            seed: found[method, seed].value
            for seed in self.seeds
            if (method, seed) in found and not _fault(quantity, found[method, seed].value)
        }

    def gaps(self, quantity: Quantity, method: str) -> dict[int, str]:
        """Why seeds have no value, by seed."""
        found = self.scalars.get(quantity, {})
        reasons = {}
        for seed in self.seeds:
            if (method, seed) in found:
                fault = _fault(quantity, found[method, seed].value)
                if fault:
                    reasons[seed] = fault
            elif (method, seed) in self.runs:
                reasons[seed] = self.runs[method, seed].why_missing
            else:
                reasons[seed] = "no run"
        return reasons

    def examples(self, quantity: Quantity) -> list[int]:
        """The numbers of examples behind it; more than one when runs differ."""
        return sorted({row.n for row in self.scalars.get(quantity, {}).values() if row.n})

    def sizes(self) -> str:
        """How many examples stand behind the numbers, as a sentence; empty where none is known."""
        kinds = {
            "test examples": {"accuracy", "nll", "ece"},
            "under attack": {"robust_accuracy"},
            "for gradient variance": {"gradient_variance"},
        }
        words: dict[str, str] = {}
        for kind, metrics in kinds.items():
            counts = sorted(
                {n for q in self.scalars if q.metric in metrics for n in self.examples(q)}
            )
            if counts:
                words[kind] = " or ".join(str(n) for n in counts)
        if words.get("under attack") == words.get("test examples"):
            words.pop("under attack", None)
        return "; ".join(f"{kind}: {number}" for kind, number in words.items()).capitalize()

    def attacks(self) -> list[str]:
        """Labels of the attacks made: FGSM, then others, then their variants."""
        found = {quantity.attack for quantity in self.scalars if quantity.attack}
        return sorted(found, key=lambda label: ("(" in label, not label.startswith("FGSM"), label))

    def grid(self, attack: str) -> list[Quantity]:
        """An attack's quantities by rising eps."""
        found = [quantity for quantity in self.scalars if quantity.attack == attack]
        return sorted(found, key=lambda quantity: (quantity.eps, quantity.eps_label))

    def at_reference(self, attack: str) -> Quantity:
        """An attack at 8/255, or at the eps nearest to it that was measured."""
        target = 8 / 255
        grid = self.grid(attack)
        if not grid:
            return robust(attack, REFERENCE_EPS, target)
        return min(grid, key=lambda q: (q.eps_label != REFERENCE_EPS, abs(q.eps - target)))

    def passes(self, method: str) -> int:
        """Forward passes a training step, as the runs say, or by the method's name."""
        for seed in self.seeds:
            run = self.runs.get((method, seed))
            recorded = None if run is None else run.provenance.get("passes")
            if isinstance(recorded, int):
                return recorded
        return names.passes(method)

    def last_snapshot(self) -> int | None:
        """The last epoch at which gradient variance was measured."""
        rows = self.scalars.get(GRADIENT_VARIANCE, {}).values()
        return max((row.epoch for row in rows if row.epoch is not None), default=None)

    def listed(self) -> Iterable[tuple[str, int, Run | None]]:
        """Every method and seed of the suite with its run, if there is one."""
        for method in self.methods:
            for seed in self.seeds:
                yield method, seed, self.runs.get((method, seed))


def _fault(quantity: Quantity, value: float) -> str:
    """Why a stored value cannot be used; empty where it can."""
    if not math.isfinite(value):
        return NAN
    return NOT_POSITIVE if quantity.ratio and value <= 0 else ""
