"""Which measurements there should be, and which a store lacks. No torch here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from attndrop_repro.config.recipe import Recipe
from attndrop_repro.config.spec import RunSpec
from attndrop_repro.evaluation.options import (
    AttackOptions,
    CalibrateOptions,
    EvalOptions,
    GradvarOptions,
    Options,
    default_options,
)

if TYPE_CHECKING:
    from attndrop_repro.store import Store

# Columns that a row must have. n: examples at most, None: all there are; detail: entries of it.
Identity = dict[str, Any]


def wanted(options: Options) -> list[Identity]:
    """One identity for each thing to be measured: the row that comes of it, but run and epoch."""
    if isinstance(options, EvalOptions):
        last = "ece_after_temperature" if isinstance(options, CalibrateOptions) else "ece"
        first = "temperature" if isinstance(options, CalibrateOptions) else "accuracy"
        return [
            {"split": options.label, "metric": first},
            {
                "split": options.label,
                "metric": options.binned(last),
                "detail": {"bin_count": options.bins},
            },
        ]
    if isinstance(options, AttackOptions):
        shared = {"metric": "robust_accuracy", "split": options.split, "n": options.limit}
        return [{**shared, **setting.columns()} for setting in options.settings]
    how = {"draws": options.draws, "per": options.per, "perturbation": options.perturbation}
    if options.per == "batch" or options.perturbation == "batch":
        how["batch_size"] = options.batch_size
    return [
        {
            "metric": "gradient_variance",
            "split": options.split,
            "n": units(options),
            "detail": how,
        }
    ]


def units(options: GradvarOptions) -> int:
    """Gradients whose variance is measured, where there are enough examples."""
    if options.per == "batch":
        return options.examples // options.batch_size
    return options.examples


def measured_epochs(kind: str, recipe: Recipe) -> tuple[int | None, ...]:
    """At which epochs' weights a recipe wants a measurement; None: the final ones.

    Those are measured too where the recipe's list has epochs that are not kept.
    """
    listed = recipe.evaluation.gradient_variance.epochs if kind == "gradvar" else ()
    absent = unkept_epochs(recipe)
    kept = tuple(epoch for epoch in listed if epoch not in absent)
    last = recipe.training.epochs if recipe.training.select == "last" else None
    if not listed:
        return (None,)
    return kept if len(kept) == len(listed) or last in kept else (*kept, last)


def unkept_epochs(recipe: Recipe) -> tuple[int, ...]:
    """Epochs at which the recipe wants the gradient's variance, but keeps no weights.

    As where --set has shortened the training, or the list of its snapshots.
    """
    training = recipe.training
    kept = {epoch for epoch in training.snapshots if epoch <= training.epochs}
    if training.select == "last":
        kept.add(training.epochs)
    return tuple(e for e in recipe.evaluation.gradient_variance.epochs if e not in kept)


def lacking(kind: str, specs: Sequence[RunSpec], store: Store) -> list[RunSpec]:
    """The runs whose measurement, as their recipe asks for it, is not in the store, in order.

    Args:
        kind: "eval", "calibrate", "attack" or "gradvar".
        specs: Finished runs.
        store: Where to look.
    """
    have = Have(store)
    found = []
    for spec in specs:
        needs = wanted(default_options(kind, spec.recipe))
        epochs = measured_epochs(kind, spec.recipe)
        at: list[Identity] = [{} if epoch is None else {"epoch": epoch} for epoch in epochs]
        if not all(have(spec.run_id, {**need, **where}) for need in needs for where in at):
            found.append(spec)
    return found


_APART = ("eps", "n", "detail")  # compared in ways of their own


class Have:
    """Answers whether a store has a row, after reading it once."""

    _COLUMNS = (
        "metric", "split", "epoch", "n", "attack", "norm", "eps_label", "steps", "step_size",
        "restarts", "detail",
    )  # fmt: skip

    def __init__(self, store: Store) -> None:
        table = store.table(dedupe=False).select(["run_id", *self._COLUMNS])
        self._rows: dict[str, list[Identity]] = {}
        for row in table.to_pylist():
            self._rows.setdefault(row.pop("run_id"), []).append(row)

    def __call__(self, run_id: str, identity: Identity) -> bool:
        """Whether some row of the run agrees with an identity (its `eps` follows its label)."""
        asked = [(name, value) for name, value in identity.items() if name not in _APART]
        return any(
            all(row[name] == value for name, value in asked) and _fits(row, identity)
            for row in self._rows.get(run_id, ())
        )

    def all(self, run_id: str, identities: Iterable[Identity]) -> bool:
        """Whether it has them all."""
        return all(self(run_id, identity) for identity in identities)


def _fits(row: Identity, identity: Identity) -> bool:
    """Whether a row's detail is as wanted, and it stands on as many examples as are wanted."""
    detail = json.loads(row["detail"] or "{}")
    if any(detail.get(name) != value for name, value in identity.get("detail", {}).items()):
        return False
    if "n" not in identity or row["n"] is None or row["n"] == identity["n"]:
        return True
    there = detail.get("available")
    if there is None:
        return identity["n"] is None
    return bool(row["n"] == there and (identity["n"] is None or identity["n"] > there))
