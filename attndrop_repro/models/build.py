"""`build`: from a recipe's model section to a freshly initialised classifier of pixels."""

from __future__ import annotations

from collections.abc import Sequence

from attndrop_repro.config.errors import UsageError, unknown
from attndrop_repro.config.recipe import Model
from attndrop_repro.data import Splits
from attndrop_repro.models import registry
from attndrop_repro.models.pixel import PixelModel
from attndrop_repro.randomness import stream


def build_for(model: Model, splits: Splits, seed: int) -> PixelModel:
    """A freshly initialised classifier for a data set; see `build`."""
    return build(
        model, classes=splits.classes, image_size=splits.image_size, channels=splits.channels,
        mean=splits.mean, std=splits.std, seed=seed,
    )  # fmt: skip


def build(
    model: Model,
    *,
    classes: Sequence[str],
    image_size: int,
    channels: int,
    mean: Sequence[float],
    std: Sequence[float],
    seed: int,
) -> PixelModel:
    """A classifier whose initial weights depend on the recipe's model and the seed only.

    Args:
        model: The recipe's section.
        classes: Names of the classes.
        image_size: Pixels a side.
        channels: Of the images.
        mean: Of the pixels, per channel.
        std: Likewise.
        seed: The run's seed; the draws come from its stream "initialisation".

    Raises:
        UsageError: There is no such model, or it does not take these arguments.
    """
    if not registry.known(model.name):
        raise unknown("model", model.name, registry.suggestions())
    automatic = {"num_classes": len(classes), "img_size": image_size, "in_chans": channels}
    for name in ("num_classes", "in_chans"):
        if name in model.args and model.args[name] != automatic[name]:
            raise UsageError(
                f"model.args.{name} is {model.args[name]}, but the data have {automatic[name]}: "
                "leave it out, it follows the data"
            )
    arguments = {**automatic, **model.args}
    optional = tuple(name for name in ("img_size",) if name not in model.args)
    try:
        with stream(seed, "initialisation"):
            network = registry.construct(model.name, optional=optional, **arguments)
    except (TypeError, ValueError, AssertionError, RuntimeError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UsageError(
            f"model {model.name!r} cannot be made with model.args: {reason}"
        ) from error
    return PixelModel(network, mean=mean, std=std, classes=classes, image_size=image_size)
