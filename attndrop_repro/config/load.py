"""Loading recipes: a name or a file, with overrides, checked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from attndrop_repro.config.overrides import apply_overrides, settings_for
from attndrop_repro.config.paths import recipe_file
from attndrop_repro.config.problems import checked
from attndrop_repro.config.recipe import Recipe
from attndrop_repro.config.yaml_text import dump, read_document

__all__ = ["dump_recipe", "load_recipe", "settings_for"]


def load_recipe(name_or_file: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Loads a recipe.

    Args:
        name_or_file: A recipe's name, or a YAML file.
        overrides: ``KEY=VALUE`` each, VALUE in YAML; see `overrides.apply_overrides`.

    Raises:
        UsageError: No such recipe, or it is wrong; one line for each problem, with file and line,
            what is allowed, and the nearest valid name.
    """
    document = read_document(recipe_file(name_or_file), "recipe")
    apply_overrides(document, overrides)
    return checked(Recipe, document)


def dump_recipe(recipe: Recipe) -> str:
    """A recipe as YAML with every field in it; `load_recipe` reads it back equal."""
    return dump(recipe.model_dump(mode="json"))
