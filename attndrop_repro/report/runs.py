"""What a run's folder tells: state, settings, versions, history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from attndrop_repro.config.recipe import Recipe
from attndrop_repro.config.spec import RunSpec
from attndrop_repro.report.rows import Row

# These may differ between runs that are compared: the method and its settings do by intent, and
# how something was measured stands with the measurement.
_BESIDE = frozenset({"method", "settings", "evaluation"})


@dataclass(frozen=True)
class Run:
    """A run of a recipe.

    Attributes:
        run_id: Its name in the store.
        status: running, finished, failed, interrupted.
        recipe: Name of its recipe.
        method: Canonical composition.
        seed: Seed.
        config_hash: Of everything that decides its numbers but the seed.
        message: Why it failed, or empty.
        epoch: The last complete epoch, if known.
        updated: When its state was last written (UTC, ISO 8601).
        spec: Recipe and settings; None for a run known by its rows only.
        provenance: Versions, device, checksums, open points.
        history: Rows of the training history.
    """

    run_id: str
    status: str
    recipe: str
    method: str
    seed: int
    config_hash: str = ""
    message: str = ""
    epoch: int | None = None
    updated: str = ""
    spec: RunSpec | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    history: Sequence[Mapping[str, Any]] = ()

    @property
    def settings(self) -> Mapping[str, Mapping[str, Any]]:
        """By part of the method."""
        return {} if self.spec is None else self.spec.settings

    @property
    def dataset(self) -> str:
        """What it learned."""
        return "" if self.spec is None else self.spec.recipe.data.name

    @property
    def why_missing(self) -> str:
        """Why a measurement of this run is not there, as a cell says it."""
        if self.status == "failed":
            return f"failed: {self.message}" if self.message else "failed"
        if self.status == "running":
            return "still running"
        if self.status == "interrupted":
            return "interrupted" if self.epoch is None else f"interrupted at epoch {self.epoch}"
        return "not measured"

    def made_by(self, recipe: Recipe) -> bool:
        """Whether it is a run of a recipe as that is: no sweep of it, no earlier version."""
        if self.spec is None:
            return False
        plain = self.spec.recipe
        same = {"method": recipe.method, "evaluation": recipe.evaluation}
        return plain.model_copy(update=same) == recipe


def of_rows(rows: Sequence[Row]) -> list[Run]:
    """Runs that a store knows by their measurements only (a merged table without folders)."""
    newest = {row.run_id: row for row in rows if row.run_id and row.seed is not None}
    return [
        Run(
            run_id=row.run_id,
            status=row.status or "finished",
            recipe=row.recipe,
            method=row.method,
            seed=row.seed or 0,
            config_hash=row.config_hash,
            updated=row.created_at,
        )
        for row in newest.values()
    ]


def differing(runs: Sequence[Run]) -> list[str]:
    """Dotted keys of the recipe in which runs differ that should share all but the method."""
    specs = [run.spec for run in runs if run.spec is not None]
    if len({_conditions(spec) for spec in specs}) < 2:
        return []
    flat = [_flatten(spec.recipe.model_dump(mode="json", exclude=set(_BESIDE))) for spec in specs]
    keys = sorted({key for one in flat for key in one} - {"name"})
    return [key for key in keys if len({one.get(key, "") for one in flat}) > 1] or ["init_from"]


def _conditions(spec: RunSpec) -> str:
    """The hash that a run without a method would have: equal where only methods differ."""
    # Made anew: a copy would keep the hash that the original has worked out.
    bare = RunSpec(recipe=spec.recipe, method="none", settings={}, seed=0, init_from=spec.init_from)
    return bare.config_hash


def _flatten(value: Any, prefix: str = "") -> dict[str, str]:
    if not isinstance(value, Mapping) or not value:
        return {prefix: repr(value)}
    found: dict[str, str] = {}
    for key, inner in value.items():
        found |= _flatten(inner, f"{prefix}.{key}" if prefix else str(key))
    return found
