"""Which of a store's runs and rows belong to a suite, and which of several measurements counts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from attndrop_repro.report import names
from attndrop_repro.report.costs import of_recipe
from attndrop_repro.report.doubts import doubts
from attndrop_repro.report.group import NAN, Group, Key
from attndrop_repro.report.prose import Code, Text, count, listed, say
from attndrop_repro.report.quantities import GRADIENT_VARIANCE, Quantity, robust
from attndrop_repro.report.rows import Row
from attndrop_repro.report.runs import Run, differing, of_rows

if TYPE_CHECKING:
    from attndrop_repro.config.recipe import Recipe
    from attndrop_repro.config.suite import Suite
    from attndrop_repro.report.source import Source

_ON_TEST = ("accuracy", "nll", "ece", "ece_after_temperature")
_SERIES = (
    "gradient_variance",
    "gradient_variance_base",
    "gradient_variance_delta",
    "gradient_covariance",
)
_ATTACK_NAMES = {"fgsm": "FGSM", "pgd": "PGD", "autoattack": "AutoAttack"}


def select(suite: Suite, source: Source) -> list[Group]:
    """One group for each recipe of the suite, empty ones included.

    Runs of a sweep share recipe, method and seed with the suite's own: of several configurations
    the recipe's as it is now counts, else one measured on the suite's behalf, else the newest.

    Args:
        suite: What is compared.
        source: What the store has.
    """
    known = {run.run_id for run in source.runs}
    more = [run for run in of_rows(source.rows) if run.run_id not in known]
    in_suite = {row.run_id for row in source.rows if row.suite == suite.name}
    return [_group(suite, name, source, [*source.runs, *more], in_suite) for name in source.names]


def _group(
    suite: Suite, recipe: str, source: Source, runs: Sequence[Run], in_suite: set[str]
) -> Group:
    now = source.recipes.get(recipe)
    methods = tuple(dict.fromkeys(suite.methods))
    wanted = {names.same(method): method for method in methods}
    seeds = tuple(suite.seeds)
    cautions: list[Text] = []
    chosen: dict[Key, Run] = {}
    for spelling, method in wanted.items():
        candidates = [
            run
            for run in runs
            if run.recipe == recipe and names.same(run.method) == spelling and run.seed in seeds
        ]
        for run in _of_one_configuration(candidates, in_suite, now, cautions, method):
            chosen[method, run.seed] = run
    cautions += [
        say("Run {run} cannot be read: {why}", run=Code(run_id), why=why)
        for run_id, why in sorted(source.damaged.items())
        if run_id.startswith(f"{recipe}--")
    ]
    cautions += _conditions(list(chosen.values()), now)

    where = {run.run_id: key for key, run in chosen.items()}
    own = [row for row in source.rows if row.run_id in where]
    own = _on_own_data(own, chosen)
    scalars, series = _measured(own, where)
    baseline, why = _baseline(suite.baseline, methods)
    group = Group(
        recipe=recipe,
        dataset=_most_common(row.dataset for row in own),
        model=_most_common(row.model for row in own),
        methods=methods,
        baseline=baseline,
        no_baseline=why,
        seeds=seeds,
        measure=frozenset(suite.measure),
        runs=chosen,
        scalars=scalars,
        series=series,
        costs=of_recipe(source.rows, recipe, first=recipe == source.names[0]),
    )
    cautions += [*_uneven(group, own), *doubts(group)]
    return replace(group, cautions=tuple(dict.fromkeys(cautions)))


def _of_one_configuration(
    candidates: Sequence[Run],
    in_suite: set[str],
    now: Recipe | None,
    cautions: list[Text],
    method: str,
) -> list[Run]:
    """The runs of the configuration that counts; the others are named in a caution."""
    by_hash: dict[str, list[Run]] = defaultdict(list)
    for run in candidates:
        by_hash[run.config_hash].append(run)
    if not by_hash:
        return []

    def rank(config: str) -> tuple[bool, bool, str, str]:
        found = by_hash[config]
        return (
            now is not None and any(run.made_by(now) for run in found),
            any(run.run_id in in_suite for run in found),
            max(run.updated for run in found),
            config,
        )

    best = max(by_hash, key=rank)
    left = sum(len(found) for config, found in by_hash.items() if config != best)
    if left:
        cautions.append(
            say(
                "{method}: {runs} with other settings in this store, left out here.",
                method=Code(method),
                runs=count(left, "more run"),
            )
        )
    return by_hash[best]


def _conditions(runs: Sequence[Run], now: Recipe | None) -> list[Text]:
    cautions = []
    keys = differing(runs)
    if keys:
        cautions.append(
            say(
                "The runs were not made under equal conditions: they differ in {keys}. "
                "Differences between methods may come from there.",
                keys=listed([Code(key) for key in keys]),
            )
        )
    stale = sum(
        1 for run in runs if now is not None and run.spec is not None and not run.made_by(now)
    )
    if stale and not keys:
        cautions.append(
            say(
                "{stale} of {runs} runs were made with settings other than the recipe has now.",
                stale=stale,
                runs=len(runs),
            )
        )
    return cautions


def _baseline(name: str | None, methods: Sequence[str]) -> tuple[str | None, str]:
    if not name:
        return None, "the suite names no baseline"
    for method in methods:
        if names.same(method) == names.same(name):
            return method, ""
    return None, f"the suite's baseline {name} is not among its methods"


def _on_own_data(rows: Sequence[Row], chosen: Mapping[Key, Run]) -> list[Row]:
    """Without measurements on other data sets than the run's own."""
    datasets = Counter(row.dataset for row in rows)
    own = next((run.dataset for run in chosen.values() if run.dataset in datasets), "")
    own = own or max(sorted(datasets), key=lambda name: datasets[name], default="")
    return [row for row in rows if row.dataset in ("", own)]


def _measured(
    rows: Sequence[Row], where: Mapping[str, Key]
) -> tuple[
    dict[Quantity, dict[Key, Row]],
    dict[str, dict[Key, dict[int, Row]]],
]:
    scalars: dict[Quantity, dict[Key, Row]] = defaultdict(dict)
    series: dict[str, dict[Key, dict[int, Row]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        key = where[row.run_id]
        if row.metric in _SERIES:
            epochs = series[row.metric][key]
            epoch = -1 if row.epoch is None else row.epoch
            if epoch not in epochs or row.age >= epochs[epoch].age:
                epochs[epoch] = row
            continue
        quantity = _quantity(row)
        if quantity is None:
            continue
        held = scalars[quantity].get(key)
        if held is None or row.age >= held.age:
            scalars[quantity][key] = row
    variance = series.get("gradient_variance", {})
    last = max((epoch for epochs in variance.values() for epoch in epochs), default=None)
    for key, epochs in variance.items():
        if last in epochs:
            scalars[GRADIENT_VARIANCE][key] = epochs[last]
    return dict(scalars), {metric: dict(found) for metric, found in series.items()}


def _quantity(row: Row) -> Quantity | None:
    if row.metric in _ON_TEST:
        return Quantity(row.metric) if row.split == "test" else None
    if row.metric == "train_seconds":
        return Quantity(row.metric)
    if row.metric == "robust_accuracy" and row.split in ("", "test"):
        return robust(attack_label(row), row.eps_label or f"{row.eps:g}", row.eps)
    return None


def attack_label(row: Row) -> str:
    """As in "FGSM", "PGD-20", "PGD-20 (5 restarts)", "PGD-20 (l2)", "PGD-20 (least-likely)"."""
    attack, *beside = row.attack.split("+")
    label = _ATTACK_NAMES.get(attack, attack or "attack")
    if attack != "fgsm" and row.steps:
        label += f"-{row.steps}"
    if row.norm.lower() not in ("", "linf"):
        beside.append(row.norm)
    if (row.restarts or 1) > 1:
        beside.append(f"{row.restarts} restarts")
    return f"{label} ({', '.join(beside)})" if beside else label


def _uneven(group: Group, rows: Sequence[Row]) -> list[Text]:
    """What makes numbers of one column hard to compare."""
    cautions = []
    for quantity in sorted(group.scalars, key=lambda q: q.key):
        counts = group.examples(quantity)
        if len(counts) > 1:
            cautions.append(
                say(
                    "{what} was measured on different numbers of examples: {numbers}.",
                    what=quantity.title,
                    numbers=listed([str(number) for number in counts]),
                )
            )
    for what, values in (
        ("devices", {row.device for row in rows if row.device}),
        ("numbers of threads", {str(row.threads) for row in rows if row.threads}),
        ("versions of the code", {row.code_version for row in rows if row.code_version}),
    ):
        if len(values) > 1:
            cautions.append(
                say(
                    "Measured with different {what}: {values}.",
                    what=what,
                    values=listed([Code(value) for value in sorted(values)]),
                )
            )
    nan = sum(
        1
        for quantity in group.scalars
        for method in group.methods
        for reason in group.gaps(quantity, method).values()
        if reason == NAN
    )
    if nan:
        cautions.append(
            say(
                "{found} not a number (NaN), left out of all means.",
                found=count(nan, "measurement is", "measurements are"),
            )
        )
    return cautions


def _most_common(values: Iterable[str]) -> str:
    counts = Counter(value for value in values if value)
    return max(sorted(counts), key=lambda value: counts[value], default="")
