"""The schema of a recipe: everything that decides a run's numbers, and nothing else.

Paths, the device and the number of loader workers are not in it: they are given on the command
line, and moving data or changing machine must not make a run another run.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from attndrop_repro.config.errors import UsageError
from attndrop_repro.config.fractions import parse_fraction

# Changing such a field changes no number of a run, so it is left out of `config_hash`.
NO_NUMBERS: dict[str, Any] = {"changes_numbers": False}

# The key of `settings` under which overrides wait until the run's method is known.
FOR_ANY_METHOD = "*"


def _fraction(written: str | float) -> str | float:
    try:
        parse_fraction(written, "size")
    except UsageError as error:
        raise ValueError(str(error)) from None
    return written


# "8/255" is kept as written; `config.fractions.parse_fraction` gives its number.
Fraction = Annotated[str | float, AfterValidator(_fraction)]
Epoch = Annotated[int, Field(ge=0)]
Beta = Annotated[float, Field(ge=0, lt=1)]


class Section(BaseModel):
    """Base of all sections: frozen, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Data(Section):
    """What is learned, and how it is split."""

    name: str = Field(description="a data set; `attndrop datasets` lists them")
    image_size: int | None = Field(
        None, ge=1, description="pixels a side the model sees; none: native"
    )
    train_images: int | None = Field(None, ge=1, description="use this many training images")
    validation: float = Field(
        0.1, gt=0, lt=1, description="share of the training images, stratified"
    )
    test: float | None = Field(
        None, gt=0, lt=1, description="share, where no test set is published"
    )
    split_seed: int = Field(0, ge=0, description="seed of the split; not the run's seed")
    label_noise: float = Field(0.0, ge=0, le=1, description="share of training labels replaced")
    crop_fraction: float = Field(
        0.875, gt=0, le=1, description="share of a side seen in evaluation, for images on disk"
    )


class Model(Section):
    """What is trained."""

    name: str = Field(description="a timm model, or one of `attndrop_repro.models`")
    args: dict[str, Any] = Field(default_factory=dict, description="arguments of its constructor")


class Augmentation(Section):
    """What training images go through; all off by default; draws depend on (seed, epoch, i)."""

    shift: int = Field(0, ge=0, description="random translation by up to this many pixels")
    crop_padding: int = Field(0, ge=0, description="random crop after padding by this many pixels")
    random_resized_crop: tuple[float, float] | None = Field(None, description="range of area")
    flip: bool = Field(False, description="horizontal flips")
    auto: str | None = Field(None, description="timm's policy, as in rand-m9-mstd0.5-inc1")
    erasing: float = Field(0.0, ge=0, le=1, description="probability of random erasing")
    mixup: float = Field(0.0, ge=0, description="alpha of mixup")
    cutmix: float = Field(0.0, ge=0, description="alpha of CutMix")
    mix_probability: float = Field(1.0, ge=0, le=1, description="share of batches mixed")
    switch_probability: float = Field(0.5, ge=0, le=1, description="CutMix instead of mixup")


class Training(Section):
    """How it is trained: the same for every method."""

    epochs: int = Field(ge=1)
    batch_size: int = Field(ge=1, description="examples an optimiser step, over all processes")
    accumulate: int = Field(1, ge=1, description="micro-batches that a batch is split into")
    optimizer: Literal["adamw", "adam", "sgd"] = "adamw"
    lr: float = Field(1e-3, gt=0, description="base learning rate")
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    momentum: float = Field(0.9, ge=0, lt=1, description="of sgd")
    weight_decay: float = Field(0.05, ge=0, description="not on biases, norms and embeddings")
    schedule: Literal["cosine", "constant"] = "cosine"
    warmup_epochs: float = Field(
        0, ge=0, description="linear warm-up, inside the epochs; a shorter training ends in it"
    )
    warmup_lr: float = Field(1e-6, ge=0)
    min_lr: float = Field(1e-6, ge=0)
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    clip_grad: float | None = Field(None, gt=0, description="norm")
    ema: float | None = Field(None, gt=0, lt=1, description="decay of the averaged weights")
    select: Literal["last", "best"] = Field(
        "last", description="the weights that count: after the last epoch, or best on validation"
    )
    augmentation: Augmentation = Augmentation()
    checkpoint_every: float = Field(
        1, gt=0, description="epochs between checkpoints", json_schema_extra=NO_NUMBERS
    )
    snapshots: tuple[Epoch, ...] = Field(
        (), description="epochs whose weights are kept, if reached", json_schema_extra=NO_NUMBERS
    )

    @model_validator(mode="after")
    def _consistent(self) -> Training:
        if self.batch_size % self.accumulate:
            raise ValueError(
                f"batch_size = {self.batch_size} must be a multiple of accumulate = "
                f"{self.accumulate}"
            )
        return self


class Runtime(Section):
    """What changes bits but not meaning."""

    threads: int = Field(1, ge=1, le=1024, description="CPU threads; gradients differ with it")
    precision: Literal["fp64", "fp32", "bf16", "fp16"] = "fp32"
    compile: bool = False
    deterministic: bool = True
    tensorboard: bool = Field(
        False,
        description="write the history for TensorBoard too, into the run's folder",
        json_schema_extra=NO_NUMBERS,
    )


class Attack(Section):
    """Adversarial robustness in pixel units, pixels in [0, 1] (A12)."""

    eps: tuple[Fraction, ...] = ("1/255", "2/255", "4/255", "8/255")
    attacks: tuple[Literal["fgsm", "pgd", "autoattack"], ...] = ("fgsm", "pgd")
    steps: int = Field(20, ge=1)
    step_size: Fraction = "2/255"
    restarts: int = Field(1, ge=1)
    limit: int | None = Field(None, ge=1, description="first so many test examples")


class GradientVariance(Section):
    """Gradient variance (A15)."""

    epochs: tuple[int, ...] = Field((), description="snapshots that are measured")
    examples: int = Field(256, ge=2)
    draws: int = Field(2, ge=1, description="perturbations drawn for each example")


class Evaluation(Section):
    """What is measured after training."""

    batch_size: int = Field(500, ge=1)
    ece_bins: int = Field(15, ge=1)
    attack: Attack = Attack()
    gradient_variance: GradientVariance = GradientVariance()


class Recipe(Section):
    """A recipe; `config.load` reads one, and a `config.spec.RunSpec` adds method and seed."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,79}$", description="part of the run's name")
    task: Literal["image-classification"] = "image-classification"
    data: Data
    model: Model
    training: Training
    method: str = Field("none", description="default method; --method chooses another")
    settings: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="by method; all else is at the method's defaults"
    )
    runtime: Runtime = Runtime()
    evaluation: Evaluation = Evaluation()

    @field_validator("settings")
    @classmethod
    def _method_names(cls, settings: dict[str, Any]) -> dict[str, Any]:
        for name in settings:
            if name != FOR_ANY_METHOD and not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
                raise ValueError(f"settings are given by method: {name!r} is no method's name")
        return settings
