"""What an adapter reports, and the registry of adapters.

An adapter is one file of this package that registers a function: given a model's `Tree`, and one of
its modules, it says what it finds there. The first adapter, in the order of their numbers, that
claims a module keeps it; adding a library is adding a file.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache

from torch import Tensor, nn

from attndrop_repro.adapters.runtime import Runtime
from attndrop_repro.adapters.swap import Swap
from attndrop_repro.adapters.tree import Tree
from attndrop_repro.methods.call import AttentionKind, Place, Site


@dataclass
class Found:
    """A module to swap, and the places that are there.

    Attributes:
        module: The module.
        path: Its name in the model.
        make: From its class to the one it is swapped for.
        site: The place of its main hook: "attention", or a linear layer's.
        inputs: Places of hidden hooks on its first input.
        outputs: Places of hidden hooks on its output.
        weights: Places of weights that belong to the module itself, not to a layer below it.
        kind: Which attention it is or belongs to; None: that of the attention nearest to it.
        heads: Attention heads.
        sequence_first: Its activations are (N, B, C).
        windows: Its activations may be (B * windows, N, C).
    """

    module: nn.Module
    path: str
    make: Swap
    site: Place | None = None
    inputs: tuple[Place, ...] = ()
    outputs: tuple[Place, ...] = ()
    weights: tuple[Place, ...] = ()
    kind: AttentionKind | None = None
    heads: int = 0
    sequence_first: bool = False
    windows: bool = False

    @property
    def places(self) -> tuple[Place, ...]:
        """All of its places."""
        main = () if self.site is None else (self.site,)
        return (*main, *self.inputs, *self.outputs, *self.weights)


@dataclass
class Bound:
    """What a swapped module is bound to: the sites of `Found`, numbered, and the shared runtime.

    Attributes:
        x: Tokens that entered the attention which is running now; None outside of it.
        memory: Those of its keys and values where they are others.
        running: Whether the training forward of an attention is running.
        weighed: Whether the layer is running, with its weight already through the method.
    """

    runtime: Runtime
    site: Site | None
    inputs: tuple[Site, ...]
    outputs: tuple[Site, ...]
    weights: tuple[Site, ...]
    sequence_first: bool = False
    windows: bool = False
    x: Tensor | None = field(default=None, repr=False)
    memory: Tensor | None = field(default=None, repr=False)
    running: bool = False
    weighed: bool = False


Find = Callable[[Tree, str, nn.Module], Sequence[Found] | None]
_ADAPTERS: dict[int, Find] = {}


def adapter(order: int) -> Callable[[Find], Find]:
    """Registers a function as an adapter.

    It returns what it found at a module, or None when the module is not its own. Lower numbers are
    asked first: those that know a library by its own interface before those that look for torch's.
    """

    def register(find: Find) -> Find:
        if order in _ADAPTERS:
            raise ValueError(f"two adapters have the order {order}")
        _ADAPTERS[order] = find
        return find

    return register


@cache
def adapters() -> tuple[Find, ...]:
    """All adapters, in the order in which they are asked."""
    import attndrop_repro.adapters as package

    for info in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        importlib.import_module(info.name)
    return tuple(_ADAPTERS[order] for order in sorted(_ADAPTERS))


def merge(found: Iterable[Found]) -> list[Found]:
    """One `Found` a module: places that several rules found at the same one are put together."""
    merged: dict[int, Found] = {}
    for item in found:
        known = merged.get(id(item.module))
        if known is None:
            merged[id(item.module)] = item
            continue
        known.site = known.site or item.site
        for role in ("inputs", "outputs", "weights"):
            places = dict.fromkeys((*getattr(known, role), *getattr(item, role)))
            setattr(known, role, tuple(places))
    return list(merged.values())
