"""Robust accuracy under attack, in pixel space, through torchattacks.

Only examples that are still classified correctly are attacked further: after the clean pass, after
every step and after every restart. An example counts as broken when any iterate is misclassified;
all of them lie inside the eps ball. In linf, an attack that comes to an iterate which was judged
already, in this restart or another, ends there: it can find nothing new (`attack_trail`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attndrop_repro.config.errors import AttndropError, UsageError
from attndrop_repro.config.progress import Progress, Silent
from attndrop_repro.data import ImageSplit
from attndrop_repro.evaluation.attack_setting import AttackSetting
from attndrop_repro.evaluation.attack_state import CHUNK, State
from attndrop_repro.evaluation.attack_target import Target, filled
from attndrop_repro.evaluation.attack_trail import Trail
from attndrop_repro.evaluation.guard import forward, place, untouched
from attndrop_repro.evaluation.plain_attention import ShortByParts
from attndrop_repro.randomness import stream

_WINDOW = 1 << 24  # pixel values that are attacked together


@dataclass
class AttackResult:
    """What an attack did.

    Attributes:
        setting: The attack.
        correct: Which examples were classified correctly before it, boolean (n,).
        robust: Which of them still were after it, (n,).
        reached: Which examples were moved to the class aimed at, (n,).
        largest: Largest perturbation, in the attack's norm.
        lowest: Smallest pixel of an adversarial image; 0 when none was made.
        highest: Largest pixel; likewise.
        flat: Share of attacked examples whose first input gradient was 0 everywhere.
        adversarial: Final images (n, C, H, W), if kept; the clean one where none was made.
    """

    setting: AttackSetting
    correct: Tensor
    robust: Tensor
    reached: Tensor
    largest: float
    lowest: float
    highest: float
    flat: float
    adversarial: Tensor | None

    @property
    def n(self) -> int:
        """Examples considered: all of them, also those that were wrong from the start."""
        return len(self.correct)

    @property
    def clean_accuracy(self) -> float:
        """Before the attack."""
        return float(self.correct.double().mean())

    @property
    def robust_accuracy(self) -> float:
        """After it: a share of all n."""
        return float(self.robust.double().mean())


def attack(
    model: nn.Module,
    split: ImageSplit,
    settings: Sequence[AttackSetting],
    *,
    seed: int = 0,
    batch_size: int = 256,
    limit: int | None = None,
    keep: bool = False,
    progress: Progress | None = None,
) -> list[AttackResult]:
    """Attacks a model, one setting after the other; its modes, buffers and gradients stay.

    Results do not depend on `batch_size`, nor those of an example on `limit`.

    Args:
        model: Takes pixels in [0, 1], normalises inside, gives logits. For settings with `draws`
            its regulariser must be in it.
        split: What to attack.
        settings: Attacks, in order.
        seed: Of the starts.
        batch_size: Examples a forward pass.
        limit: Only the first so many examples.
        keep: Whether to keep the adversarial images, all in memory.
        progress: Told after each window of each setting.

    Raises:
        AttndropError: The model's logits are not finite.
        UsageError: The attack does not exist for this model.
    """
    from attndrop_repro.evaluation.attack_regularised import RegularisedRun

    n = len(split) if limit is None else min(limit, len(split))
    if n < 1 or batch_size < 1:
        raise UsageError("an attack needs at least one example and a batch size of at least 1")
    device, dtype = place(model)
    progress = progress or Silent()
    results = []
    with untouched(model, seed, frozen=True), ShortByParts():
        for number, setting in enumerate(settings):
            run = (RegularisedRun if setting.draws else Run)(model, setting, seed, batch_size)
            states = []
            for rows in windows(n, split.pixels([0]).numel()):
                x = split.pixels(rows, device=device, dtype=dtype)
                y = split.labels[rows.start : rows.stop].to(device)
                states.append(run.window(x, y, rows.start, keep))
                progress.update(
                    number + rows.stop / n, len(settings), attack=setting.label,
                    eps=setting.eps.label,
                )  # fmt: skip
            results.append(_result(run, states))
    return results


def windows(n: int, pixels: int) -> Iterator[range]:
    """Rows that are attacked together: whole chunks, as many as fit in memory."""
    size = CHUNK * max(1, _WINDOW // (CHUNK * pixels))
    for start in range(0, n, size):
        yield range(start, min(start + size, n))


def _result(run: Run, states: Sequence[State]) -> AttackResult:
    def joined(name: str) -> Tensor:
        return torch.cat([getattr(state, name) for state in states]).cpu()

    changed = joined("changed")
    any_changed = bool(changed.any())
    return AttackResult(
        setting=run.setting,
        correct=joined("correct"),
        robust=joined("robust"),
        reached=joined("reached"),
        largest=float(joined("size").max()),
        lowest=float(joined("least")[changed].min()) if any_changed else 0.0,
        highest=float(joined("most")[changed].max()) if any_changed else 0.0,
        flat=run.target.flat / max(run.target.watched, 1),
        adversarial=None if states[0].images is None else joined("images"),
    )


class Run:
    """One setting on one model, window after window."""

    def __init__(
        self, model: nn.Module, setting: AttackSetting, seed: int, batch_size: int
    ) -> None:
        self.model, self.setting, self.seed, self.batch_size = model, setting, seed, batch_size
        self.target = Target(lambda x: forward(model, x), place(model)[0])
        model.eval()

    def window(self, x: Tensor, y: Tensor, first: int, keep: bool) -> State:
        """Attacks some examples.

        Args:
            x: Pixels (n, C, H, W).
            y: Labels (n,).
            first: Position of the first one in the data set.
            keep: Whether to keep the adversarial images.
        """
        clean = self.scores(x, torch.arange(len(x), device=x.device) + first, "clean")
        if not clean.isfinite().all():
            raise AttndropError("the model's logits are not finite: there is nothing to attack")
        state = State(x, y, first, clean, self.setting, self.seed, keep)
        restarts = self.setting.restarts if self.setting.name == "pgd" else 1
        for restart in range(restarts if self.setting.eps.value > 0 else 0):
            rows = state.open.nonzero()[:, 0]
            if len(rows):
                self.restart(state, rows, restart)
        return state

    def scores(self, x: Tensor, positions: Tensor, tag: str | int) -> Tensor:
        """What decides the predictions at x, without gradients, (B, classes).

        Args:
            x: Pixels (B, C, H, W).
            positions: Theirs in the data set, (B,).
            tag: When it is asked; only draws depend on it.
        """
        with torch.no_grad():
            return torch.cat([forward(self.model, x[part]) for part in self._batches(len(x))])

    def restart(self, state: State, rows: Tensor, restart: int) -> None:
        """One start of the attack on the examples that are left."""
        import torchattacks

        s, eps = self.setting, self.setting.eps.value
        if s.name == "fgsm":
            self._steps(state, rows, state.x[rows], torchattacks.FGSM(self.target, eps=eps), 1)
        elif s.name == "pgd":
            start = state.starts(rows, s, self.seed, restart)
            kind = torchattacks.PGD if s.norm == "linf" else torchattacks.PGDL2
            one = kind(self.target, eps=eps, alpha=s.step_size.value, steps=1, random_start=False)
            if s.norm == "linf" and state.trail is None:
                state.trail = Trail(state.x, s.restarts, s.steps)
            self._steps(state, rows, start, one, s.steps, restart)
        else:
            self._autoattack(state, rows)

    def _steps(
        self, state: State, rows: Tensor, now: Tensor, step: Any, count: int, restart: int = 0
    ) -> None:
        """`count` steps from `now`, dropping examples once nothing more can happen to them."""
        if state.aim is not None:
            step.set_mode_targeted_by_label(quiet=True)
        for index in range(count):
            then, logits = self._one(state, rows, now, step, watch=index == 0)
            still = torch.ones_like(rows, dtype=torch.bool)
            if index or self.setting.name == "pgd":  # FGSM's first forward is at the clean images
                still = ~state.judge(rows, now, logits)
            if state.trail is not None:
                still &= ~state.trail.known(rows, then, restart, index + 1)
            rows, now = rows[still], then[still]
            if not len(rows):
                return
        state.judge(rows, now, self.scores(now, rows + state.first, count))

    def _one(
        self, state: State, rows: Tensor, now: Tensor, step: Any, *, watch: bool
    ) -> tuple[Tensor, Tensor]:
        """The iterates after one step from `now`, and the logits at `now`."""
        images, logits = [], []
        for part in self._batches(len(rows)):
            here = rows[part]
            self.target.start, self.target.watch = now[part], watch
            self.target.real = len(here)
            images.append(step(filled(state.x[here]), filled(state.labels[here]))[: len(here)])
            logits.append(self.target.logits)
        return torch.cat(images), torch.cat(logits)

    def _batches(self, n: int) -> list[slice]:
        size = self.batch_size
        return [slice(start, start + size) for start in range(0, n, size)]

    def _autoattack(self, state: State, rows: Tensor) -> None:
        """AutoAttack on each chunk by itself, with a seed of the chunk's own."""
        import torchattacks

        classes = int(self.scores(state.x[:1], rows[:1], "classes").shape[1])
        if classes < 4:
            raise UsageError(f"autoattack needs at least 4 classes; this model has {classes}")
        for number, chunk in state.chunks(rows):
            with stream(self.seed, "attack", "autoattack", self.setting.norm, number):
                self.target.watch, self.target.real = True, None
                whole = torchattacks.AutoAttack(
                    self.target, norm={"linf": "Linf", "l2": "L2"}[self.setting.norm],
                    eps=self.setting.eps.value, n_classes=classes,
                    seed=int(torch.randint(2**31, ())),
                )  # fmt: skip
                images = whole(state.x[chunk], state.y[chunk]).detach()
            state.judge(chunk, images, self.scores(images, chunk + state.first, "after"))
