"""The methods: one file each; the registry; composition.

The package is also the function that users call: ``attndrop.methods()`` lists all names.
"""

import sys
import types

from attndrop_repro.methods import registry
from attndrop_repro.methods.base import Method, Task
from attndrop_repro.methods.call import AttentionCall, Site, Step
from attndrop_repro.methods.composition import build, canonical, parse, parts_of, resolve
from attndrop_repro.methods.registry import get, register
from attndrop_repro.methods.settings import Settings, setting
from attndrop_repro.methods.taps import Taps

__all__ = [
    "AttentionCall", "Method", "Settings", "Site", "Step", "Taps", "Task", "build", "canonical",
    "get", "parse", "parts_of", "register", "resolve", "setting",
]  # fmt: skip


class _Callable(types.ModuleType):
    def __call__(self) -> list[str]:
        """All registered names."""
        return registry.names()


sys.modules[__name__].__class__ = _Callable
