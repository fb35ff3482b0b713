"""What the linear layers around an attention compute, by the names that libraries give them."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from attndrop_repro.adapters.found import Found
from attndrop_repro.adapters.layers import activation_class, linear_class
from attndrop_repro.adapters.tree import Tree
from attndrop_repro.methods.call import AttentionKind, Place

PROJECTIONS: dict[str, Place] = {
    "qkv": "qkv", "kv": "qkv", "qkv_proj": "qkv", "query_key_value": "qkv", "Wqkv": "qkv",
    "q": "q", "q_proj": "q", "query": "q", "q_lin": "q",
    "k": "k", "k_proj": "k", "key": "k", "k_lin": "k",
    "v": "v", "v_proj": "v", "value": "v", "v_lin": "v",
    "to_qkv": "qkv", "to_kv": "qkv", "to_q": "q", "to_k": "k", "to_v": "v",
}  # fmt: skip
OUTPUTS = (
    "proj", "out_proj", "o_proj", "o", "out_lin", "Wo", "dense", "c_proj", "to_out", "to_out.0",
)  # fmt: skip
# BERT and its kin keep the output projection beside the attention, under the same parent
BESIDE = "output.dense"
FEED_FORWARD: tuple[tuple[tuple[str, ...], str], ...] = (
    (("fc1",), "fc2"),
    (("fc1_g", "fc1_x"), "fc2"),
    (("linear1",), "linear2"),
    (("lin1",), "lin2"),
    (("wi",), "wo"),
    (("wi_0", "wi_1"), "wo"),
    (("Wi",), "Wo"),
    (("gate_proj", "up_proj"), "down_proj"),
    (("gate_up_proj",), "down_proj"),
    (("dense_h_to_4h",), "dense_4h_to_h"),
    (("fc_in",), "fc_out"),
    (("c_fc",), "c_proj"),
    (("intermediate.dense",), "output.dense"),
)


def around_attention(
    tree: Tree, path: str, *, kind: AttentionKind | None, residual: bool, windows: bool = False
) -> Iterator[Found]:
    """The projections of the attention at `path`.

    Args:
        tree: The model.
        path: The attention.
        kind: Which attention it is.
        residual: Whether the output projection ends a residual branch.
        windows: Whether activations may be split into windows.
    """
    for name, place in PROJECTIONS.items():
        layer = tree.child(path, name)
        if layer is not None and isinstance(layer[1], nn.Linear):
            yield Found(layer[1], layer[0], linear_class, place, kind=kind, windows=windows)
    outputs = [tree.child(path, name) for name in OUTPUTS]
    outputs.append(tree.child(path.rpartition(".")[0], BESIDE))
    output = next((found for found in outputs if found is not None and linear(found[1])), None)
    if output is not None:
        yield _output(tree, *output, "proj", ("proj-output",), kind, residual, windows)


def feed_forward(
    tree: Tree, path: str, module: nn.Module, *, residual: bool, windows: bool = False,
    sequence_first: bool = False,
) -> Iterator[Found]:  # fmt: skip
    """The feed-forward layers directly below the module at `path`, if it has some."""
    pairs = (*FEED_FORWARD, *_in_sequence(module))
    for firsts, last in pairs:
        layers = [tree.child(path, name) for name in (*firsts, last)]
        if any(layer is None or not linear(layer[1]) for layer in layers):
            continue
        *first, final = (layer for layer in layers if layer is not None)
        for below, layer in first:
            make = linear_class if isinstance(layer, nn.Linear) else activation_class
            place: Place | None = "fc1" if isinstance(layer, nn.Linear) else None
            found = Found(layer, below, make, place, windows=windows)
            found.sequence_first = sequence_first
            yield found
        found = _output(tree, *final, "fc2", ("mlp-output",), None, residual, windows)
        found.inputs = ("mlp-hidden",)
        found.sequence_first = sequence_first
        yield found
        return


def _output(
    tree: Tree, path: str, layer: nn.Module, place: Place, outputs: tuple[Place, ...],
    kind: AttentionKind | None, residual: bool, windows: bool,
) -> Found:  # fmt: skip
    if residual:
        outputs = (*outputs, "residual")
    known = isinstance(layer, nn.Linear)
    return Found(
        layer, path, linear_class if known else activation_class, place if known else None,
        outputs=outputs, kind=kind, windows=windows,
    )  # fmt: skip


def _in_sequence(module: nn.Module) -> list[tuple[tuple[str, ...], str]]:
    """Linear, activation, linear in an `nn.Sequential`, back at the width it began with."""
    if not isinstance(module, nn.Sequential):
        return []
    names = [name for name, layer in module.named_children() if isinstance(layer, nn.Linear)]
    others = [layer for layer in module.children() if not isinstance(layer, nn.Linear)]
    if len(names) != 2 or any(True for layer in others for _ in layer.parameters()):
        return []
    first, last = (module.get_submodule(name) for name in names)
    same = getattr(first, "in_features", 0) == getattr(last, "out_features", 1)
    return [((names[0],), names[1])] if same else []


def linear(layer: nn.Module) -> bool:
    """Whether it is a linear layer on the last dimension: `nn.Linear`, or the Conv1D of GPT-2."""
    return isinstance(layer, nn.Linear) or hasattr(layer, "nf")
