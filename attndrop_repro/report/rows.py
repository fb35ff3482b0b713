"""The store's rows as plain records: what pandas makes of absent numbers ends here."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Row:
    """One measurement; the columns of `store.schema` that the report reads."""

    run_id: str
    suite: str
    recipe: str
    dataset: str
    split: str
    model: str
    method: str
    seed: int | None
    epoch: int | None
    metric: str
    value: float
    n: int | None
    attack: str
    norm: str
    eps: float
    eps_label: str
    steps: int | None
    restarts: int | None
    precision: str
    device: str
    threads: int | None
    status: str
    config_hash: str
    code_version: str
    created_at: str
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def age(self) -> tuple[int, int, str]:
        """Sorts measurements of one thing: the last epoch, the most examples, the newest."""
        return (-1 if self.epoch is None else self.epoch, self.n or 0, self.created_at)


_WHOLE = ("seed", "epoch", "n", "steps", "restarts", "threads")
_REAL = ("value", "eps")
_TEXT = tuple(name for name in Row.__dataclass_fields__ if name not in {*_WHOLE, *_REAL, "detail"})


def rows(frame: pd.DataFrame) -> list[Row]:
    """All rows of a store's frame in an order that does not depend on how they were read."""
    columns = [name for name in Row.__dataclass_fields__ if name in frame.columns]
    found = [_row(columns, values) for values in frame[columns].itertuples(index=False)]
    return sorted(found, key=lambda row: (row.created_at, row.run_id, row.metric, repr(row)))


def _row(columns: list[str], values: Iterable[Any]) -> Row:
    given = dict(zip(columns, values, strict=True))
    known: dict[str, Any] = {name: _text(given.get(name)) for name in _TEXT}
    known |= {name: _real(given.get(name)) for name in _REAL}
    for name in _WHOLE:
        number = _real(given.get(name))
        known[name] = int(number) if math.isfinite(number) else None
    return Row(**known, detail=_object(given.get("detail")))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _real(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):  # None, pandas.NA
        return math.nan


def _object(text: Any) -> dict[str, Any]:
    if not isinstance(text, str) or not text:
        return {}
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
