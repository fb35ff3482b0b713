"""A results store made up for tests: plainly synthetic numbers in the store's own columns.

Values follow simple formulas of method index, seed and eps, so that a test can work out what a
cell must hold. Nothing here was measured.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from attndrop_repro.config.recipe import Recipe
from attndrop_repro.config.spec import RunSpec
from attndrop_repro.config.suite import Suite
from attndrop_repro.report.rows import rows
from attndrop_repro.report.runs import Run
from attndrop_repro.report.source import Source
from attndrop_repro.store.schema import COLUMNS

METHODS = (
    "none",
    "dropout",
    "dropconnect",
    "rdrop",
    "attentiondrop-hard",
    "attentiondrop-blur",
    "attentiondrop-hard+consistency",
    "attentiondrop-blur+consistency",
)
GRID = ("1/255", "2/255", "4/255", "8/255", "16/255")
EPOCHS = (0, 10, 20, 30, 40)
RECIPE = Recipe.model_validate(
    {
        "name": "synthetic-vit",
        "data": {"name": "synthetic-shapes", "test": 0.25},
        "model": {"name": "vit_synthetic"},
        "training": {"epochs": 40, "batch_size": 64},
    }
)

Change = Callable[[dict[str, Any]], dict[str, Any] | None]


def suite(
    methods: Sequence[str] = METHODS,
    seeds: Sequence[int] = (0, 1, 2),
    baseline: str = "none",
    **more: Any,
) -> Suite:
    """A suite of the synthetic recipe."""
    given = {
        "name": "synthetic",
        "title": "Synthetic numbers",
        "recipes": ["synthetic-vit"],
        "methods": list(methods),
        "seeds": list(seeds),
        "baseline": baseline,
        **more,
    }
    return Suite.model_validate(given)


def noise(*words: object) -> float:
    """A number in [-1, 1] that depends on the words only."""
    import hashlib

    digest = hashlib.sha256(repr(words).encode()).digest()
    return int.from_bytes(digest[:4], "big") / 2**31 - 1


def accuracy(method: str, seed: int) -> float:
    """The made-up accuracy of a run."""
    return 0.93 + 0.004 * (len(method) % 5) + 0.01 * noise("accuracy", method, seed)


def spec(method: str, seed: int, recipe: Recipe = RECIPE, **settings: Any) -> RunSpec:
    """A run's specification."""
    parts = {part: {"p": 0.1, **settings} for part in method.split("+")}
    return RunSpec(recipe=recipe, method=method, settings=parts, seed=seed)


def run(method: str, seed: int, recipe: Recipe = RECIPE, **fields: Any) -> Run:
    """A finished run."""
    settings = fields.pop("settings", {})
    made = spec(method, seed, recipe, **settings)
    given: dict[str, Any] = {
        "run_id": made.run_id,
        "status": "finished",
        "recipe": recipe.name,
        "method": method,
        "seed": seed,
        "config_hash": made.config_hash,
        "epoch": 40,
        "updated": f"2026-01-0{seed % 9 + 1}T00:00:00Z",
        "spec": made,
        "provenance": {
            "code_version": "0.1.0",
            "versions": {"python": "3.11.9", "torch": "2.14.1"},
            "data_checksum": "sha256:synthetic",
        },
        "history": history(method, seed),
    }
    return Run(**(given | fields))


def history(method: str, seed: int) -> list[dict[str, Any]]:
    """Made-up learning curves."""
    shift = 0.03 * (METHODS.index(method) if method in METHODS else len(method) % 7)
    return [
        {
            "epoch": epoch,
            "train_loss": 2.3 * 0.93**epoch + shift + 0.02 * noise("loss", method, seed, epoch),
            "validation_accuracy": 0.95 - 0.85 * 0.88**epoch - shift / 9,
        }
        for epoch in range(1, 41)
    ]


def bins(method: str, seed: int, count: int = 15) -> list[dict[str, Any]]:
    """Made-up reliability bins: empty at low confidence, full at high, as a trained model's."""
    found = []
    for index in range(count):
        low, high = index / count, (index + 1) / count
        held = int(450 * (index / count) ** 6 / 2.4)
        middle = (low + high) / 2
        found.append(
            {
                "lo": low,
                "hi": high,
                "count": held,
                "confidence": middle if held else None,
                "accuracy": max(0.0, middle - 0.08 + 0.05 * noise(method, seed, index))
                if held
                else None,
            }
        )
    return found


def run_rows(one: Run, *, device: str = "cpu", suite: str = "synthetic") -> list[dict[str, Any]]:
    """All rows of a run."""
    method, seed = one.method, one.seed
    shared: dict[str, Any] = {
        "run_id": one.run_id,
        "suite": suite,
        "recipe": one.recipe,
        "task": "image-classification",
        "dataset": RECIPE.data.name,
        "model": RECIPE.model.name,
        "method": method,
        "seed": seed,
        "epoch": 40,
        "precision": "fp32",
        "device": device,
        "threads": 1,
        "status": "finished",
        "config_hash": one.config_hash,
        "code_version": "0.1.0",
        "created_at": f"2026-01-01T00:0{seed % 10}:00Z",
    }
    clean = accuracy(method, seed)
    found: list[dict[str, Any]] = []

    def add(metric: str, value: float, **columns: Any) -> None:
        found.append({**shared, "metric": metric, "value": value, **columns})

    add("accuracy", clean, split="test", n=450)
    add("accuracy", clean + 0.02, split="validation", n=270)
    add("nll", 0.25 + 0.02 * noise("nll", method, seed), split="test", n=450)
    detail = json.dumps({"bins": bins(method, seed)})
    add("ece", 0.045 + 0.01 * noise("ece", method, seed), split="test", n=450, detail=detail)
    after = 0.021 + 0.004 * noise("after", method, seed)
    add("ece_after_temperature", after, split="test", n=450)
    doubled = 2.0 if ("consistency" in method or method == "rdrop") else 1.0
    add("train_seconds", doubled * (9.0 + 0.3 * noise("time", method, seed)), split="train")
    for attack, steps, strength in (("fgsm", 1, 7.0), ("pgd", 20, 10.0)):
        for label in GRID:
            eps = int(label.split("/")[0]) / 255
            shift = 0.03 * noise("attack", method) + 0.02 * noise(attack, method, seed, label)
            value = max(0.0, clean * 2.718 ** (-strength * eps * 3) + shift * eps * 20)
            add(
                "robust_accuracy", value, split="test", n=450, attack=attack, norm="linf",
                eps=eps, eps_label=label, steps=steps, step_size=2 / 255, restarts=1,
            )  # fmt: skip
    for epoch in EPOCHS:
        base = 6.0 * 0.93**epoch + 0.4
        value = base * (1 + 0.25 * noise("gv", method) + 0.1 * noise("gv", method, seed, epoch))
        add("gradient_variance", value, split="train", n=256, epoch=epoch)
        add("gradient_variance_base", base, split="train", n=256, epoch=epoch)
    return found


def frame(records: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows as the store gives them: all columns, absent values missing, whole numbers Int64."""
    made = pd.DataFrame([dict(record) for record in records], columns=list(COLUMNS))
    for name in ("seed", "epoch", "n", "steps", "restarts", "threads"):
        made[name] = made[name].astype("Int64")
    return made


def source(
    methods: Sequence[str] = METHODS,
    seeds: Sequence[int] = (0, 1, 2),
    *,
    change: Change | None = None,
    more: Sequence[Mapping[str, Any]] = (),
    runs: Sequence[Run] | None = None,
    **fields: Any,
) -> Source:
    """What a report reads.

    Args:
        methods: Trained.
        seeds: Of each.
        change: Changes a row, or drops it with None.
        more: Further rows.
        runs: Instead of a finished run for each method and seed.
        fields: Of `Source`.
    """
    made = [run(method, seed) for method in methods for seed in seeds] if runs is None else runs
    records = [row for one in made if one.status == "finished" for row in run_rows(one)]
    if change is not None:
        records = [row for record in records if (row := change(record)) is not None]
    given: dict[str, Any] = {
        "rows": tuple(rows(frame([*records, *more]))),
        "runs": tuple(made),
        "recipes": {RECIPE.name: RECIPE},
        "names": (RECIPE.name,),
        "damaged": {},
    }
    return Source(**(given | fields))
