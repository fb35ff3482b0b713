"""`measure`: one kind of measurement of one model, into the store; what is there is skipped."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import torch.nn.functional as F
from torch import Tensor

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.config.progress import Progress, Silent
from attndrop_repro.evaluation import metrics
from attndrop_repro.evaluation.accuracy import predict
from attndrop_repro.evaluation.attack_audit import at_large_eps, audit
from attndrop_repro.evaluation.attacks import AttackResult, attack
from attndrop_repro.evaluation.guard import place, threads
from attndrop_repro.evaluation.options import (
    AttackOptions,
    CalibrateOptions,
    EvalOptions,
    GradvarOptions,
    Options,
    default_options,
)
from attndrop_repro.evaluation.recompute import logits_path
from attndrop_repro.evaluation.wanted import Have, wanted
from attndrop_repro.randomness import numpy_stream
from attndrop_repro.store.logits import Logits, load_logits, save_logits
from attndrop_repro.store.schema import Measurement

if TYPE_CHECKING:
    from attndrop_repro.models import Subject
    from attndrop_repro.store import Store


def measure(
    kind: str,
    subject: Subject,
    store: Store,
    *,
    run_id: str | None = None,
    options: Options | None = None,
    progress: Progress | None = None,
    force: bool = False,
    suite: str = "",
) -> list[Measurement]:
    """Measures a model and writes what is new to the store, in one batch.

    Args:
        kind: "eval", "calibrate", "attack" or "gradvar".
        subject: The model with its data.
        store: Where results go.
        run_id: The run; None: as the subject's columns say.
        options: What and how; None: what the run's recipe asks for.
        progress: Who is told.
        force: Measures again what is there.
        suite: On whose behalf.

    Returns:
        What was measured now; nothing when all of it was there.

    Raises:
        AttndropError: The model's logits are not finite, it cannot be measured in this way, or the
            disk is full.
    """
    work = _Work(subject, store, run_id or str(subject.columns["run_id"]), progress or Silent())
    options = options or default_options(kind, subject.spec.recipe if subject.spec else None)
    if not force:
        options = work.missing(options)
    if options is None:
        return []
    with threads(subject.columns.get("threads")):
        if isinstance(options, CalibrateOptions):
            rows = work.calibrate(options, force)
        elif isinstance(options, EvalOptions):
            rows = work.eval(options, force)
        elif isinstance(options, AttackOptions):
            rows = work.attack(options)
        else:
            rows = work.gradvar(options)
    return work.write(rows, suite)


class _Work:
    """One model under measurement."""

    def __init__(self, subject: Subject, store: Store, run_id: str, progress: Progress) -> None:
        self.subject, self.store, self.run_id = subject, store, run_id
        self.progress = progress
        self.seed = subject.spec.seed if subject.spec else 0

    def missing(self, options: Options) -> Options | None:
        """The part of what is wanted that the store lacks; None: it lacks nothing."""
        have = Have(self.store)
        at = {} if self.subject.epoch is None else {"epoch": self.subject.epoch}
        lacks = [not have(self.run_id, {**need, **at}) for need in wanted(options)]
        if not any(lacks):
            return None
        if isinstance(options, AttackOptions):
            left = [s for s, lack in zip(options.settings, lacks, strict=True) if lack]
            return replace(options, settings=tuple(left))
        return options

    def eval(self, options: EvalOptions, fresh: bool) -> list[Measurement]:
        """Accuracy, NLL, Brier score and ECE."""
        content = self._logits(options, options.split, fresh)
        rows = metrics.accuracy_rows(content, options, seed=self.seed)
        return [{**row, "split": options.label} for row in rows]

    def calibrate(self, options: CalibrateOptions, fresh: bool) -> list[Measurement]:
        """Calibration errors, and the temperature fitted on another split."""
        content = self._logits(options, options.split, fresh)
        plain = replace(options, corruption=None, corruption_dir=None)
        fitted_on = self._logits(plain, options.fit_split, fresh)
        rows = metrics.calibration_rows(content, fitted_on, options, seed=self.seed)
        return [{**row, "split": options.label} for row in rows]

    def attack(self, options: AttackOptions) -> list[Measurement]:
        """Robust accuracy under every setting, each with its audit."""
        s, split = self.subject, self.subject.splits.named(options.split)
        common: dict[str, Any] = {"seed": self.seed, "batch_size": options.batch_size}
        plain = [setting for setting in options.settings if not setting.draws]
        drawn = [setting for setting in options.settings if setting.draws]
        results = self._attacks(plain, options, common)
        if drawn:
            handle = s.make_handle()
            try:
                results += self._attacks(drawn, options, common)
            finally:
                handle.remove()
        strong: dict[str, float] = {}
        for result in results:
            setting = result.setting
            if setting.name == "pgd" and not setting.draws and setting.norm not in strong:
                strong[setting.norm] = at_large_eps(
                    s.model, split, setting, limit=options.limit, **common
                )
        return [self._attack_row(result, results, strong, options) for result in results]

    def _attacks(
        self, settings: Sequence[Any], options: AttackOptions, common: dict[str, Any]
    ) -> list[AttackResult]:
        if not settings:
            return []
        return attack(
            self.subject.model, self.subject.splits.named(options.split), settings,
            limit=options.limit, keep=options.save_adversarial is not None,
            progress=self.progress, **common,
        )  # fmt: skip

    def _attack_row(
        self,
        result: AttackResult,
        results: Sequence[AttackResult],
        strong: dict[str, float],
        options: AttackOptions,
    ) -> Measurement:
        setting, split = result.setting, self.subject.splits.named(options.split)
        large = strong.get(setting.norm) if setting.name == "pgd" and not setting.draws else None
        detail: dict[str, Any] = {
            "clean_accuracy": result.clean_accuracy,
            "available": len(split),
            "audit": audit(result, results, large),
        }
        if setting.target is not None:
            detail["reached_target"] = float(result.reached.double().mean())
        if options.save_adversarial is not None:
            from attndrop_repro.evaluation.adversarial import save_adversarial

            files = save_adversarial(options.save_adversarial, result, split)
            detail["adversarial"] = [file.name for file in files]
        row: dict[str, Any] = {
            "metric": "robust_accuracy",
            "value": result.robust_accuracy,
            "n": result.n,
            "split": options.split,
            "detail": detail,
            **setting.columns(),
        }
        return cast(Measurement, row)

    def gradvar(self, options: GradvarOptions) -> list[Measurement]:
        """The gradient's variance and the terms of lemma 1."""
        from attndrop_repro.evaluation.gradient_rows import gradient_rows
        from attndrop_repro.evaluation.gradient_variance import gradient_variance

        split = self.subject.splits.named(options.split)
        # the same examples for every method and seed, so that differences are paired
        order = numpy_stream(0, "gradient-variance", "examples").permutation(len(split))
        rows = sorted(int(row) for row in order[: options.examples])
        device, dtype = place(self.subject.model)
        handle = self.subject.make_handle()
        try:
            self._at_epoch(handle)
            found = gradient_variance(
                handle,
                split.pixels(rows, device=device, dtype=dtype),
                split.labels[rows].to(device),
                self._criterion,
                seed=self.seed, draws=options.draws, per=options.per,
                perturbation=options.perturbation, batch_size=options.batch_size,
                memory=options.memory, layers=options.layers, progress=self.progress,
            )  # fmt: skip
        finally:
            handle.remove()
        return gradient_rows(found, options, len(split), handle.method.name)

    def _at_epoch(self, handle: Any) -> None:
        """Schedules of strength stand where they stood at this epoch of the training."""
        spec, epoch = self.subject.spec, self.subject.epoch
        if spec is not None and epoch is not None:
            size = len(self.subject.splits.train)
            steps = size // min(spec.recipe.training.batch_size, size)
            handle.at(epoch * steps, spec.recipe.training.epochs * steps)

    def _criterion(self, outputs: Tensor, y: Tensor) -> Tensor:
        spec = self.subject.spec
        smoothing = spec.recipe.training.label_smoothing if spec else 0.0
        return F.cross_entropy(outputs, y, label_smoothing=smoothing)

    def _logits(self, options: EvalOptions, name: str, fresh: bool) -> Logits:
        """Logits of a split: those stored, or those of the model, which are stored."""
        s, split = self.subject, self.subject.splits.named(name)
        if options.corruption is not None and options.corruption_dir is not None:
            from attndrop_repro.evaluation.corruptions import published

            split = published(split, options.corruption_dir, *options.corruption)
        label = name if options.corruption is None else options.label
        path = logits_path(self.store, self.run_id, label, s.spec, s.epoch)
        if not fresh:
            with suppress(FileNotFoundError):
                stored = load_logits(path)
                if stored.ids.tolist() == split.ids.tolist():
                    return stored
        if options.corruption is not None and options.corruption_dir is None:
            from attndrop_repro.evaluation.corruptions import corrupted

            split = corrupted(split, *options.corruption)
        content = predict(
            s.model, split, batch_size=options.batch_size, workers=options.workers,
            progress=self.progress,
        )  # fmt: skip
        save_logits(path, *content)
        return content

    def write(self, rows: list[Measurement], suite: str) -> list[Measurement]:
        """Adds what is known of the model to the rows, and writes them."""
        if self.subject.epoch is not None:
            rows = [{**row, "epoch": self.subject.epoch} for row in rows]
        device = place(self.subject.model)[0].type
        if self.subject.notes:
            notes = self.subject.notes
            rows = [{**row, "detail": {**row["detail"], "model": notes}} for row in rows]
        for row in rows:
            if not row["value"] == row["value"]:
                raise AttndropError(f"{row['metric']} of {self.run_id} is not a number")
        if self.subject.spec is not None:
            self.store.write(self.run_id, rows, suite=suite, device=device)
        else:
            columns = {**self.subject.columns, "run_id": self.run_id, "device": device}
            self.store.write_outside({**columns, "suite": suite or None}, rows)
        return rows
