"""Settings of methods: frozen pydantic models whose fields carry symbol, unit, range and source."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Settings(BaseModel):
    """Base of every method's settings: frozen, and unknown names are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def setting(
    default: Any,
    description: str,
    *,
    symbol: str = "",
    unit: str = "",
    source: str = "",
    open_point: str = "",
    **constraints: Any,
) -> Any:
    """A settings field.

    Args:
        default: Its default value.
        description: One sentence for `attndrop methods show`.
        symbol: The paper's symbol.
        unit: "probability", "tokens", "logits", ...
        source: Paper and equation or section.
        open_point: A1 to A19, where the paper leaves this open.
        constraints: `ge`, `le`, `gt`, `lt`, `multiple_of` as in pydantic.
    """
    extra = {"symbol": symbol, "unit": unit, "source": source, "open_point": open_point}
    return Field(
        default,
        description=description,
        json_schema_extra={key: value for key, value in extra.items() if value},
        **constraints,
    )
