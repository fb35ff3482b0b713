"""`attndrop recipes`: what can be trained, and what it costs."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from attndrop_repro.cli.options import Json

group = typer.Typer(
    help="List the recipes, or show one.",
    epilog="Example: attndrop recipes show digits-vit",
    invoke_without_command=True,
)


@group.callback()
def table(context: typer.Context, as_json: Json = False) -> None:
    """All recipes: one line each."""
    if context.invoked_subcommand is not None:
        return
    from attndrop_repro.cli.output import Column, emit_json, emit_table
    from attndrop_repro.config.load import load_recipe
    from attndrop_repro.config.paths import header, recipe_file, recipe_names

    loaded = [(name, load_recipe(name), header(recipe_file(name))) for name in recipe_names()]
    if as_json:
        emit_json([recipe.model_dump(mode="json") | {"header": head} for _, recipe, head in loaded])
        return
    emit_table(
        [Column("recipe"), Column("data set"), Column("epochs", right=True),
         Column("what it is", prose=True)],
        [(name, recipe.data.name, recipe.training.epochs, _sentence(head))
         for name, recipe, head in loaded],
    )  # fmt: skip


def _sentence(head: str) -> str:
    """The first sentence of a recipe's head."""
    text = " ".join(head.split("\n\n")[0].split())
    return re.split(r"(?<=[.:])\s(?=[A-Z])", text, maxsplit=1)[0].rstrip(".:")


@group.command(epilog="Example: attndrop recipes show digits-vit")
def show(
    name: Annotated[str, typer.Argument(metavar="NAME|FILE", help="A recipe.")],
    as_json: Json = False,
) -> None:
    """One recipe: its head, and every field with its value, defaults included."""
    from attndrop_repro.cli.output import emit_json
    from attndrop_repro.config.load import dump_recipe, load_recipe
    from attndrop_repro.config.paths import header, recipe_file

    recipe = load_recipe(name)
    head = header(recipe_file(name))
    if as_json:
        emit_json(recipe.model_dump(mode="json") | {"header": head})
        return
    for line in head.splitlines():
        print(f"# {line}".rstrip())
    print(dump_recipe(recipe), end="")
