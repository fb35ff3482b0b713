"""attndrop: find out whether regularising attention works.

    import attndrop_repro as attndrop
    handle = attndrop.apply(model, "attentiondrop-blur+consistency", sigma_max=0.5, lam=1.0)
    loss = handle.loss(x, y, F.cross_entropy)
    handle.remove()

Names are loaded when first used, so that `attndrop --help` need not wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attndrop_repro import functional, methods
    from attndrop_repro.adapters import Handle, apply
    from attndrop_repro.store import results

__version__ = "0.1.0"

__all__ = ["Handle", "__version__", "apply", "functional", "methods", "results"]

_WHERE = {
    "apply": "attndrop_repro.adapters",
    "Handle": "attndrop_repro.adapters",
    "results": "attndrop_repro.store",
}


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(_WHERE[name]), name)
    if name in {"functional", "methods"}:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
