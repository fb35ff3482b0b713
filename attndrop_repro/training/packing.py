"""Nested state as flat named tensors and JSON, and back: a checkpoint holds no pickle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

_TENSOR = "__tensor__"


def pack(tree: Any, prefix: str, tensors: dict[str, Tensor]) -> Any:
    """The JSON half of a state; its tensors go into `tensors` under names that start with `prefix`.

    Args:
        tree: Mappings, lists, tuples, tensors, numbers, text, None. Keys are text or whole numbers.
        prefix: Where in the checkpoint it belongs, as in "optimizer/".
        tensors: Filled.

    Raises:
        TypeError: Something else is in it.
    """
    if isinstance(tree, Tensor):
        tensors[prefix] = tree.detach()
        return {_TENSOR: prefix}
    if isinstance(tree, Mapping):
        keys = [[key, pack(v, _below(prefix, key), tensors)] for key, v in tree.items()]
        return {"mapping": keys}
    if isinstance(tree, list | tuple):
        items = [pack(v, _below(prefix, index), tensors) for index, v in enumerate(tree)]
        return {"tuple" if isinstance(tree, tuple) else "list": items}
    if tree is None or isinstance(tree, bool | int | float | str):
        return {"value": tree}
    raise TypeError(f"a checkpoint cannot hold a {type(tree).__name__} ({prefix})")


def _below(prefix: str, key: object) -> str:
    return f"{prefix}{key}" if prefix.endswith("/") else f"{prefix}.{key}"


def unpack(packed: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The state that `pack` took apart."""
    ((kind, content),) = packed.items()
    if kind == _TENSOR:
        return tensors[content]
    if kind == "mapping":
        return {key: unpack(value, tensors) for key, value in content}
    if kind in ("list", "tuple"):
        items = [unpack(value, tensors) for value in content]
        return tuple(items) if kind == "tuple" else items
    return content


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors below a name, with the prefix taken off."""
    start = prefix + "/"
    return {name[len(start) :]: value for name, value in tensors.items() if name.startswith(start)}


def copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors on the CPU and apart from what training goes on to change."""
    return {
        name: value.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for name, value in tensors.items()
    }
