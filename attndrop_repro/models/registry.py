"""The models of our own, by name; every other name is timm's."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any, TypeVar

from torch import nn

_MODELS: dict[str, Callable[..., nn.Module]] = {}
F = TypeVar("F", bound=Callable[..., nn.Module])


def register(name: str) -> Callable[[F], F]:
    """Decorator: makes a constructor known by a name; a name given twice is an error.

    The constructor takes `num_classes`, `img_size`, `in_chans` and arguments of its own.
    """

    def add(make: F) -> F:
        known = _MODELS.get(name)
        if known is not None and known.__qualname__ != make.__qualname__:
            raise ValueError(f"two models are called {name!r}")
        _MODELS[name] = make
        return make

    return add


def own() -> dict[str, Callable[..., nn.Module]]:
    """All registered models, by name."""
    import attndrop_repro.models as package

    for info in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        importlib.import_module(info.name)
    return dict(_MODELS)


def known(name: str) -> bool:
    """Whether a model of ours or of timm's has this name."""
    import timm

    return name in own() or timm.is_model(name)


def suggestions() -> list[str]:
    """Names to choose from in an error: ours, and timm's vision transformers."""
    import timm

    return [*own(), *timm.list_models("*vit*"), *timm.list_models("*deit*")]


def construct(name: str, **arguments: Any) -> nn.Module:
    """The network of a name, freshly initialised.

    Arguments that the model does not have (`img_size` of models that take any size) are left out
    when the recipe did not name them; the caller says which in ``optional``.
    """
    optional: tuple[str, ...] = arguments.pop("optional", ())
    make = own().get(name)
    if make is None:
        import timm

        def make(**keywords: Any) -> nn.Module:
            network: nn.Module = timm.create_model(name, **keywords)
            return network

    try:
        return make(**arguments)
    except TypeError as error:
        unwanted = next((word for word in optional if f"'{word}'" in str(error)), None)
        if unwanted is None:
            raise
        arguments.pop(unwanted)
        rest = tuple(word for word in optional if word != unwanted)
        return construct(name, optional=rest, **arguments)
