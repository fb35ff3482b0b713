"""What is known of the examples under attack, and where their attacks start and aim.

Everything random is drawn for fixed chunks of the data set, in its order, so that no example's
draws depend on batch sizes, on how many examples there are, or on which others are still attacked.

Shapes: n examples of a window, B of them in question, C channels, H and W pixels.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attndrop_repro.config.errors import UsageError
from attndrop_repro.evaluation.attack_setting import AttackSetting
from attndrop_repro.evaluation.attack_trail import Trail
from attndrop_repro.randomness import torch_stream

CHUNK = 128  # examples whose starts are drawn together


class State:
    """The examples of a window.

    Attributes:
        x: Clean pixels, (n, C, H, W).
        y: Labels, (n,).
        first: Position of the first one in the data set.
        aim: Classes to aim at, (n,), or None.
        correct: Which were classified correctly before the attack.
        robust: Which of them still are.
        open: Which may be attacked further.
        reached: Which were moved to the class aimed at.
        changed: Which were attacked at all.
        size: Largest perturbation so far, in the attack's norm.
        least: Smallest pixel of the last adversarial image.
        most: Its largest pixel.
        trail: Which iterates were judged already, of an attack that can come back to one.
        images: The last adversarial images, if kept.
    """

    def __init__(
        self, x: Tensor, y: Tensor, first: int, clean: Tensor, setting: AttackSetting, seed: int,
        keep: bool,
    ) -> None:  # fmt: skip
        self.x, self.y, self.first, self.norm = x, y, first, setting.norm
        self.aim = aims(clean, y, setting.target, seed, first)
        self.correct = clean.argmax(1) == y
        self.robust, self.open = self.correct.clone(), self.correct.clone()
        self.reached, self.changed = (torch.zeros_like(self.correct) for _ in range(2))
        self.size, self.least, self.most = (x.new_zeros(len(x)) for _ in range(3))
        self.trail: Trail | None = None
        self.images = x.clone() if keep else None

    @property
    def labels(self) -> Tensor:
        """What the attack is given: labels to leave, or classes to reach, (n,)."""
        return self.y if self.aim is None else self.aim

    def judge(self, rows: Tensor, images: Tensor, scores: Tensor) -> Tensor:
        """Notes what adversarial images do.

        Args:
            rows: Which examples, (B,).
            images: Theirs, (B, C, H, W).
            scores: Logits or probabilities at the images, (B, classes).

        Returns:
            Which of them need no further attack, (B,).
        """
        predicted = scores.argmax(1)
        wrong = predicted != self.y[rows]
        done = wrong if self.aim is None else predicted == self.aim[rows]
        fresh = self.robust[rows] | done  # a broken example keeps the image that broke it
        self.robust[rows] &= ~wrong
        self.open[rows] &= ~done
        self.reached[rows] |= done
        changed, which = images[fresh], rows[fresh]
        self.changed[which] = True
        difference = (changed - self.x[which]).flatten(1)
        size = difference.abs().amax(1) if self.norm == "linf" else difference.norm(dim=1)
        self.size[which] = torch.maximum(self.size[which], size)
        self.least[which] = changed.flatten(1).amin(1)
        self.most[which] = changed.flatten(1).amax(1)
        if self.images is not None:
            self.images[which] = changed
        return done

    def chunks(self, rows: Tensor) -> list[tuple[int, Tensor]]:
        """These rows by the chunk of the data set that they belong to: its number, and the rows."""
        chunk = (rows + self.first) // CHUNK
        return [(number, rows[chunk == number]) for number in sorted(set(chunk.tolist()))]

    def starts(self, rows: Tensor, setting: AttackSetting, seed: int, restart: int) -> Tensor:
        """Random points of the ball around examples, clamped to pixels, (B, C, H, W).

        Uniform in the cube for linf; for l2 in a random direction, at a uniform share of eps.
        """
        noise = torch.empty_like(self.x)
        shape = (CHUNK, *self.x.shape[1:])
        for begin in range(0, len(self.x), CHUNK):
            number = (self.first + begin) // CHUNK
            generator = torch_stream(seed, "attack", setting.name, setting.norm, restart, number)
            if setting.norm == "linf":
                drawn = torch.rand(shape, generator=generator) * 2 - 1
            else:
                drawn = torch.randn(shape, generator=generator)
                radius = torch.rand((CHUNK, 1, 1, 1), generator=generator)
                drawn *= radius / drawn.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
            noise[begin : begin + CHUNK] = drawn[: len(self.x) - begin].to(self.x)
        return (self.x[rows] + noise[rows] * setting.eps.value).clamp(0, 1)


def aims(scores: Tensor, y: Tensor, target: str | None, seed: int, first: int) -> Tensor | None:
    """The wrong class to aim at for each example, (n,), or None.

    Args:
        scores: Clean logits or probabilities, (n, classes).
        y: Labels (n,).
        target: "least-likely", "most-likely" (of the wrong ones) or "random"; None: no target.
        seed: Of the random ones.
        first: Position of the first example in the data set.
    """
    if target is None:
        return None
    classes = scores.shape[1]
    if classes < 2:
        raise UsageError("a targeted attack needs at least two classes")
    if target == "random":
        shifts = torch.empty_like(y)
        for begin in range(0, len(y), CHUNK):
            generator = torch_stream(seed, "attack", "target", (first + begin) // CHUNK)
            drawn = torch.randint(1, classes, (CHUNK,), generator=generator)
            shifts[begin : begin + CHUNK] = drawn[: len(y) - begin].to(y)
        return (y + shifts) % classes
    own = torch.nn.functional.one_hot(y, classes).bool()
    if target == "least-likely":
        return scores.masked_fill(own, torch.inf).argmin(1)
    return scores.masked_fill(own, -torch.inf).argmax(1)
