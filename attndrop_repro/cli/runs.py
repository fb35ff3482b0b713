"""`attndrop runs`: what is in the store, how far it is, and how to go on."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Annotated

import typer

from attndrop_repro.cli.options import Json
from attndrop_repro.cli.session import session
from attndrop_repro.config.errors import UsageError

group = typer.Typer(
    help="List the runs in the store; show, compare or remove them.",
    epilog="Example: attndrop runs show last",
    invoke_without_command=True,
)

WHICH = "A run's id, a beginning that only it has, or last."
Run = Annotated[str, typer.Argument(metavar="RUN", help=WHICH)]


@group.callback()
def table(context: typer.Context, as_json: Json = False) -> None:
    """All runs: state, progress, best validation accuracy, age."""
    if context.invoked_subcommand is not None:
        return
    from attndrop_repro.cli.output import Column, emit_json, emit_table
    from attndrop_repro.experiments import runs

    here = session(context)
    found = [runs.brief(info) for info in here.known_store().runs()]
    if as_json:
        emit_json(found)
        return
    if not found:
        here.say(f"no runs in {here.results}")
        return
    emit_table(
        [Column("run"), Column("state"), Column("done", right=True), Column("best", right=True),
         Column("age", right=True)],
        [(run["run_id"], run["status"], _percent(run["progress"]),
          _percent(run["best_validation_accuracy"]), _age(run["updated_at"])) for run in found],
    )  # fmt: skip
    stuck = [run["run_id"] for run in found if run["status"] in runs.RESUMABLE]
    if stuck:
        here.say(f"{len(stuck)} can go on: attndrop runs show RUN says how")


@group.command(epilog="Example: attndrop runs show last --json")
def show(context: typer.Context, run: Run, as_json: Json = False) -> None:
    """One run: state, settings, measurements, and how to go on with it."""
    from attndrop_repro.cli.measuring import emit_measurements
    from attndrop_repro.cli.output import emit_fields, emit_json
    from attndrop_repro.experiments import runs

    here = session(context)
    store = here.known_store()
    folder = store.find_run(run)
    found = runs.whole(store, folder)
    if as_json:
        emit_json(found)
        return
    state, spec = found["state"], found["spec"]
    fields = [
        ("run", found["run_id"]),
        ("state", found["status"]),
        ("message", state.get("message")),
        ("epochs", f"{state.get('epoch', 0)} of {spec['recipe']['training']['epochs']}"),
        ("best", _percent(state.get("best"))),
        ("method", spec["method"]),
        *((f"{part}.{name}", value) for part, values in spec["settings"].items()
          for name, value in values.items()),
        ("seed", spec["seed"]),
        ("updated", state.get("updated_at")),
        ("folder", found["path"]),
    ]  # fmt: skip
    if found["status"] in runs.RESUMABLE:
        fields.append(("to go on", runs.resume_command(folder, str(here.results))))
    emit_fields((name, value) for name, value in fields if value is not None)
    if found["measurements"]:
        print()
        emit_measurements(found["measurements"], digits=5)


@group.command(epilog="Example: attndrop runs diff digits-vit--none--s0 digits-vit--dropkey--s0")
def diff(context: typer.Context, first: Run, second: Run, as_json: Json = False) -> None:
    """Where two runs differ: recipe, settings, seed, versions, device."""
    from attndrop_repro.cli.output import Column, emit_json, emit_table
    from attndrop_repro.experiments import runs

    here = session(context)
    store = here.known_store()
    found = runs.difference(store.find_run(first), store.find_run(second))
    if as_json:
        emit_json(found)
    elif found:
        emit_table(
            [Column("field"), Column("first", prose=True), Column("second", prose=True)],
            [(row["field"], row["first"], row["second"]) for row in found],
        )
    else:
        here.say("they do not differ")


@group.command(epilog="Example: attndrop runs rm digits-vit--dropkey--s0 --yes")
def rm(
    context: typer.Context,
    run: Annotated[list[str], typer.Argument(metavar="RUN...", help=WHICH)],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove runs for good: weights, logits and measurements."""
    here = session(context)
    store = here.known_store()
    names = list(dict.fromkeys(store.find_run(name).run_id for name in run))
    alive = [info.run_id for info in store.runs() if info.status == "running"]
    for name in names:
        if name in alive:
            raise UsageError(f"{name} is running: stop it first")
    if not yes:
        if sys.stdin is None or not sys.stdin.isatty():  # None: it was closed
            raise UsageError(f"this removes {', '.join(names)} for good: add --yes")
        question = f"Remove {', '.join(names)} for good?"
        if not typer.confirm(question, err=True):
            raise typer.Exit(1)
    for name in names:
        store.remove_run(name)
        here.say(f"removed {name}")


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.1f} %"


def _age(updated: str) -> str | None:
    from attndrop_repro.cli.progress import duration

    if not updated:
        return None
    return duration((datetime.now(UTC) - datetime.fromisoformat(updated)).total_seconds())
