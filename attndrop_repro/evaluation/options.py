"""What is measured, and how: the choices of a command line or a recipe. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from attndrop_repro.config.errors import UsageError, unknown
from attndrop_repro.config.recipe import Recipe
from attndrop_repro.evaluation.attack_setting import AttackSetting, grid

Kind = Literal["eval", "calibrate", "attack", "gradvar"]
KINDS: tuple[Kind, ...] = ("eval", "calibrate", "attack", "gradvar")


@dataclass(frozen=True)
class EvalOptions:
    """Of `eval`.

    Attributes:
        split: What the model is judged on.
        corruption: Name and severity 1 to 5 of a common corruption of it, or None.
        corruption_dir: Folder of CIFAR-10-C, CIFAR-100-C or ImageNet-C that has it; None: it is
            made on the fly.
        bins: Of the calibration errors.
        usual_bins: What the recipe asks for. With other bins an error is another metric,
            ``ece_5_bins``, so that it takes the place of none.
        batch_size: Changes nothing but memory.
        workers: Loader processes, for images on disk.
    """

    split: str = "test"
    corruption: tuple[str, int] | None = None
    corruption_dir: Path | None = None
    bins: int = 15
    usual_bins: int = 15
    batch_size: int = 500
    workers: int = 0

    def binned(self, metric: str) -> str:
        """What a metric that depends on bins is called: ``ece``, or ``ece_5_bins``."""
        return metric if self.bins == self.usual_bins else f"{metric}_{self.bins}_bins"

    @property
    def label(self) -> str:
        """The store's `split` column: ``test``, ``test+blur-3``, or ``test+c-fog-3`` if read."""
        if self.corruption is None:
            return self.split
        name, severity = self.corruption
        return f"{self.split}+{'c-' if self.corruption_dir else ''}{name}-{severity}"


@dataclass(frozen=True)
class CalibrateOptions(EvalOptions):
    """Of `calibrate`.

    Attributes:
        fit_split: What the temperature is fitted on; never what it is judged on.
    """

    fit_split: str = "validation"

    def __post_init__(self) -> None:
        if self.fit_split == self.split:
            raise UsageError(
                f"a temperature fitted on {self.split} cannot be judged on it: choose another split"
            )


@dataclass(frozen=True)
class AttackOptions:
    """Of `attack`.

    Attributes:
        settings: Attacks and sizes.
        split: What is attacked.
        limit: Only its first so many examples.
        batch_size: Changes nothing but memory and time.
        save_adversarial: Folder for the examples and a picture of them, or None.
    """

    settings: tuple[AttackSetting, ...] = ()
    split: str = "test"
    limit: int | None = None
    batch_size: int = 256
    save_adversarial: Path | None = None


@dataclass(frozen=True)
class GradvarOptions:
    """Of `gradvar`; see `gradient_variance.gradient_variance`.

    Attributes:
        split: Where the examples are from.
        examples: How many; the same ones for every run on a data set.
        draws: Perturbations of each.
        per: Gradients of single examples or of batches (A15).
        perturbation: Draws of an example's own, or shared by a batch (A15).
        batch_size: Of "batch".
        layers: Whether the row lists every layer.
        memory: Bytes that gradients may take.
    """

    split: str = "train"
    examples: int = 256
    draws: int = 2
    per: Literal["sample", "batch"] = "sample"
    perturbation: Literal["sample", "batch"] = "sample"
    batch_size: int = 64
    layers: bool = False
    memory: int = 1 << 29


Options = EvalOptions | CalibrateOptions | AttackOptions | GradvarOptions


def default_options(kind: str, recipe: Recipe | None = None) -> Options:
    """What a recipe asks for; without one, what a recipe asks for by default.

    Raises:
        UsageError: There is no such kind, or a size in the recipe is no size.
    """
    from attndrop_repro.config.recipe import Evaluation

    evaluation = Evaluation() if recipe is None else recipe.evaluation
    if kind in ("eval", "calibrate"):
        judge = EvalOptions if kind == "eval" else CalibrateOptions
        bins = evaluation.ece_bins
        return judge(bins=bins, usual_bins=bins, batch_size=evaluation.batch_size)
    if kind == "attack":
        a = evaluation.attack
        settings = grid(a.attacks, a.eps, step_size=a.step_size, steps=a.steps, restarts=a.restarts)
        batch_size = min(evaluation.batch_size, AttackOptions.batch_size)
        return AttackOptions(tuple(settings), limit=a.limit, batch_size=batch_size)
    if kind == "gradvar":
        g = evaluation.gradient_variance
        return GradvarOptions(examples=g.examples, draws=g.draws)
    raise unknown("measurement", kind, KINDS)
