"""What `bench` runs, stores and prints, one function for each kind of benchmark."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attndrop_repro.cli.output import Column, emit_json, emit_table
from attndrop_repro.cli.session import Session
from attndrop_repro.config.errors import AttndropError, UsageError
from attndrop_repro.config.load import load_recipe

if TYPE_CHECKING:
    from attndrop_repro.store.schema import Measurement

DEFAULT = "digits-vit"  # seconds; a ViT-B/16 takes an hour on a CPU


def steps(
    here: Session,
    *,
    recipe: str | None,
    model: str | None,
    method: Sequence[str],
    rounds: int,
    memory: bool,
    as_json: bool,
    **work_options: Any,
) -> None:
    """Whole training steps of a model under every method."""
    from attndrop_repro.experiments import bench

    if recipe is not None and model is not None:
        raise UsageError("--recipe and --model both say what to bench: give one of them")
    whose = None if model is not None else load_recipe(recipe or DEFAULT)
    work = bench.workload(whose, model=model, **work_options)
    chosen = bench.contenders(method)
    with here.progress("bench") as progress:
        rows = bench.bench(work, chosen, rounds=rounds, memory=memory, progress=progress)
    _keep(here, bench.measurements(rows, work, whose))
    if as_json:
        emit_json([asdict(row) for row in rows])
        return
    emit_table(
        [Column("method"), Column("ratio", right=True), Column("quartiles", right=True),
         Column("to unfused", right=True), Column("paper", right=True),
         Column("images/s", right=True), Column("peak MiB", right=True)],
        [(row.label, _number(row.ratio, 3), _span(row.low, row.high), _number(row.unfused_ratio, 3),
          _number(row.paper_ratio, 3), _number(row.images_per_second, 1),
          _number(row.peak_memory_mb, 0)) for row in rows if not row.error],
    )  # fmt: skip
    _tell_errors(here, rows)
    noise = rows[1]
    here.say(
        f"{work.model.name}, {work.batch_size} images of {work.image_size} x {work.image_size}, "
        f"{_where(work.device, work.precision, work.threads)}, {rounds} rounds; plain against "
        f"plain: {noise.ratio:.3f} ({noise.low:.3f} to {noise.high:.3f})"
    )
    if _noisy(noise.ratio, noise.low, noise.high):
        here.say(
            "warning: the plain model took another time when it was timed again: the machine is "
            "busy, or --threads are more than its cores, and no ratio here means much"
        )


def attention(
    here: Session,
    *,
    tokens: int,
    batch: int,
    heads: int,
    width: int,
    method: Sequence[str],
    device: str,
    precision: str,
    threads: int | None,
    rounds: int,
    as_json: bool,
) -> None:
    """One attention under every method that acts on it."""
    from attndrop_repro.evaluation.attention_cost import Attention
    from attndrop_repro.experiments import bench_attention as bench
    from attndrop_repro.training.machine import chosen_device

    chosen = bench.attention_contenders(method)
    work = Attention(
        tokens, batch, heads, width, chosen_device(device), precision,
        threads or os.cpu_count() or 1,
    )  # fmt: skip
    with here.progress("bench") as progress:
        rows = bench.bench_attention(work, chosen, rounds=rounds, progress=progress)
    if rows[0].error:
        raise AttndropError(f"not even the plain attention runs: {rows[0].error}")
    _keep(here, bench.attention_measurements(rows, work))
    if as_json:
        emit_json([asdict(row) for row in rows])
        return
    emit_table(
        [Column("method"), Column("ratio", right=True), Column("quartiles", right=True),
         Column("ms", right=True), Column("added MiB", right=True),
         Column("to plain", right=True)],
        [(row.label, _number(row.ratio, 3), _span(row.low, row.high),
          _number(row.milliseconds, 1), _number(row.added_memory_mb, 1),
          _number(row.memory_ratio, 2)) for row in rows if not row.error],
    )  # fmt: skip
    _tell_errors(here, rows)
    here.say(
        f"one attention of {tokens} tokens, {heads} heads of {width}, batch {batch}, forward and "
        f"backward, {_where(work.device, precision, work.threads)}, {rounds} rounds; memory "
        "beyond what the inputs take"
    )


def training(
    here: Session,
    kind: str,
    *,
    recipe: str | None,
    changes: Sequence[str],
    method: str | None,
    device: str,
    data_dir: Path | None,
    download: bool,
    workers: int,
    rounds: int,
    as_json: bool,
) -> None:
    """A recipe's training: its loop, or its loader against its steps."""
    from attndrop_repro.experiments.bench_data import bench_data, data_measurements
    from attndrop_repro.experiments.bench_loop import bench_loop, loop_measurements

    whose = load_recipe(recipe or DEFAULT, changes)
    run: Any = bench_loop if kind == "loop" else bench_data
    with here.progress(f"bench --{kind}") as progress:
        found = run(
            whose, method=method, device=device, data_dir=data_dir, download=download,
            workers=workers, rounds=rounds, progress=progress,
        )  # fmt: skip
    measured: Any = loop_measurements if kind == "loop" else data_measurements
    _keep(here, [measured(found, whose, device)])
    if as_json:
        emit_json([{**asdict(found), "ratio": found.ratio}])
        return
    runtime = whose.runtime
    how = _where(device, runtime.precision, runtime.threads)
    place = f"{whose.name}, {found.method}, {how}"
    if kind == "data":
        print(found.verdict)
        here.say(f"{place}, {found.batch_size} images a step, {rounds} batches and steps")
        return
    emit_table(
        [Column("loop"), Column("ratio", right=True), Column("quartiles", right=True),
         Column("ms a step", right=True)],
        [("bare", "1.000", "-", _number(found.bare_milliseconds, 2)),
         ("bare (again)", _number(found.noise, 3), _span(found.noise_low, found.noise_high), "-"),
         ("training", _number(found.ratio, 3), _span(found.low, found.high),
          _number(found.milliseconds, 2)),
         ("training, steps alone", _number(found.steps_ratio, 3), "-", "-")],
    )  # fmt: skip
    here.say(
        f"{place}, {rounds} rounds of {found.steps} steps, with validation, history and "
        "checkpoints as the recipe has them"
    )


def _keep(here: Session, found: Iterable[tuple[dict[str, Any], list[Measurement]]]) -> None:
    store = here.store()
    for columns, measured in found:
        store.write_outside(columns, measured)


def _tell_errors(here: Session, rows: Iterable[Any]) -> None:
    for row in rows:
        if row.error:
            here.say(f"{row.label}: {row.error}")


def _where(device: str, precision: str, threads: int) -> str:
    return f"{device}, {precision}, {threads} thread{'' if threads == 1 else 's'}"


def _noisy(ratio: float, low: float, high: float) -> bool:
    """Whether plain against plain says that nothing was measured."""
    return not (0.9 <= ratio <= 1.1 and high - low <= 0.3)


def _number(value: float, digits: int) -> str:
    return "-" if value != value else f"{value:,.{digits}f}"


def _span(low: float, high: float) -> str:
    return "-" if low != low else f"{low:.2f}-{high:.2f}"
