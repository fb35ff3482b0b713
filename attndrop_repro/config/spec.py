"""A run's specification: recipe, method, seed; and the hash and the name that follow from them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.config.recipe import Recipe, Section

# Given apart (method, settings), named apart (name), or measured apart (evaluation).
_APART = frozenset({"name", "method", "settings", "evaluation"})
_WHOLE_COLUMNS = ("k", "w")
_NUMBER_COLUMNS = ("p", "k", "w", "sigma_max", "lam")


class RunSpec(BaseModel):
    """All that decides the numbers of one run, and nothing about where it happens.

    Attributes:
        recipe: Final: overrides applied.
        method: The method's canonical name, as in ``attentiondrop-blur+consistency``.
        settings: By part of the method, all of its settings, resolved.
        seed: The run's seed.
        init_from: Content hash of the weights that it starts from, if not from a fresh draw.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    recipe: Recipe
    method: str = Field(min_length=1)
    settings: dict[str, dict[str, Any]]
    seed: int = Field(ge=0)
    init_from: str | None = None

    @cached_property
    def config_hash(self) -> str:
        """12 hex digits of the SHA-256 of everything that decides numbers, except the seed.

        Left out are names, `evaluation` (a measurement has columns of its own), fields marked
        `NO_NUMBERS`, and recipe fields at their defaults: a field added later with a default that
        keeps the old behaviour orphans no run. So a default must never change its meaning.
        """
        content = {
            "recipe": _deciding(self.recipe, leave_out=_APART),
            "method": self.method,
            "settings": self.settings,
            "init_from": self.init_from,
        }
        return hashlib.sha256(canonical_json(content).encode()).hexdigest()[:12]

    @property
    def run_id(self) -> str:
        """The run's name: ``digits-vit--dropkey--s0--1f2e3d4c``."""
        return f"{self.recipe.name}--{self.method}--s{self.seed}--{self.config_hash[:8]}"

    @property
    def resolved_recipe(self) -> Recipe:
        """The recipe whose own method and settings are this run's; alone it repeats the run."""
        return self.recipe.model_copy(update={"method": self.method, "settings": self.settings})

    def columns(self) -> dict[str, Any]:
        """The columns of the results store that follow from the specification."""
        recipe = self.recipe
        return {
            "run_id": self.run_id,
            "recipe": recipe.name,
            "task": recipe.task,
            "dataset": recipe.data.name,
            "model": recipe.model.name,
            "method": self.method,
            "seed": self.seed,
            **{name: self._number(name) for name in _NUMBER_COLUMNS},
            "settings": canonical_json(self.settings),
            "precision": recipe.runtime.precision,
            "threads": recipe.runtime.threads,
            "config_hash": self.config_hash,
        }

    def to_json(self) -> str:
        """As JSON text; `from_json` reads it back equal."""
        return json.dumps(self.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> RunSpec:
        """Reads what `to_json` wrote.

        Raises:
            AttndropError: It is not that, or a later version wrote it.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise AttndropError(
                f"not the specification of a run of this version: {where}: {first['msg']}"
            ) from None

    def _number(self, name: str) -> int | float | None:
        """A setting as a column: what the parts agree on; no column holds a schedule or a list."""
        values = [part[name] for part in self.settings.values() if name in part]
        plain = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
        if not plain or len(plain) < len(values) or len(set(plain)) > 1:
            return None
        value = plain[0]
        if name not in _WHOLE_COLUMNS:
            return float(value)
        return int(value) if float(value).is_integer() else None


def canonical_json(content: Any) -> str:
    """JSON that is equal for equal content: keys sorted, 2.0 written as 2, no spaces."""
    return json.dumps(
        _plain(content),
        sort_keys=True,
        ensure_ascii=False,
        separators=(",", ":"),
        allow_nan=False,
    )


def _plain(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {str(key): _plain(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_plain(value) for value in content]
    if isinstance(content, set | frozenset):
        return sorted((_plain(value) for value in content), key=str)
    if isinstance(content, float) and content.is_integer() and abs(content) < 2**53:
        return int(content)
    return content


def _deciding(section: Section, leave_out: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The fields of a section that change numbers and are not at their defaults."""
    content: dict[str, Any] = {}
    for name, info in type(section).model_fields.items():
        extra = info.json_schema_extra
        if name in leave_out or (isinstance(extra, dict) and not extra.get("changes_numbers", 1)):
            continue
        value = getattr(section, name)
        if isinstance(value, Section):
            inner = _deciding(value)
            if inner:
                content[name] = inner
        elif info.is_required() or value != info.get_default(call_default_factory=True):
            content[name] = value
    return content
