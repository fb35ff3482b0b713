"""The cost of one attention under every method that acts on attention, each in its own process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attndrop_repro.config.errors import AttndropError, UsageError
from attndrop_repro.config.progress import Progress, Silent
from attndrop_repro.evaluation.attention_cost import Attention, AttentionCost, attention_cost
from attndrop_repro.evaluation.step_cost import NOISE, PLAIN, Contender
from attndrop_repro.experiments.benched import NAN, columns
from attndrop_repro.experiments.own_process import in_own_process
from attndrop_repro.methods import canonical, parse, registry
from attndrop_repro.store.schema import Measurement

# what it costs to change a mode
_MORE = (
    Contender(
        "attentiondrop-blur (rows_and_columns)", "attentiondrop-blur",
        {"axes": "rows_and_columns"},
    ),
    Contender("attentiondrop-hard (drop)", "attentiondrop-hard", {"mode": "drop"}),
    Contender("dropattention (column)", "dropattention", {"unit": "column"}),
)  # fmt: skip


@dataclass(frozen=True)
class AttentionRow:
    """One method's cost.

    Attributes:
        label: As shown.
        method: The method or composition.
        settings: Those given; all else is at the defaults.
        ratio: Time over torch's fused attention, forward and backward.
        low: Lower quartile over the rounds.
        high: Upper quartile.
        milliseconds: Of the median call.
        added_memory_mb: Peak memory beyond the inputs', in MiB.
        memory_ratio: That over what torch's fused attention adds.
        error: Why there are no numbers; empty where there are.
    """

    label: str
    method: str
    settings: dict[str, Any]
    ratio: float = NAN
    low: float = NAN
    high: float = NAN
    milliseconds: float = NAN
    added_memory_mb: float = NAN
    memory_ratio: float = NAN
    error: str = ""


def attention_contenders(names: Sequence[str] = ()) -> list[Contender]:
    """The methods named, or all that act on an attention.

    Raises:
        UsageError: A method named acts elsewhere, at least in part.
    """
    if not names:
        alone = [name for name in registry.names() if _on_attention(registry.get(name))]
        return [*(Contender(name, name) for name in alone), *_MORE]
    chosen = list(dict.fromkeys(map(canonical, names)))
    for name in chosen:
        for part in parse(name):
            if not _on_attention(part):
                raise UsageError(f"{part.name} does nothing inside an attention: bench a model")
    return [Contender(name, name) for name in chosen]


def bench_attention(
    attention: Attention,
    chosen: Sequence[Contender],
    *,
    rounds: int = 15,
    progress: Progress | None = None,
) -> list[AttentionRow]:
    """Times and weighs; the first row is torch's fused attention against itself.

    Args:
        attention: Sizes and place.
        chosen: From `attention_contenders`.
        rounds: Timed calls of each.
        progress: What to report to.
    """
    report, rows, plain_mb = progress or Silent(), [], NAN
    everyone: list[Contender | None] = [None, *chosen]
    for index, contender in enumerate(everyone):
        known = contender or Contender(NOISE, PLAIN)
        report.update(index, len(everyone), attention=known.label)
        try:
            cost = in_own_process(attention_cost, attention, contender, rounds)
        except AttndropError as error:
            settings = dict(known.settings)
            rows.append(AttentionRow(known.label, known.method, settings, error=str(error)))
            continue
        if contender is None:
            plain_mb = cost.added_mb
        rows.append(_row(known, cost, plain_mb))
    report.update(len(everyone), len(everyone))
    return rows


def attention_measurements(
    rows: Sequence[AttentionRow], attention: Attention
) -> list[tuple[dict[str, Any], list[Measurement]]]:
    """What the store keeps of each row that has numbers: columns and measurements."""
    name = f"attention, {attention.heads} heads of {attention.width}"
    found = []
    for row in rows:
        if row.error:
            continue
        told = {
            "label": row.label, "settings": row.settings, "batch": attention.batch,
            "heads": attention.heads, "width": attention.width, "tokens": attention.tokens,
        }  # fmt: skip
        shared: Measurement = {"split": "random numbers", "n": attention.tokens}
        batch: list[Measurement] = [
            {
                **shared, "metric": "attention_time_ratio", "value": row.ratio,
                "detail": {
                    **told, "low": row.low, "high": row.high, "milliseconds": row.milliseconds,
                },
            },
            {
                **shared, "metric": "attention_memory_mb", "value": row.added_memory_mb,
                "detail": {**told, "ratio": row.memory_ratio},
            },
        ]  # fmt: skip
        known = columns(
            name, told, method=row.method, precision=attention.precision,
            device=attention.device, threads=attention.threads,
        )  # fmt: skip
        found.append((known, batch))
    return found


def _on_attention(method: type[Any]) -> bool:
    return bool(method.overrides("rewrite") or method.overrides("attend"))


def _row(contender: Contender, cost: AttentionCost, plain_mb: float) -> AttentionRow:
    ratio = cost.added_mb / plain_mb if plain_mb else NAN
    return AttentionRow(
        contender.label, contender.method, dict(contender.settings), cost.ratio, cost.low,
        cost.high, float(np.median(cost.seconds)) * 1e3, cost.added_mb, ratio,
    )  # fmt: skip
