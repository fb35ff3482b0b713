"""The program: its global options and its commands, listed in one place."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from attndrop_repro import __version__
from attndrop_repro.cli.session import Session, session

# One file of this package each, in the order in which `--help` lists them. A file has `command`, or
# `group` when it has subcommands; it must import nothing heavy before it runs.
COMMANDS = {
    "From nothing to a report": ("reproduce", "report"),
    "Train and measure": ("train", "eval", "calibrate", "attack", "gradvar", "compare", "bench"),
    "Look around": ("recipes", "methods", "datasets", "runs", "export", "results", "doctor"),
    "The papers": ("errata", "bound"),
}


class _Command(TyperCommand):
    """A command whose help says of a flag what it does, and not that it is a <bool>."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _untyped(super().get_params(ctx))


class _Group(TyperGroup):
    """The same for a command with subcommands."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _untyped(super().get_params(ctx))


def _untyped(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


class _AsListed(_Group):
    """Commands in the order of COMMANDS, those with subcommands among them."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for names in COMMANDS.values() for name in names]


app = typer.Typer(
    name="attndrop",
    cls=_AsListed,
    help="Find out whether regularising attention works: train, measure, attack and compare every "
    "method under the same conditions.",
    epilog="Example: attndrop reproduce --suite digits",
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        print(f"attndrop {__version__}")
        raise typer.Exit


@app.callback()
def main(
    context: typer.Context,
    results: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Results store; default: $ATTNDROP_RESULTS, else ./results."
        ),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress and no messages on stderr.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Errors with their traceback.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Say which version."),
    ] = False,
) -> None:
    """What is said before the command; the help of the program is `app.help`."""
    here: Session = session(context)
    here.results = results or here.results
    here.quiet, here.debug = quiet, debug


for panel, names in COMMANDS.items():
    for name in names:
        module = import_module(f"attndrop_repro.cli.{name}")
        if hasattr(module, "group"):
            for inner in module.group.registered_commands:
                inner.cls = _Command
            app.add_typer(module.group, name=name, cls=_Group, rich_help_panel=panel)
        else:
            app.command(name, cls=_Command, rich_help_panel=panel, epilog=module.EXAMPLE)(
                module.command
            )
