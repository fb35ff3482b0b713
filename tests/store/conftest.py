"""A tiny run in a store of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attndrop_repro.config.recipe import Recipe
from attndrop_repro.config.spec import RunSpec
from attndrop_repro.store.store import Store


def tiny_spec(seed: int = 0, method: str = "none", **data: Any) -> RunSpec:
    recipe = Recipe.model_validate(
        {
            "name": "tiny",
            "data": {"name": "digits", "test": 0.25, **data},
            "model": {"name": "vit"},
            "training": {"epochs": 4, "batch_size": 64},
        }
    )
    return RunSpec(recipe=recipe, method=method, settings={method: {}}, seed=seed)


@pytest.fixture
def spec() -> Callable[..., RunSpec]:
    return tiny_spec


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., tuple[Store, str]]:
    """Makes a store with one run that has begun: ``store, run_id = make()``."""

    def begin(name: str = "results", **spec: Any) -> tuple[Store, str]:
        store = Store(tmp_path / name)
        run = store.begin_run(tiny_spec(**spec), {"code_version": "0.1.0"})
        return store, run.run_id

    return begin
