"""What the four measuring commands have in common: whom they measure, and what is shown."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from attndrop_repro.cli import options as opt
from attndrop_repro.cli.session import Session
from attndrop_repro.config.errors import UsageError

if TYPE_CHECKING:
    from attndrop_repro.config.spec import RunSpec
    from attndrop_repro.evaluation.options import Options
    from attndrop_repro.experiments.measuring import Epochs


@dataclass(frozen=True)
class Target:
    """Whom to measure: runs of the store, or one model from elsewhere.

    Attributes:
        run: A run, "last", or all.
        recipe: Only runs of this recipe.
        force: Measure again.
        data_dir: Folder of the data.
        download: Whether data may be fetched.
        device: Where.
        outside: Arguments for `load_outside`; those not given are None or False.
        split: What it is judged on; None: as the recipe says.
        from_logits: Whether stored logits take the model's place.
    """

    run: str | None
    recipe: str | None
    force: bool
    data_dir: Path | None
    download: bool
    device: str
    outside: Mapping[str, Any]
    split: str | None = None
    from_logits: bool = False

    def regularised(self, method: str | None) -> Target:
        """With what regularises a model from elsewhere, where that is switched on."""
        return replace(self, outside={**self.outside, "method": method})

    @property
    def elsewhere(self) -> bool:
        """Whether it is a model from elsewhere.

        Raises:
            UsageError: Options of both kinds, or too few.
        """
        given = {name: value for name, value in self.outside.items() if value}
        if not given:
            return False
        if self.from_logits:
            raise UsageError(
                "--from-logits needs no model: give --run and the name that eval printed"
            )
        if self.run is not None or self.recipe is not None:
            raise UsageError("--run and --recipe choose runs; a model from elsewhere has neither")
        for name in ("model", "dataset"):
            if name not in given:
                raise UsageError(f"a model from elsewhere needs --{name} as well")
        return True


def _whom(
    run: opt.Run = None,
    recipe: opt.Recipe = None,
    split: opt.Split = None,
    force: opt.Force = False,
    data_dir: opt.DataDir = None,
    download: opt.Download = False,
    device: opt.Device = "auto",
    checkpoint: opt.Checkpoint = None,
    model: opt.Model = None,
    model_arg: opt.ModelArg = None,
    dataset: opt.Dataset = None,
    image_size: opt.ImageSize = None,
    resample_positions: opt.ResamplePositions = False,
) -> Target:
    outside = {
        "checkpoint": checkpoint, "model": model, "dataset": dataset, "image_size": image_size,
        "resample_positions": resample_positions, "model_args": _arguments(model_arg or ()),
    }  # fmt: skip
    return Target(run, recipe, force, data_dir, download, device, outside, split)


def _arguments(given: Sequence[str]) -> dict[str, Any]:
    """Arguments of a model from KEY=VALUE."""
    from attndrop_repro.config.yaml_text import parse_value

    found = {}
    for each in given:
        key, equals, value = each.partition("=")
        if not equals or not key.isidentifier():
            raise UsageError(f"--model-arg {each!r} is not KEY=VALUE, as in embed_dim=48")
        found[key] = parse_value(value)
    return found


def measures(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command, in the place of its parameter `whom`, the options that make a `Target`."""
    own = inspect.signature(command, eval_str=True).parameters
    shared = inspect.signature(_whom, eval_str=True).parameters

    @functools.wraps(command)
    def wrapped(**given: Any) -> None:
        whom = _whom(**{name: given.pop(name) for name in shared})
        command(**given, whom=whom)

    wrapped.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [each for name, one in own.items()
         for each in (shared.values() if name == "whom" else (one,))]
    )  # fmt: skip
    return wrapped


def measure(
    session: Session,
    kind: str,
    target: Target,
    options: Callable[[RunSpec | None], Options],
    epochs: Callable[[RunSpec], Epochs],
    *,
    as_json: bool,
    after: Callable[[Sequence[Mapping[str, Any]]], None] | None = None,
) -> None:
    """Measures, prints what is new, and fails if a run could not be measured.

    Args:
        session: Of the program.
        kind: "eval", "calibrate", "attack" or "gradvar".
        target: Whom to measure.
        options: What to measure of a run; of a model from elsewhere, when called with None.
        epochs: At which weights of a run.
        as_json: Rows as JSON instead of a table.
        after: Is told the new rows, if there are any, once they are shown.
    """
    if target.elsewhere:
        rows, failed = _elsewhere(session, kind, target, options(None)), 0
        asked = 1
    elif target.from_logits and _of_elsewhere(target.run):
        rows, failed, asked = _from_logits(session, str(target.run), options(None)), 0, 1
    else:
        rows, failed, asked = _runs(session, kind, target, options, epochs)
    _show(rows, as_json)
    if not rows and not failed:
        whom = "it was" if asked == 1 else f"all {asked} runs were"
        session.say(f"nothing to do: {whom} measured before; --force measures again")
    if rows and after is not None:
        after(rows)
    for row in rows:
        _warn(session, row)
    if failed:
        raise typer.Exit(1)


def _runs(
    session: Session,
    kind: str,
    target: Target,
    options: Callable[[RunSpec | None], Options],
    epochs: Callable[[RunSpec], Epochs],
) -> tuple[list[dict[str, Any]], int, int]:
    from attndrop_repro.experiments.measuring import Measurer, chosen, measure_all
    from attndrop_repro.experiments.where import Where

    store = session.known_store()
    specs = chosen(store, target.run, target.recipe)
    where = Where(session.results, target.data_dir, target.device, target.download)
    rows, failed = [], 0
    for measured in measure_all(
        kind, specs, options, epochs, Measurer(store, where), show=session.progress,
        force=target.force, from_logits=target.from_logits,
    ):  # fmt: skip
        rows += [{"run_id": measured.run_id, **row} for row in measured.rows]
        if measured.error:
            failed += 1
            named = measured.error.startswith(measured.run_id)
            session.error(measured.error if named else f"{measured.run_id}: {measured.error}")
    return rows, failed, len(specs)


def _elsewhere(
    session: Session, kind: str, target: Target, options: Options
) -> list[dict[str, Any]]:
    from attndrop_repro.evaluation.measure import measure as measure_subject
    from attndrop_repro.evaluation.outside import load_outside
    from attndrop_repro.training.machine import chosen_device

    given = {name: value for name, value in target.outside.items() if value}
    subject = load_outside(
        checkpoint=given.pop("checkpoint", None),
        **given,
        data_dir=target.data_dir,
        download=target.download,
        device=chosen_device(target.device),
    )
    for note in subject.notes.get("loaded", ()):
        session.say(note)
    with session.progress(f"{kind} {subject.columns['model']}") as progress:
        rows = measure_subject(
            kind, subject, session.store(), options=options, progress=progress, force=target.force
        )
    return [{"run_id": subject.columns["run_id"], **row} for row in rows]


def _of_elsewhere(run: str | None) -> bool:
    """Whether a run's name is one of a model from elsewhere."""
    from attndrop_repro.store.schema import OUTSIDE

    return run is not None and run.startswith(OUTSIDE)


def _from_logits(session: Session, run: str, options: Options) -> list[dict[str, Any]]:
    """Of a model from elsewhere, by the name of its rows."""
    from attndrop_repro.evaluation.options import EvalOptions
    from attndrop_repro.evaluation.recompute import recompute_outside

    assert isinstance(options, EvalOptions)  # the other commands have no --from-logits
    name, rows = recompute_outside(run, session.known_store(), options)
    return [{"run_id": name, **row} for row in rows]


def _warn(session: Session, row: Mapping[str, Any]) -> None:
    """Says which checks an attack did not pass: its number may be too high."""
    failed = row.get("detail", {}).get("audit", {}).get("failed", ())
    if failed:
        session.say(
            f"warning: {row['run_id']}: {row['attack']} at eps {row['eps_label']} does not pass "
            f"{', '.join(failed)} (docs/warnings.md)"
        )


def _show(rows: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    from attndrop_repro.cli.output import emit_json

    if as_json:
        emit_json(list(rows))
        return
    for index, run_id in enumerate(dict.fromkeys(row["run_id"] for row in rows)):
        print(("\n" if index else "") + run_id)
        emit_measurements([row for row in rows if row["run_id"] == run_id])


def emit_measurements(rows: Sequence[Mapping[str, Any]], digits: int = 4) -> None:
    """A table of a run's measurements, with those columns that any of them has.

    Args:
        rows: With the names of the store's columns.
        digits: Significant ones of the values.
    """
    from attndrop_repro.cli.output import Column, emit_table

    shown = [
        column
        for column in (
            Column("metric"), Column("split"), Column("epoch", right=True), Column("attack"),
            Column("norm"), Column("eps_label", right=True), Column("steps", right=True),
            Column("restarts", right=True), Column("value", right=True), Column("n", right=True),
        )
        if any(row.get(column.name) is not None for row in rows)
    ]  # fmt: skip

    def cell(value: object) -> object:
        return f"{value:.{digits}g}" if isinstance(value, float) else value

    emit_table(
        [Column(c.name.removesuffix("_label"), right=c.right) for c in shown],
        [[cell(row.get(column.name)) for column in shown] for row in rows],
    )
