"""What a suite needs: a training for each run, then its measurements; and what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from attndrop_repro.config.load import load_recipe
from attndrop_repro.config.recipe import Recipe
from attndrop_repro.config.spec import RunSpec
from attndrop_repro.experiments.specs import make_specs

if TYPE_CHECKING:
    from attndrop_repro.config.suite import Suite
    from attndrop_repro.store import Store

Kind = Literal["train", "eval", "calibrate", "attack", "gradvar"]


@dataclass(frozen=True)
class Job:
    """One piece of work.

    Attributes:
        kind: A training, or which measurement.
        spec: The run.
        suite: On whose behalf.
        cost: Passes over the data set, roughly: only their order matters.
    """

    kind: Kind
    spec: RunSpec
    suite: str = ""
    cost: float = 1.0

    @property
    def key(self) -> str:
        """Unique in a store: measurements of one run under one recipe."""
        return f"{self.kind}:{self.spec.run_id}"

    @property
    def after(self) -> tuple[str, ...]:
        """A measurement needs its training."""
        return () if self.kind == "train" else (f"train:{self.spec.run_id}",)

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.kind} {self.spec.recipe.name} {self.spec.method} seed {self.spec.seed}"

    @property
    def short(self) -> str:
        """For people with little room."""
        return f"{self.kind} {self.spec.method} s{self.spec.seed}"


@dataclass(frozen=True)
class Plan:
    """What a suite comes to.

    Attributes:
        specs: All its runs.
        missing: Jobs that are still to be done.
        wanted: How many jobs of each kind there are in all.
    """

    specs: tuple[RunSpec, ...]
    missing: tuple[Job, ...]
    wanted: dict[str, int]

    def rows(self) -> list[dict[str, object]]:
        """By recipe and method: how many jobs of each kind are done, of how many."""
        runs = Counter((spec.recipe.name, spec.method) for spec in self.specs)
        open_: Counter[tuple[str, str, str]] = Counter(
            (job.spec.recipe.name, job.spec.method, job.kind) for job in self.missing
        )
        return [
            {
                "recipe": recipe,
                "method": method,
                "runs": number,
                **{kind: number - open_[recipe, method, kind] for kind in self.wanted},
            }
            for (recipe, method), number in runs.items()
        ]


def suite_specs(suite: Suite) -> list[RunSpec]:
    """All runs of a suite: recipes x methods x seeds.

    Raises:
        UsageError: A recipe or method is unknown, or two of its methods are one.
    """
    specs = [
        spec
        for recipe in map(load_recipe, suite.recipes)
        for method in suite.methods
        for spec in make_specs(recipe, method, suite.seeds)
    ]
    unique = {spec.run_id: spec for spec in specs}
    return list(unique.values())


def plan(suite: Suite, store: Store) -> Plan:
    """Compares what a suite needs with what a store has.

    Args:
        suite: What is wanted.
        store: What is there.
    """
    specs = suite_specs(suite)
    finished = {info.run_id for info in store.runs() if info.status == "finished"}
    trained = [spec for spec in specs if spec.run_id in finished]
    jobs = []
    for spec in specs:
        if spec.run_id not in finished:
            jobs.append(Job("train", spec, suite.name, training_cost(spec)))
    for kind in suite.measure:
        lacking = {spec.run_id for spec in unmeasured(kind, trained, store)}
        jobs += [
            Job(kind, spec, suite.name, measuring_cost(kind, spec.recipe))
            for spec in specs
            if spec.run_id not in finished or spec.run_id in lacking
        ]
    wanted = dict.fromkeys(("train", *suite.measure), len(specs))
    return Plan(tuple(specs), tuple(jobs), wanted)


def unmeasured(kind: Kind, specs: Iterable[RunSpec], store: Store) -> list[RunSpec]:
    """The runs whose measurement, as their recipe asks for it, is not in the store."""
    from attndrop_repro.evaluation.wanted import lacking

    return lacking(kind, list(specs), store)


def training_cost(spec: RunSpec) -> float:
    """Passes over the training set."""
    from attndrop_repro.methods import parse

    passes = max(cls.passes for cls in parse(spec.method))
    return float(spec.recipe.training.epochs * passes)


def measuring_cost(kind: Kind, recipe: Recipe) -> float:
    """Passes over a test set; measurements come after their training, whatever they cost."""
    evaluation = recipe.evaluation
    if kind == "attack":
        return float(evaluation.attack.steps * len(evaluation.attack.eps)) / 10
    if kind == "gradvar":
        return float(len(evaluation.gradient_variance.epochs))
    return 0.5


def counts(jobs: Sequence[Job]) -> str:
    """``24 train, 24 eval`` for some jobs."""
    return ", ".join(f"{n} {kind}" for kind, n in Counter(job.kind for job in jobs).items())
