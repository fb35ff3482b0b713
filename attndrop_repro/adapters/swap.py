"""Giving a module a training-time forward by swapping its class, so that copies stay whole.

A closure on ``module.forward`` would go on using the original's weights after a deep copy (EMA) and
does not pickle; a subclass does both right. The subclass adds no parameter and no buffer, keeps the
library's own forward for eval mode, and goes back to the library's class on `restore`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

BOUND = "_attndrop"  # the attribute that holds what a swapped module is bound to
Swap = Callable[[type[nn.Module]], type[nn.Module]]
_SWAPPED: dict[tuple[type[nn.Module], Swap], type[nn.Module]] = {}


def swap(module: nn.Module, make: Swap, bound: object) -> None:
    """Makes `module` an instance of ``make(type(module))``, bound to `bound`.

    Args:
        module: Any module of the model.
        make: A module-level function from the library's class to a subclass of it.
        bound: Kept as ``module._attndrop``; not a module, so no key of the state dict changes.
    """
    module.__class__ = _swapped(type(module), make)
    module.__dict__[BOUND] = bound


def is_swapped(module: nn.Module) -> bool:
    """Whether `swap` was applied to this module."""
    return BOUND in module.__dict__


def restore(module: nn.Module) -> None:
    """Undoes `swap`."""
    del module.__dict__[BOUND]
    module.__class__ = type(module).__attndrop_base__  # type: ignore[attr-defined]


def _swapped(base: type[nn.Module], make: Swap) -> type[nn.Module]:
    """The one subclass of a class by a function: copies and originals share it."""
    known = _SWAPPED.get((base, make))
    if known is not None:
        return known
    cls: Any = make(base)
    # messages, and libraries that keep books by the name of a class, see the library's
    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(cls, name, getattr(base, name))
    cls.__attndrop_base__, cls.__attndrop_make__ = base, staticmethod(make)
    cls.__reduce_ex__ = _reduce
    _SWAPPED[base, make] = cls
    return cls  # type: ignore[no-any-return]


def _reduce(self: Any, protocol: Any) -> tuple[Any, ...]:
    cls = type(self)
    return _rebuild, (cls.__attndrop_base__, cls.__attndrop_make__), self.__getstate__()


def _rebuild(base: type[nn.Module], make: Swap) -> nn.Module:
    cls = _swapped(base, make)
    return cls.__new__(cls)
