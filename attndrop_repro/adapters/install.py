"""Putting a method into a model: find the places, refuse what cannot be caught, swap, undo."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle

from attndrop_repro.adapters.found import Bound, Found, adapters, merge
from attndrop_repro.adapters.fused import projections
from attndrop_repro.adapters.layers import keeps_linear
from attndrop_repro.adapters.runtime import BeginPass, EndPass, Runtime, pass_class
from attndrop_repro.adapters.swap import is_swapped, restore, swap
from attndrop_repro.adapters.tree import Tree, attends_by_itself
from attndrop_repro.config.errors import AttndropError
from attndrop_repro.methods import Method, Site
from attndrop_repro.methods.call import AttentionKind, Place


@dataclass
class Installed:
    """A method in a model.

    Attributes:
        runtime: What its sites share.
        sites: Every site of the model that a method could use, in order of depth.
        swapped: The modules that let the method in.
    """

    runtime: Runtime
    sites: list[Site] = field(default_factory=list)
    swapped: list[nn.Module] = field(default_factory=list)
    _hooks: list[RemovableHandle] = field(default_factory=list)

    def remove(self) -> None:
        """Gives the model back as it was."""
        for module in self.swapped:
            restore(module)
        self.swapped.clear()
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()


def install(model: nn.Module, method: Method[Any]) -> Installed:
    """Puts a method into a model, or leaves the model as it is and says why not.

    Raises:
        AttndropError: The model has a method already, an attention that cannot be caught, or no
            place that the method needs.
    """
    if has_method(model):
        raise AttndropError("this model already has a method: call remove() on its handle first")
    tree = Tree(model)
    installed = Installed(Runtime(method))
    found = search(tree) if method.needs or method.taps() else []
    check(model, method, found)
    numbered = number(tree, found, installed)
    method.prepare(installed.runtime.attention)  # may refuse the model: nothing is changed as yet
    for item, bound in numbered:
        if wanted(item, installed.runtime):
            swap(item.module, item.make, bound)
            installed.swapped.append(item.module)
    runtime = installed.runtime
    if isinstance(model, nn.TransformerEncoderLayer):
        # alone among modules, its fast path is closed by any hook
        swap(model, pass_class, runtime)
        installed.swapped.append(model)
    else:
        installed._hooks = [
            model.register_forward_pre_hook(BeginPass(runtime), with_kwargs=True),
            model.register_forward_hook(EndPass(runtime), always_call=True),
        ]
    return installed


def has_method(model: nn.Module) -> bool:
    """Whether `install` was called on the model or on a part of it."""
    return any(
        is_swapped(module)
        or any(isinstance(hook, BeginPass) for hook in module._forward_pre_hooks.values())
        for module in model.modules()
    )


def search(tree: Tree) -> list[Found]:
    """Every place of a model, in order of depth.

    Raises:
        AttndropError: Some attention cannot be caught: a method would act on part of the model.
    """
    found: list[Found] = []
    for path, module in tree.modules.items():
        claimed = next(filter(None, (find(tree, path, module) for find in adapters())), ())
        found.extend(claimed)
        caught = any(item.module is module and item.site == "attention" for item in claimed)
        if not caught and attends_by_itself(module):
            raise AttndropError(
                f"{type(module).__name__} at {path!r} in {type(tree.root).__name__} computes its "
                "attention by itself, not by torch's scaled_dot_product_attention: no method can "
                "get into it"
            )
    found = merge(found)
    found.sort(key=lambda item: tree.order[item.path])
    for item in found:
        item.kind = item.kind or _kind_nearby(item, found)
    return found


def check(model: nn.Module, method: Method[Any], found: Sequence[Found]) -> None:
    """Whether the model has what the method needs.

    Raises:
        AttndropError: It has not; the message names places or classes.
    """
    name = type(model).__name__
    places = {place for item in found for place in item.places}
    missing = method.missing(places)
    if missing:
        raise AttndropError(f"{name} has no place that {method.name} needs: " + ", ".join(missing))
    runtime = Runtime(method)
    for item in found:
        kind = type(item.module).__name__
        if runtime.weighs and _foreign(item):
            raise AttndropError(
                f"{method.name} changes weights of linear layers, and {kind} at {item.path!r} "
                "does not compute what nn.Linear does"
            )


def number(tree: Tree, found: Sequence[Found], installed: Installed) -> list[tuple[Found, Bound]]:
    """Gives every place its site: which of how many it is."""
    totals = Counter(place for item in found for place in item.places)
    counts: Counter[str] = Counter()
    numbered = []

    def site(item: Found, place: Place) -> Site:
        made = Site(
            place, counts[place], totals[place], item.path, kind=item.kind or "encoder-self",
            heads=item.heads, prefix_tokens=tree.prefix_tokens(item.path),
            width=_width(item.module) if place == "attention" else 0,
        )  # fmt: skip
        counts[place] += 1
        installed.sites.append(made)
        return made

    for item in found:
        main = None if item.site is None else site(item, item.site)
        inputs, outputs, weights = (
            tuple(site(item, place) for place in places)
            for places in (item.inputs, item.outputs, item.weights)
        )
        bound = Bound(
            installed.runtime, main, inputs, outputs, weights, item.sequence_first, item.windows
        )
        if main is not None and main.place == "attention":
            installed.runtime.attention.append(main)
        numbered.append((item, bound))
    return numbered


def wanted(item: Found, runtime: Runtime) -> bool:
    """Whether the method can have anything to do at this module; else it stays the library's."""
    if runtime.method.idle:
        return False
    if item.site == "attention":
        return True
    hides = runtime.hides and bool(item.inputs or item.outputs)
    return hides or (item.site is not None and (runtime.weighs or item.site in runtime.wanted))


def _foreign(item: Found) -> bool:
    return item.site not in (None, "attention") and not keeps_linear(item.module)


def _width(module: nn.Module) -> int:
    """C of the tokens that enter an attention; 0 where its projections do not tell."""
    if isinstance(module, nn.MultiheadAttention):
        return int(module.embed_dim)
    weights = projections(module)
    return 0 if weights is None else weights[0].shape[1]


def _kind_nearby(item: Found, found: Sequence[Found]) -> AttentionKind:
    """That of the attentions under the nearest module around it that has some."""
    path = item.path
    while path:
        path = path.rpartition(".")[0]
        inside = f"{path}." if path else ""
        kinds = {
            other.kind
            for other in found
            if other.site == "attention" and other.path.startswith(inside)
        }
        if kinds:
            return "encoder-self" if kinds == {"encoder-self"} else "decoder-self"
    return "encoder-self"
