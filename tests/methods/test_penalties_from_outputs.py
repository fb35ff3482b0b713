"""Penalties from what the model's layers made already equal those computed from their inputs."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.models import BY_NAME, images, liven, vit
from torch import Tensor, nn

import attndrop_repro as attndrop
from attndrop_repro.config.errors import AttndropError
from attndrop_repro.methods.penalties import Seen
from attndrop_repro.methods.taps import Mapped

ALL = ("q", "k", "v", "av", "ff")


def gradients(network: nn.Module, x: Tensor, **settings: Any) -> tuple[float, list[Tensor]]:
    """The penalty, and the gradients of the loss with it."""
    handle = attndrop.apply(network, "explicit-dropout", lam=1.0, **settings)
    network.zero_grad()
    handle.loss(x, None, lambda z, _: z.square().sum()).backward()
    penalty = handle.parts["penalty"].item()
    handle.remove()
    return penalty, [p.grad.clone() for p in network.parameters() if p.grad is not None]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each output that was asked for could be used; `off` in it: none may be."""
    seen: list[bool] = []
    original = Mapped.unbiased

    def unbiased(self: Mapped) -> Tensor | None:
        result = None if "off" in seen else original(self)  # type: ignore[comparison-overlap]
        seen.append(result is not None)
        return result

    monkeypatch.setattr(Mapped, "unbiased", unbiased)
    return seen


def compare(
    network: nn.Module, x: Tensor, counted: list[Any], monkeypatch: Any, **settings: Any
) -> list[bool]:
    """Asserts that nothing depends on the outputs, and gives which were used."""
    torch.manual_seed(0)
    quick = gradients(network, x, **settings)
    used = list(counted)
    counted.append("off")
    monkeypatch.setattr(Seen, "attended", lambda self: None)
    torch.manual_seed(0)
    slow = gradients(network, x, **settings)
    assert quick[0] == pytest.approx(slow[0], rel=1e-11)
    assert len(quick[1]) == len(slow[1])
    for ours, theirs in zip(quick[1], slow[1], strict=True):
        scale = theirs.abs().max().clamp(min=1)
        torch.testing.assert_close(ours / scale, theirs / scale, rtol=0, atol=1e-12)
    return used


@pytest.mark.parametrize("form", ["paper", "exact", "inverted"])
@pytest.mark.parametrize("targets", [ALL, *ALL])
@pytest.mark.parametrize("model", ["vit", "swin", "beit"])
def test_equal(model: str, targets: Any, form: str, counted: list[bool], monkeypatch: Any) -> None:
    tiny = BY_NAME[model]
    network = liven(tiny.make()).double().train()
    used = compare(
        network, tiny.batch(2).double(), counted, monkeypatch, targets=targets, form=form
    )
    asked = form != "inverted" or targets in (ALL, "q", "k")
    assert all(used)
    assert bool(used) == (asked and targets != "av")


@pytest.mark.parametrize("settings", [{"tokens": "mean"}, {"batch": "sum"}, {"heads": "sum"}])
def test_equal_however_it_is_averaged(
    settings: dict, counted: list[bool], monkeypatch: Any
) -> None:
    network = liven(vit(patch_size=4)).double().train()
    x = images(3).double()
    assert all(compare(network, x, counted, monkeypatch, targets=ALL, **settings))


def test_an_activation_that_writes_over_its_input(counted: list[bool], monkeypatch: Any) -> None:
    network = liven(vit(patch_size=4, act_layer=lambda: nn.ReLU(inplace=True))).double().train()
    used = compare(network, images(2).double(), counted, monkeypatch, targets="ff")
    assert used == [False, True] * (len(used) // 2)  # fc1's output is gone, fc2's is there


def test_inference_mode() -> None:
    network = liven(vit(patch_size=4)).train()
    handle = attndrop.apply(network, "explicit-dropout", lam=1.0, targets=ALL)
    seen = []
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            handle.loss(images(2), None, lambda z, _: z.sum())
        seen.append(handle.parts["penalty"].item())
    assert seen[0] == pytest.approx(seen[1], rel=1e-5)


class ByHead(nn.Module):
    """Queries, keys and values of one head side by side, as MaxViT has them."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.num_heads, self.qkv, self.proj = (
            heads,
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
        )

    def forward(self, x: Tensor, attn_mask: Any = None, is_causal: bool = False) -> Tensor:
        packed = self.qkv(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        q, k, v = packed.chunk(3, -1)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("name", ["explicit-dropout", "arora"])
def test_projections_that_are_packed_otherwise_are_refused(name: str) -> None:
    network = vit(patch_size=4, depth=1).train()
    block: Any = network.blocks[0]  # type: ignore[index]
    block.attn = ByHead(block.attn.qkv.in_features, block.attn.num_heads)
    handle = attndrop.apply(network, name, targets="v")
    with pytest.raises(AttndropError, match="which this kind of model does not show"):
        handle.loss(images(2), None, lambda z, _: z.sum())


class Adapted(nn.Linear):
    """A layer that adds something of its own."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + x.mean(-1, keepdim=True)


def test_a_layer_that_computes_something_else(counted: list[bool], monkeypatch: Any) -> None:
    network = liven(vit(patch_size=4, depth=1)).double().train()
    block: Any = network.blocks[0]  # type: ignore[index]
    block.mlp.fc1.__class__ = Adapted
    assert compare(network, images(2).double(), counted, monkeypatch, targets="ff") == [True]


def test_the_output_of_attention_is_used(monkeypatch: Any) -> None:
    used = []
    original = Seen.attended

    def attended(self: Seen) -> Tensor | None:
        result = original(self)
        used.append(result is not None)
        return result

    monkeypatch.setattr(Seen, "attended", attended)
    network = liven(vit(patch_size=4, depth=2)).train()
    gradients(network, images(2), targets="av")
    assert used == [True, True]


def test_values_that_a_hook_changes(counted: list[bool], monkeypatch: Any) -> None:
    """A V is of the projection's own values."""
    for change in (lambda m, i, o: o * 2, lambda m, i, o: o.mul_(2)):
        network = liven(vit(patch_size=4, depth=1)).double().train()
        block: Any = network.blocks[0]  # type: ignore[index]
        block.attn.qkv.register_forward_hook(change)
        compare(network, images(2).double(), counted, monkeypatch, targets="av")


def test_values_that_a_class_changes(counted: list[bool], monkeypatch: Any) -> None:
    network = liven(vit(patch_size=4, depth=1)).double().train()
    block: Any = network.blocks[0]  # type: ignore[index]
    block.attn.qkv.__class__ = Adapted
    compare(network, images(2).double(), counted, monkeypatch, targets="av")


def test_queries_that_are_normed_afterwards(counted: list[bool], monkeypatch: Any) -> None:
    network = liven(vit(patch_size=4, qk_norm=True)).double().train()
    assert all(compare(network, images(2).double(), counted, monkeypatch, targets=ALL))


def test_weights_that_another_method_changes(counted: list[bool]) -> None:
    """The penalty is about the weights themselves, not about those that DropConnect leaves."""
    network = liven(vit(patch_size=4, depth=1)).double().train()
    handle = attndrop.apply(
        network, "dropconnect+explicit-dropout",
        dropconnect={"p": 0.5}, explicit_dropout={"lam": 1.0, "targets": "ff"},
    )  # fmt: skip
    inputs: list[Tensor] = []
    block: Any = network.blocks[0]  # type: ignore[index]
    for layer in (block.mlp.fc1, block.mlp.fc2):
        layer.register_forward_hook(lambda m, args, out: inputs.append(args[0].detach()))
    handle.loss(images(2).double(), None, lambda z, _: z.sum())
    layers = (block.mlp.fc1, block.mlp.fc2)
    expected = sum(
        0.02 * F.linear(seen, layer.weight).square().sum().item() / 2
        for layer, seen in zip(layers, inputs, strict=True)
    )
    assert handle.parts["penalty"].item() == pytest.approx(expected, rel=1e-10)
    assert not any(counted)
