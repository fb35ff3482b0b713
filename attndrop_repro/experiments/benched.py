"""What all benchmarks have in common: how the store names their rows, and who is missing there."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import attndrop_repro
from attndrop_repro.config.spec import canonical_json
from attndrop_repro.store.schema import outside_id

NAN = float("nan")


def columns(model: str, told: Mapping[str, Any], **known: Any) -> dict[str, Any]:
    """Columns of one benchmarked thing; measured again, it gets the same name.

    Args:
        model: What the store's column of that name says.
        told: What else tells it from others: its label, sizes, settings; JSON values.
        known: Further columns: method, recipe, precision, device, threads.
    """
    own = {"model": model, **known}
    if told.get("settings"):
        own["settings"] = canonical_json(told["settings"])
    digest = hashlib.sha256(canonical_json({**own, "told": dict(told)}).encode()).hexdigest()[:8]
    version = attndrop_repro.__version__
    return {
        **own, "run_id": outside_id(model, digest), "code_version": version,
        "status": "finished",
    }  # fmt: skip
