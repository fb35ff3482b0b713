"""The feed-forward layers of any library, and the places where residual branches end."""

from __future__ import annotations

from torch import nn

from attndrop_repro.adapters.found import Found, adapter
from attndrop_repro.adapters.layers import activation_class
from attndrop_repro.adapters.roles import feed_forward
from attndrop_repro.adapters.tree import Tree


@adapter(order=90)
def find(tree: Tree, path: str, module: nn.Module) -> list[Found] | None:
    """Two linear layers with an activation between them, by the names of their layers."""
    residual = tree.ends_branch(f"{path}.any")
    return list(feed_forward(tree, path, module, residual=residual, windows=True)) or None


@adapter(order=91)
def find_residual(tree: Tree, path: str, module: nn.Module) -> list[Found] | None:
    """The `drop_path` modules of timm: the identity, or stochastic depth of its own."""
    if not path.rpartition(".")[2].startswith("drop_path"):
        return None
    return [Found(module, path, activation_class, outputs=("residual",), windows=True)]
