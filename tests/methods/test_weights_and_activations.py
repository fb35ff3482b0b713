"""Dropout, DropConnect and stochastic depth in a model: places, rates, draws."""

import pytest
import torch
import torch.nn.functional as F
from support.models import BY_NAME, run
from torch import Tensor, nn

import attndrop_repro as attndrop
from attndrop_repro.config.errors import AttndropError, UsageError
from attndrop_repro.methods import Site, build


class Spy:
    """Records what a hook of a method got and gave."""

    def __init__(self, method, hook: str) -> None:  # type: ignore[no-untyped-def]
        self.seen: list[tuple[Site, Tensor, Tensor]] = []
        inner = getattr(method, hook)

        def spied(site: Site, x: Tensor) -> Tensor:
            y = inner(site, x)
            self.seen.append((site, x.detach(), y.detach()))
            return y

        setattr(method, hook, spied)

    def changed(self) -> set[str]:
        return {site.place for site, x, y in self.seen if not torch.equal(x, y)}


def train_once(name: str, hook: str, model: str = "vit", **settings: object) -> Spy:
    tiny = BY_NAME[model]
    network = tiny.make()
    method = build(name, settings)
    attndrop.apply(network, method)
    spy = Spy(method, hook)
    torch.manual_seed(0)
    run(network.train(), tiny.batch(8))
    return spy


@pytest.mark.parametrize("places", [("proj-output",), ("mlp-hidden", "mlp-output")])
@pytest.mark.parametrize("model", ["vit", "bert"])
def test_dropout_acts_at_its_places_only(places: tuple[str, ...], model: str) -> None:
    spy = train_once("dropout", "hidden", model, p=0.5, places=places)
    assert spy.changed() == set(places)
    for site, x, y in spy.seen:
        if site.place in places:
            kept = y != 0
            torch.testing.assert_close(y[kept], 2 * x[kept])


def test_default_places_are_feed_forward_and_projections() -> None:
    assert train_once("dropout", "hidden").changed() == {"proj-output", "mlp-hidden", "mlp-output"}
    assert build("dropout").settings.p == 0.1  # type: ignore[attr-defined]


def test_rates_by_layer() -> None:
    spy = train_once("dropout", "hidden", p=[0.0, 0.9], places=["mlp-hidden"])
    zeros = {site.layer: (y == 0).float().mean().item() for site, _, y in spy.seen
             if site.place == "mlp-hidden"}  # fmt: skip
    assert zeros[0] == 0
    assert 0.85 < zeros[1] < 0.95
    with pytest.raises(UsageError, match="3 values by layer, but the model has 2"):
        train_once("dropout", "hidden", p=[0.1, 0.1, 0.1])
    with pytest.raises(UsageError, match="values by head"):
        train_once("dropout", "hidden", p=[[0.1, 0.2], [0.1, 0.2]])


@pytest.mark.parametrize(
    ("model", "places", "changed"),
    [
        ("vit", ["qkv"], {"qkv"}),
        ("vit", ["fc1", "proj"], {"fc1", "proj"}),
        ("bert", ["qkv"], {"q", "k", "v"}),
        ("bert", ["k"], {"k"}),
        ("torch-encoder", ["v", "fc2"], {"qkv", "fc2"}),
    ],
)
def test_dropconnect_acts_on_its_layers_only(
    model: str, places: list[str], changed: set[str]
) -> None:
    assert train_once("dropconnect", "weight", model, p=0.3, places=places).changed() == changed


def test_dropconnect_finds_a_projection_inside_a_fused_layer() -> None:
    spy = train_once("dropconnect", "weight", "vit", p=0.5, places=["k"])
    for site, w, dropped in spy.seen:
        if site.place == "qkv":
            q, k, v = zip(w.chunk(3), dropped.chunk(3), strict=True)
            assert torch.equal(*q)
            assert torch.equal(*v)
            assert not torch.equal(*k)
            assert 0.3 < (k[1] == 0).float().mean() < 0.7


def test_fused_layers_that_cannot_be_told_apart_are_refused() -> None:
    method = build("dropconnect", {"places": ["q"], "p": 0.5})
    site = Site("qkv", 0, 1, "attn.qkv_proj")
    with pytest.raises(AttndropError, match="put qkv in dropconnect's places"):
        method.weight(site, torch.ones(7, 4))
    kv = method.weight(site, torch.ones(8, 4))  # keys and values only: no queries there
    assert torch.equal(kv, torch.ones(8, 4))
    whole = build("dropconnect", {"places": ["q", "k", "v"], "p": 1.0})
    assert whole.weight(site, torch.ones(7, 4)).sum() == 0


def test_dropconnect_draws_anew_each_forward_and_leaves_the_parameters() -> None:
    tiny = BY_NAME["vit"]
    network, x = tiny.make(), tiny.batch(3)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    handle = attndrop.apply(network, "dropconnect", p=0.2)
    network.train()
    assert not torch.equal(run(network, x), run(network, x))
    handle.loss(x, torch.zeros(3, dtype=torch.long), F.cross_entropy).backward()
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name])
    assert all(p.grad is not None for p in network.parameters() if p.requires_grad)


def test_stochastic_depth_grows_with_depth_and_is_per_example() -> None:
    method = build("stochastic-depth", {"p": 0.8})
    torch.manual_seed(0)
    x = torch.ones(4000, 2, 3)
    for layer in range(4):
        y = method.hidden(Site("residual", layer, 4, ""), x)
        gone = (y == 0).all((1, 2))
        p = 0.8 * (layer + 1) / 4
        assert abs(gone.float().mean().item() - p) < 4 * (p * (1 - p) / 4000) ** 0.5
        torch.testing.assert_close(y[~gone], x[~gone] / (1 - p))
    assert method.hidden(Site("mlp-output", 0, 4, ""), x) is x
    constant = build("stochastic-depth", {"p": 0.8, "growth": "constant"})
    gone = constant.hidden(Site("residual", 0, 4, ""), x)[:, 0, 0] == 0
    assert abs(gone.float().mean().item() - 0.8) < 0.03
    listed = build("stochastic-depth", {"p": [0.0, 1.0]})
    assert torch.equal(listed.hidden(Site("residual", 0, 2, ""), x), x)
    assert listed.hidden(Site("residual", 1, 2, ""), x).sum() == 0


@pytest.mark.parametrize("model", ["vit", "swin"])
def test_skipping_every_branch_leaves_the_stream(model: str) -> None:
    spy = train_once("stochastic-depth", "hidden", model, p=1.0, growth="constant")
    branches = [y for site, _, y in spy.seen if site.place == "residual"]
    assert len(branches) == 2 * BY_NAME[model].attentions
    assert all(y.sum() == 0 for y in branches)
    assert all(y.shape[0] == 8 for y in branches)  # images, not windows


def test_what_a_model_lacks_is_named() -> None:
    lone = nn.Sequential(nn.Linear(4, 4))
    for name, words in (
        ("dropout", "proj-output"), ("dropconnect", "q or qkv"), ("stochastic-depth", "residual"),
        ("explicit-dropout", "attention"),
    ):  # fmt: skip
        with pytest.raises(AttndropError, match="has no place that") as caught:
            attndrop.apply(lone, name)
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)
    attndrop.apply(lone, "dropout", p=0)  # idle: nothing is missing


@pytest.mark.parametrize("name", ["dropout", "dropconnect", "stochastic-depth"])
def test_idle_at_zero(name: str) -> None:
    assert build(name, {"p": 0}).idle
    assert build(name, {"p": [0, 0]}).idle
    assert not build(name, {"p": {"schedule": "linear", "value": 0.1}}).idle
