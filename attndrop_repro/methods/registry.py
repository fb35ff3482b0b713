"""The registry: every file of this package may register methods; nothing else lists them."""

from __future__ import annotations

import importlib
import pkgutil
import re
from typing import Any, TypeVar

from attndrop_repro.config.errors import unknown
from attndrop_repro.methods.base import Method

_METHODS: dict[str, type[Method[Any]]] = {}
M = TypeVar("M", bound=type[Method[Any]])


def register(cls: M) -> M:
    """Class decorator: makes a method known by its `name`; a name given twice is an error."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", cls.name):
        raise ValueError(f"method name {cls.name!r} must be lower-case words joined by hyphens")
    known = _METHODS.get(cls.name)
    if known is not None and known.__qualname__ != cls.__qualname__:
        raise ValueError(f"two methods are called {cls.name!r}: {known} and {cls}")
    _METHODS[cls.name] = cls
    return cls


def _load() -> None:
    import attndrop_repro.methods as package

    for info in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        importlib.import_module(info.name)


def names() -> list[str]:
    """All registered names, `none` first, else alphabetical."""
    _load()
    return sorted(_METHODS, key=lambda name: (name != "none", name))


def get(name: str) -> type[Method[Any]]:
    """The class registered under a name.

    Raises:
        UsageError: There is none; the message has the nearest names.
    """
    if name not in _METHODS:
        _load()
    if name not in _METHODS:
        raise unknown("method", name, names())
    return _METHODS[name]
