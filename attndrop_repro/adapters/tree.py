"""A model as adapters look at it: its modules with their paths, and what their code does.

What a module can do is read from the compiled code of its `forward` and of what that calls: whether
it uses torch's fused attention, an attention interface, or computes an attention of its own. The
names of classes decide nothing.
"""

from __future__ import annotations

import dis
import inspect
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

PRODUCTS = {"matmul", "bmm", "einsum", "baddbmm", "@"}
ELSEWHERE = {
    "multi_head_attention_forward", "_native_multi_head_attention", "flash_attn_func",
    "flash_attn_varlen_func", "memory_efficient_attention", "flex_attention",
}  # fmt: skip
NORM_AFTER = "post_feedforward_layernorm"  # as in Gemma 2: every branch ends in a norm
SDPA = "scaled_dot_product_attention"


@dataclass
class Tree:
    """All modules of a model by path, each once, in the order of `named_modules`."""

    root: nn.Module
    modules: dict[str, nn.Module] = field(init=False)
    order: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.modules = dict(self.root.named_modules())
        self.order = {path: index for index, path in enumerate(self.modules)}

    def ancestors(self, path: str) -> Iterator[tuple[str, nn.Module]]:
        """The modules around `path`, nearest first, itself left out."""
        while path:
            path = path.rpartition(".")[0]
            if path in self.modules:
                yield path, self.modules[path]

    def child(self, path: str, name: str) -> tuple[str, nn.Module] | None:
        """A module below `path` by its dotted name, with its own path, if it is there."""
        below = f"{path}.{name}" if path else name
        module = self.modules.get(below)
        return None if module is None else (below, module)

    def ends_branch(self, path: str) -> bool:
        """Whether what the output layer at `path` returns is what is added to the residual stream.

        Not where the library has a place of its own for that (`drop_path`), nor where a norm
        follows.
        """
        return not any(
            name.startswith("drop_path") or name == NORM_AFTER
            for _, module in self.ancestors(path)
            for name, _ in module.named_children()
        )

    def prefix_tokens(self, path: str) -> int:
        """Class and register tokens before the patches, as the nearest module around says."""
        around = [(path, self.modules[path]), *self.ancestors(path)]
        for _, module in around:
            count = getattr(module, "num_prefix_tokens", None)
            if isinstance(count, int):
                return count
            for holder in (module, *module.children()):
                tokens = [getattr(holder, name, None) for name in _TOKENS]
                if any(isinstance(token, Tensor) for token in tokens[:2]):
                    return sum(t.shape[-2] for t in tokens if isinstance(t, Tensor))
        return 0


_TOKENS = ("cls_token", "class_token", "dist_token", "distillation_token", "reg_token",
           "register_tokens")  # fmt: skip


def uses_sdpa(module: nn.Module) -> bool:
    """Whether its forward can call torch's `scaled_dot_product_attention`."""
    return SDPA in names_of(type(module))


def attends_by_itself(module: nn.Module) -> bool:
    """Whether its forward computes an attention that nothing can get into.

    A soft-max together with a product of matrices, or one of the fused forms other than torch's.
    """
    names = names_of(type(module))
    return bool(names & ELSEWHERE) or ("softmax" in names and bool(names & PRODUCTS))


def names_of(cls: type[nn.Module]) -> frozenset[str]:
    """Every name that the forward of a class uses, and the methods and functions that it calls.

    Code of torch itself is not entered; `scaled_dot_product_attention` is known under any alias.
    """
    if cls not in _NAMES:
        _NAMES[cls] = frozenset() if _of_torch(cls) else _reached(cls)
    return _NAMES[cls]


_NAMES: dict[type[nn.Module], frozenset[str]] = {}


def _reached(cls: type[nn.Module]) -> frozenset[str]:
    seen: set[Any] = set()
    names: set[str] = set()
    todo: list[Any] = [getattr(cls, "forward", None)]
    while todo:
        function = _plain(todo.pop())
        if function is None or function.__code__ in seen:
            continue
        seen.add(function.__code__)
        used = _names_in(function.__code__)
        for name in used:
            targets = [base.__dict__.get(name) for base in cls.__mro__]
            if "super" not in used:  # what is overridden runs only if somebody asks for it
                targets = [inspect.getattr_static(cls, name, None)]
            targets.append(function.__globals__.get(name))
            if any(target is F.scaled_dot_product_attention for target in targets):
                names.add(SDPA)
            todo += [target for target in targets if not inspect.isclass(target)]
        names |= used
    return frozenset(names)


def _plain(target: Any) -> types.FunctionType | None:
    """The Python function behind methods, properties and decorators, unless torch's own."""
    if isinstance(target, property):
        target = target.fget
    if isinstance(target, staticmethod | classmethod):
        target = target.__func__
    target = inspect.unwrap(target) if callable(target) else target
    if not isinstance(target, types.FunctionType):
        return None
    return None if _of_torch(target) else target


def _of_torch(target: Any) -> bool:
    return (target.__module__ or "").split(".")[0] == "torch"


def _names_in(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for instruction in dis.get_instructions(code):
        if instruction.opname == "BINARY_OP" and instruction.argrepr in {"@", "@="}:
            names.add("@")
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names_in(constant)
    return names
