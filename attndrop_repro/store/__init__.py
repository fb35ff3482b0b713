"""The results store and the checkpoint format: schema, writer, reader.

Names are loaded when first used: listing commands need neither pyarrow nor pandas.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from attndrop_repro.store.run_dir import RunDir
    from attndrop_repro.store.store import RunInfo, Store, groups

__all__ = ["RunDir", "RunInfo", "Store", "groups", "results"]


def results(root: str | Path, *, dedupe: bool = True) -> pd.DataFrame:
    """The tidy table of a results store, one measurement a row; see `Store.frame`."""
    from attndrop_repro.store.store import Store

    return Store(root).frame(dedupe=dedupe)


def __getattr__(name: str) -> Any:
    if name in {"Store", "RunInfo", "groups"}:
        return getattr(importlib.import_module("attndrop_repro.store.store"), name)
    if name == "RunDir":
        return importlib.import_module("attndrop_repro.store.run_dir").RunDir
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
