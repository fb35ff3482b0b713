"""The layer's output is found behind queries, keys and values only where its gradient is theirs."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from support.models import images, liven, vit
from torch import Tensor, nn

import attndrop_repro as attndrop
from attndrop_repro import models
from attndrop_repro.config.recipe import Model
from attndrop_repro.functional import attention_by_rows as by_rows
from attndrop_repro.functional.attention_by_rows import Change, attention_by_rows
from attndrop_repro.functional.joint_projection import apart, joint_projection

B, N, H, D = 2, 5, 3, 4
Three = tuple[Tensor, Tensor, Tensor]


def three() -> tuple[Tensor, Three]:
    """A layer's input, and queries, keys and values as timm makes them."""
    torch.manual_seed(0)
    layer = nn.Linear(H * D, 3 * H * D).double()
    x = torch.randn(B, N, H * D, dtype=torch.float64, requires_grad=True)
    q, k, v = layer(x).reshape(B, N, 3, H, D).permute(2, 0, 3, 1, 4).unbind(0)
    return x, (q, k, v)


def vit7() -> nn.Module:
    """The explicit-dropout paper's model, of two layers."""
    return models.build(
        Model(name="vit7", args={"depth": 2}), classes=("a", "b"), image_size=16, channels=3,
        mean=(0.5,) * 3, std=(0.5,) * 3, seed=0,
    )  # fmt: skip


class Reversed(torch.autograd.Function):
    """The same numbers and the same memory; the gradient turned round."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> Tensor:
        return -grad


def hooked(q: Tensor) -> Tensor:
    q.register_hook(lambda grad: grad * 3)
    return q


def retained(q: Tensor) -> Tensor:
    q.retain_grad()
    return q


def test_found() -> None:
    _, (q, k, v) = three()
    qkv = joint_projection(q, k, v)
    assert qkv is not None
    assert qkv.shape == (B, N, 3, H, D)
    for x, y in zip((q, k, v), apart(qkv), strict=True):
        assert x.data_ptr() == y.data_ptr()
        assert torch.equal(x, y)


@pytest.mark.parametrize("at_a_time", [2**18, 40, 10], ids=["at once", "heads", "rows"])
def test_same_gradient(at_a_time: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_rows, "_AT_A_TIME", at_a_time)
    monkeypatch.setattr(by_rows, "_AT_A_TIME_BY_THREADS", at_a_time)
    x, found = three()
    weight = torch.randn(B, H, N, D, dtype=torch.float64)
    fast = attention_by_rows(*found, Change(), scale=0.7, private=True)
    slow = ((found[0] @ found[1].mT) * 0.7).softmax(-1) @ found[2]
    grads = [torch.autograd.grad((y * weight).sum(), x, retain_graph=True) for y in (fast, slow)]
    torch.testing.assert_close(*grads, rtol=0, atol=1e-13)


OTHERS: dict[str, Callable[[Three], Three]] = {
    "reversed": lambda t: (Reversed.apply(t[0]), t[1], t[2]),
    "hooked": lambda t: (hooked(t[0]), t[1], t[2]),
    "retained": lambda t: (t[0], retained(t[1]), t[2]),
    "detached": lambda t: (t[0], t[1].detach(), t[2]),
    "all detached": lambda t: tuple(x.detach().requires_grad_() for x in t),
    "exchanged": lambda t: (t[1], t[0], t[2]),
    "one for two": lambda t: (t[0], t[0], t[2]),
    "normed": lambda t: (F.layer_norm(t[0], (D,)), t[1], t[2]),
    "fewer keys": lambda t: (t[0], t[1][:, :, 1:], t[2][:, :, 1:]),
    "a tensor each": lambda t: tuple(x.clone() for x in t),
}


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS.keys())
def test_not_found(change: Callable[[Three], Three]) -> None:
    x, found = three()
    q, k, v = change(found)
    assert joint_projection(q, k, v) is None
    weight = torch.randn(B, H, N, D, dtype=torch.float64)
    fast = attention_by_rows(q, k, v, Change(), scale=0.7, private=True)
    slow = ((q @ k.mT) * 0.7).softmax(-1) @ v
    wanted = [x, *(y for y in (q, k, v) if y.is_leaf and y.requires_grad)]
    grads = [
        torch.autograd.grad((y * weight).sum(), wanted, retain_graph=True, allow_unused=True)
        for y in (fast, slow)
    ]
    torch.testing.assert_close(*grads, rtol=0, atol=1e-13)


def test_no_gradient_wanted() -> None:
    with torch.no_grad():
        assert joint_projection(*three()[1]) is None
    layer = nn.Linear(H * D, 3 * H * D)
    y = layer(torch.randn(B, N, H * D))
    with torch.no_grad():  # views of something with a gradient, that have none
        views = apart(y.view(B, N, 3, H, D))
    assert joint_projection(*views) is None


def test_others_than_the_model_may_hold_them() -> None:
    """Unless somebody vouches that nobody does, gradients go where autograd brings them."""
    _, (q, k, v) = three()
    q.retain_grad()
    out = attention_by_rows(q, k, v, Change(), scale=0.7)
    out.sum().backward()
    assert q.grad is not None


WATCHED = {
    "hook on the output": lambda net: net.blocks[0].attn.qkv.register_forward_hook(
        lambda m, i, o: (o.register_hook(lambda grad: grad * 0), None)[1]
    ),
    "hook that changes it": lambda net: net.blocks[0].attn.qkv.register_forward_hook(
        lambda m, i, o: o.view_as(o) * 2
    ),
    "hook on the norm": lambda net: net.blocks[0].attn.q_norm.register_forward_hook(
        lambda m, i, o: (o.register_hook(lambda grad: grad * 0), None)[1]
    ),
    "a class of one's own": lambda net: setattr(net.blocks[0].attn.qkv, "__class__", Watching),
}


class Watching(nn.Linear):
    """Shows what it returns to others."""

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        y.register_hook(lambda grad: grad * 0)
        return y


@pytest.mark.parametrize("method", ["dropkey", "attentiondrop-hard", "attention-dropout"])
@pytest.mark.parametrize("watch", WATCHED.values(), ids=WATCHED.keys())
def test_what_others_see_gets_its_gradient(
    watch: Callable, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = liven(vit(patch_size=4, depth=1)).double().train()
    watch(net)
    handle = attndrop.apply(net, method, p=0.3)
    found = []
    for way in (joint_projection, lambda q, k, v: None):
        monkeypatch.setattr(by_rows, "joint_projection", way)
        torch.manual_seed(0)
        net.zero_grad()
        handle.loss(images(2).double(), torch.tensor([0, 1]), F.cross_entropy).backward()
        found.append(net.blocks[0].attn.qkv.weight.grad.clone())  # type: ignore[union-attr]
    torch.testing.assert_close(*found, rtol=0, atol=1e-13)


@pytest.mark.parametrize("make", [lambda: vit(patch_size=4, depth=2), vit7], ids=["timm", "vit7"])
def test_used_in_a_model(make: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch) -> None:
    """And the gradients of its weights are those without it."""
    found = []
    net = liven(make()).double().train()
    handle = attndrop.apply(net, "dropkey", p=0.3)
    for way in (joint_projection, lambda q, k, v: None):
        seen: list[bool] = []

        def noted(
            q: Tensor, k: Tensor, v: Tensor, way: Callable = way, seen: list = seen
        ) -> Tensor | None:
            qkv = way(q, k, v)
            seen.append(qkv is not None)
            return qkv

        monkeypatch.setattr(by_rows, "joint_projection", noted)
        torch.manual_seed(0)
        net.zero_grad()
        handle.loss(images(2).double(), torch.tensor([0, 1]), F.cross_entropy).backward()
        found.append([p.grad.clone() for p in net.parameters() if p.grad is not None])
        assert seen == [way is joint_projection] * 2
    torch.testing.assert_close(*found, rtol=0, atol=1e-13)
