"""From a recipe, a method and seeds to runs whose every setting is resolved."""

from __future__ import annotations

from collections.abc import Sequence

from attndrop_repro.config.load import settings_for
from attndrop_repro.config.recipe import Recipe
from attndrop_repro.config.spec import RunSpec


def make_specs(
    recipe: Recipe,
    method: str | None = None,
    seeds: Sequence[int] = (0,),
    init_from: str | None = None,
) -> list[RunSpec]:
    """The runs of one method.

    Args:
        recipe: As loaded, overrides applied.
        method: A name or composition; None: the recipe's own.
        seeds: One run each.
        init_from: Content hash of the weights that they start from.

    Raises:
        UsageError: Unknown method, or settings that do not fit it.
    """
    from attndrop_repro.methods import parse, resolve

    classes = parse(recipe.method if method is None else method)
    names = [cls.name for cls in classes]
    given = settings_for(recipe, names, {cls.name: cls.Settings.model_fields for cls in classes})
    name = "+".join(names)
    settings = {
        part: values.model_dump(mode="json") for part, values in resolve(name, given).items()
    }
    return [
        RunSpec(recipe=recipe, method=name, settings=settings, seed=seed, init_from=init_from)
        for seed in seeds
    ]
