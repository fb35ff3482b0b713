"""Suites: recipes x methods x seeds x measurements, one file each."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from attndrop_repro.config.errors import UsageError
from attndrop_repro.config.paths import recipe_file, suite_file
from attndrop_repro.config.problems import checked
from attndrop_repro.config.recipe import Section
from attndrop_repro.config.yaml_text import read_document

Measure = Literal["eval", "calibrate", "attack", "gradvar"]


class Suite(Section):
    """What `attndrop reproduce` runs and measures, and what its report compares."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    title: str = Field(min_length=1, description="the report's heading")
    recipes: tuple[str, ...] = Field(min_length=1, description="names or files of recipes")
    methods: tuple[str, ...] = Field(min_length=1, description="methods and compositions")
    seeds: tuple[int, ...] = Field((0, 1, 2), min_length=1, description="one run each")
    baseline: str = Field("none", description="the method that the others are compared with")
    measure: tuple[Measure, ...] = Field(
        ("eval", "calibrate", "attack", "gradvar"), description="measurements of every run"
    )

    @field_validator("recipes", "methods", "seeds", "measure")
    @classmethod
    def _once(cls, values: tuple[str | int, ...]) -> tuple[str | int, ...]:
        twice = [value for index, value in enumerate(values) if value in values[:index]]
        if twice:
            raise ValueError(f"{twice[0]!r} stands in it twice")
        return values

    @field_validator("seeds")
    @classmethod
    def _not_negative(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if any(seed < 0 for seed in seeds):
            raise ValueError("seeds must be at least 0")
        return seeds

    @model_validator(mode="after")
    def _baseline_is_run(self) -> Suite:
        if self.baseline not in self.methods:
            raise ValueError(f"baseline {self.baseline!r} must be one of the methods")
        return self


def load_suite(name_or_file: str | Path) -> Suite:
    """Loads a suite; its recipes must exist (methods are checked by who knows them).

    Raises:
        UsageError: No such suite, or it is wrong; with file and line.
    """
    document = read_document(suite_file(name_or_file), "suite")
    suite = checked(Suite, document)
    problems = []
    for index, recipe in enumerate(suite.recipes):
        try:
            recipe_file(recipe)
        except UsageError as error:
            problems.append(f"{document.place(('recipes', index))}: {error}")
    if problems:
        raise UsageError("\n".join(problems))
    return suite
