"""The report's only door to the results store and the recipes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.config.load import load_recipe
from attndrop_repro.config.recipe import Recipe
from attndrop_repro.config.suite import Suite
from attndrop_repro.report.rows import Row, rows
from attndrop_repro.report.runs import Run
from attndrop_repro.store import Store

if TYPE_CHECKING:
    from attndrop_repro.store import RunInfo

_AS_USERS_SAY = {"dead": "interrupted"}  # its process is gone; the run can go on


@dataclass(frozen=True)
class Source:
    """What a report is made of.

    Attributes:
        rows: All measurements of the store.
        runs: Its runs of the suite's recipes.
        recipes: The suite's recipes as they are now, by name; those that cannot be read are
            absent.
        names: Of the suite's recipes, in its order.
        damaged: Runs whose folder cannot be read, with the reason.
    """

    rows: tuple[Row, ...]
    runs: tuple[Run, ...]
    recipes: Mapping[str, Recipe]
    names: tuple[str, ...]
    damaged: Mapping[str, str]


def read(root: Path, suite: Suite) -> Source:
    """Reads what a suite's report needs.

    Args:
        root: Folder of the results store; it need not exist.
        suite: The suite.
    """
    store = Store(root)
    recipes: dict[str, Recipe] = {}
    names = []
    for given in suite.recipes:
        try:
            recipe = load_recipe(given)
        except AttndropError:  # a store from elsewhere may outlive the recipe's file
            names.append(Path(given).stem)
        else:
            recipes[recipe.name] = recipe
            names.append(recipe.name)
    runs, damaged = [], {}
    for info in store.runs():
        if info.spec is None:
            if any(info.run_id.startswith(f"{name}--") for name in names):
                damaged[info.run_id] = info.message
        elif info.spec.recipe.name in names:
            runs.append(_run(store, info))
    return Source(tuple(rows(store.frame())), tuple(runs), recipes, tuple(names), damaged)


def _run(store: Store, info: RunInfo) -> Run:
    folder = store.run_dir(info.run_id)
    spec = info.spec
    assert spec is not None
    message = info.message
    history: list[dict[str, Any]] = []
    provenance: dict[str, Any] = {}
    try:
        history = folder.history()
        provenance = folder.provenance()
    except (AttndropError, ValueError) as error:  # the measurements count all the same
        message = message or f"folder damaged: {error}"
    return Run(
        run_id=info.run_id,
        status=_AS_USERS_SAY.get(info.status, info.status),
        recipe=spec.recipe.name,
        method=spec.method,
        seed=spec.seed,
        config_hash=spec.config_hash,
        message=message,
        epoch=info.epoch,
        updated=info.updated,
        spec=spec,
        provenance=provenance,
        history=history,
    )
