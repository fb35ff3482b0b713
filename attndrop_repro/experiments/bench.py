"""The cost of every method on one workload: time interleaved, memory in processes of their own."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attndrop_repro import data
from attndrop_repro.config.errors import AttndropError, UsageError
from attndrop_repro.config.progress import Progress, Silent
from attndrop_repro.config.recipe import Model, Recipe
from attndrop_repro.evaluation.memory_cost import peak_memory_mb
from attndrop_repro.evaluation.step_cost import (
    NOISE,
    PLAIN,
    UNFUSED,
    Contender,
    Cost,
    Steps,
    interleaved,
)
from attndrop_repro.evaluation.workload import Workload
from attndrop_repro.experiments.benched import NAN, columns
from attndrop_repro.experiments.own_process import in_own_process
from attndrop_repro.methods import canonical, parse, registry
from attndrop_repro.store.schema import Measurement
from attndrop_repro.theory.claims import claims

_TARGETS = ["q", "k", "v", "av", "ff"]
# settings that change what a method costs, and compositions that the papers run
_MORE = (
    Contender(
        "attentiondrop-blur (rows_and_columns)", "attentiondrop-blur",
        {"axes": "rows_and_columns"},
    ),
    Contender("explicit-dropout (all targets)", "explicit-dropout", {"targets": _TARGETS}),
    Contender(
        "explicit-dropout (all targets, exact)", "explicit-dropout",
        {"targets": _TARGETS, "form": "exact"},
    ),
    Contender("attentiondrop-hard+consistency", "attentiondrop-hard+consistency"),
    Contender("attentiondrop-blur+consistency", "attentiondrop-blur+consistency"),
)  # fmt: skip
_UNFUSED = Contender(UNFUSED, PLAIN, fused=False)


@dataclass(frozen=True)
class Row:
    """One contender's cost.

    Attributes:
        label: As shown.
        method: The method or composition.
        settings: Those given; all else is at the defaults.
        ratio: Step time over the plain, fused model's.
        low: Lower quartile over the rounds.
        high: Upper quartile.
        unfused_ratio: Step time over the plain, unfused model's; NaN where there is no such form.
        images_per_second: From the median step.
        peak_memory_mb: Of its own process; NaN where it was not measured.
        paper_ratio: The paper's own, from its throughput table; NaN where it has none.
        error: Why there are no numbers; empty where there are.
    """

    label: str
    method: str
    settings: Mapping[str, Any]
    ratio: float
    low: float
    high: float
    unfused_ratio: float
    images_per_second: float
    peak_memory_mb: float
    paper_ratio: float
    error: str = ""


def contenders(names: Sequence[str] = ()) -> list[Contender]:
    """What is compared: the methods named, or every registered one and the papers' compositions."""
    if names:
        chosen = list(dict.fromkeys(map(canonical, names)))  # refuses what there is not, at once
        return [Contender(name, name) for name in chosen] + [_UNFUSED]
    found = []
    for name in registry.names():
        try:
            parse(name)
        except UsageError:
            continue  # alone it does nothing, as consistency
        found.append(Contender(name, name))
    return [*found, *_MORE, _UNFUSED]


def workload(
    recipe: Recipe | None,
    *,
    model: str | None = None,
    batch_size: int | None = None,
    image_size: int | None = None,
    classes: int | None = None,
    device: str = "cpu",
    precision: str | None = None,
    compiled: bool = False,
    threads: int | None = None,
) -> Workload:
    """What a recipe trains, or a timm model; no data are read.

    Args:
        recipe: Gives model, shapes, batch and precision; or None.
        model: A model's name, without a recipe.
        batch_size: Images a step; default: the recipe's micro-batch, else 32.
        image_size: Pixels a side; default: the recipe's, else 224.
        classes: Default: the data set's, else 1,000.
        device: "cpu", "cuda", ...
        precision: Default: the recipe's, else fp32.
        compiled: Whether to use `torch.compile`.
        threads: CPU threads; default: all cores.

    Raises:
        UsageError: The shapes of the recipe's data are not known without its files.
    """
    threads = threads or os.cpu_count() or 1
    if recipe is None:
        return Workload(
            Model(name=model or "vit_base_patch16_224"), classes or 1000, image_size or 224, 3,
            batch_size or 32, device, precision or "fp32", threads, compiled,
        )  # fmt: skip
    shape = data.describe(recipe.data.name).shape
    if shape is None:
        raise UsageError(
            f"the data set {recipe.data.name!r} has no fixed shape: bench a recipe of another, or "
            "--model with --image-size and --classes"
        )
    training = recipe.training
    return Workload(
        recipe.model, classes or shape[2], image_size or recipe.data.image_size or shape[0],
        shape[1], batch_size or training.batch_size // training.accumulate, device,
        precision or recipe.runtime.precision, threads, compiled or recipe.runtime.compile,
    )  # fmt: skip


def bench(
    work: Workload,
    chosen: Sequence[Contender],
    *,
    rounds: int = 15,
    memory: bool = True,
    progress: Progress | None = None,
) -> list[Row]:
    """Times and weighs contenders; the first row is the plain model, the second its own noise.

    Args:
        work: Model, batch, device.
        chosen: From `contenders`.
        rounds: Timed steps of each.
        memory: Whether to run each once more in a process of its own.
        progress: What to report to.
    """
    report = progress or Silent()
    steps = Steps(*work.make(), autocast=work.autocast, compiled=work.compiled)
    refused: dict[str, str] = {}
    for contender in chosen:
        try:
            with steps.at_work(contender) as step:
                step()
        except AttndropError as error:
            refused[contender.label] = str(error)
    able = [contender for contender in chosen if contender.label not in refused]
    costs = interleaved(steps, able, rounds=rounds, progress=report)
    del steps
    peaks = _peaks(work, [cost.contender for cost in costs], report) if memory else {}
    rows = [_row(cost, peaks.get(cost.contender.label, NAN)) for cost in costs]
    return rows + [
        Row(c.label, c.method, c.settings, NAN, NAN, NAN, NAN, NAN, NAN, NAN, refused[c.label])
        for c in chosen
        if c.label in refused
    ]


def measurements(
    rows: Sequence[Row], work: Workload, recipe: Recipe | None = None
) -> list[tuple[dict[str, Any], list[Measurement]]]:
    """What the store keeps of each row that has numbers: columns and measurements.

    Args:
        rows: From `bench`.
        work: What was benchmarked.
        recipe: Whose model it is, if it is a recipe's: that recipe's report shows the rows.
    """
    found = []
    of_recipe = {} if recipe is None else {"recipe": recipe.name, "dataset": recipe.data.name}
    for row in rows:
        if row.error:
            continue
        told = {"label": row.label, "settings": dict(row.settings), **work.facts}
        detail = {
            **told, "low": row.low, "high": row.high, "unfused_ratio": row.unfused_ratio,
            "paper_ratio": row.paper_ratio,
        }  # fmt: skip
        values = {
            "step_time_ratio": row.ratio,
            "images_per_second": row.images_per_second,
            "peak_memory_mb": row.peak_memory_mb,
        }
        batch: list[Measurement] = [
            {
                "split": "random pixels", "n": work.batch_size, "metric": metric, "value": value,
                "detail": detail,
            }
            for metric, value in values.items()
            if value == value
        ]  # fmt: skip
        known = columns(
            work.model.name, told, method=row.method, precision=work.precision,
            device=work.device, threads=work.threads, **of_recipe,
        )  # fmt: skip
        found.append((known, batch))
    return found


def _peaks(work: Workload, wanted: Sequence[Contender], report: Progress) -> dict[str, float]:
    """Peak memory by label; a contender whose process died has none."""
    found: dict[str, float] = {}
    for index, contender in enumerate(wanted):
        if contender.label == NOISE:
            continue
        report.update(index, len(wanted), memory=contender.label)
        try:
            found[contender.label] = in_own_process(peak_memory_mb, work, contender)
        except AttndropError as error:
            report.say(f"no peak memory of {contender.label}: {error}")
    report.update(len(wanted), len(wanted))
    return found


def _row(cost: Cost, peak: float) -> Row:
    c = cost.contender
    return Row(
        c.label, c.method, c.settings, cost.ratio, cost.low, cost.high, cost.unfused_ratio,
        cost.images_per_second, peak, _paper_ratio(c),
    )  # fmt: skip


def _paper_ratio(contender: Contender) -> float:
    """Seconds a step over plain's, from images a second; NaN where the paper has no such row."""
    rates = {
        row["method"]: row["images_per_second"]
        for row in claims()["attentiondrop"]["throughput"]["rows"]
    }
    if contender.label not in rates:
        return NAN
    return float(rates[PLAIN] / rates[contender.label])
