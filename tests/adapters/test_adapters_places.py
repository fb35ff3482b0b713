"""Weights, activations and taps: which places there are, and that they are what their names say."""

import copy

import pytest
import torch
from support.models import BY_NAME, build, eva, images, liven, run, swin, vit
from support.toys import Places, Watch
from torch import nn

import attndrop_repro as attndrop

# per attention and per feed-forward block: what one forward of each model passes through
PROJECTIONS = {
    "vit": "qkv", "deit-distilled": "qkv", "beit": "qkv", "eva": "qkv", "swin": "qkv",
    "eva-split": "q k v", "torchvision-vit": "qkv", "torch-encoder": "qkv",
    "torch-encoder-seq-first": "qkv", "torch-transformer": "qkv", "bert": "q k v",
    "roberta": "q k v", "hf-vit": "q k v", "marian": "q k v", "t5": "q k v", "llama": "q k v",
}  # fmt: skip


@pytest.mark.parametrize("name", PROJECTIONS)
def test_every_place_is_passed_once_for_each_block(name: str) -> None:
    tiny = BY_NAME[name]
    model, x = build(name)
    plain = run(model, x)
    places = Places()
    handle = attndrop.apply(model, places)
    torch.testing.assert_close(run(model, x), plain, atol=1e-6, rtol=1e-5)
    blocks = sum(count for kind, count in tiny.sites.items() if kind != "cross")
    expected = {
        **dict.fromkeys(PROJECTIONS[name].split(), tiny.attentions),
        "attention-input": tiny.attentions, "proj": tiny.attentions,
        "proj-output": tiny.attentions, "residual": tiny.attentions + blocks,
        "fc1": 2 * blocks if name == "llama" else blocks, "fc2": blocks, "mlp-hidden": blocks,
        "mlp-output": blocks,
    }  # fmt: skip
    assert places.seen() == expected
    for place, count in expected.items():
        sites = [site for site in handle.sites if site.place == place]
        assert [site.layer for site in sites] == list(range(count))
        assert {site.layers for site in sites} == {count}
        assert {site.kind for site in sites} <= set(tiny.sites)


@pytest.mark.parametrize("name", PROJECTIONS)
def test_activations_come_as_batch_tokens_width(name: str) -> None:
    model, x = build(name)
    places = Places()
    attndrop.apply(model, places)
    run(model, x)
    shapes = {shape[:2] for _, shape in places.activations}
    tokens = {
        "swin": {64}, "torch-encoder": {6}, "torch-encoder-seq-first": {6}, "bert": {6},
        "roberta": {6}, "llama": {6}, "deit-distilled": {6}, "marian": {5, 6}, "t5": {5, 6},
        "torch-transformer": {5, 6},
    }.get(name, {5})  # fmt: skip
    assert shapes == {(3, n) for n in tokens}


def test_kinds_of_layers_are_those_of_the_attention_nearby() -> None:
    model, _ = build("marian")
    handle = attndrop.apply(model, Places())
    kinds = {site.path: site.kind for site in handle.sites if site.place in {"proj", "fc1"}}
    layer = "model.decoder.layers.1"
    assert kinds["model.encoder.layers.0.fc1"] == "encoder-self"
    assert kinds["model.encoder.layers.0.self_attn.out_proj"] == "encoder-self"
    assert kinds[f"{layer}.self_attn.out_proj"] == "decoder-self"
    assert kinds[f"{layer}.encoder_attn.out_proj"] == "cross"
    assert kinds[f"{layer}.fc1"] == "decoder-self"


LINEAR = [(name, place) for name in PROJECTIONS for place in ("qkv", "q", "proj", "fc1", "fc2")]


@pytest.mark.parametrize(
    ("name", "place"),
    [(n, p) for n, p in LINEAR if p in PROJECTIONS[n].split() or p in {"proj", "fc1", "fc2"}],
)
def test_a_changed_weight_is_the_one_that_is_used(name: str, place: str) -> None:
    """BEiT and EVA use the projection's weight past its layer, torch past everything."""
    model, x = build(name)
    twin, _ = build(name)
    handle = attndrop.apply(model, Places(double=place))
    sites = {site.path for site in handle.sites if site.place == place}
    with torch.no_grad():
        for path in sites:
            module = twin.get_submodule(path)
            weight = module.in_proj_weight if hasattr(module, "in_proj_weight") else module.weight
            weight.mul_(2)
    torch.testing.assert_close(run(model, x), run(twin, x), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("place", ["mlp-output", "proj-output", "mlp-hidden"])
@pytest.mark.parametrize("name", ["vit", "bert", "torch-encoder-seq-first", "llama", "swin"])
def test_a_changed_activation_is_the_one_that_is_used(name: str, place: str) -> None:
    model, x = build(name)
    twin, _ = build(name)
    handle = attndrop.apply(model, Places(double=place))
    with torch.no_grad():
        for site in handle.sites:
            if site.place == place:
                layer = twin.get_submodule(site.path)
                layer.weight.mul_(2)
                if layer.bias is not None and place != "mlp-hidden":
                    layer.bias.mul_(2)
    torch.testing.assert_close(run(model, x), run(twin, x), atol=1e-5, rtol=1e-4)


class Zero(Places):
    """Takes residual branches away, all of them or those of some images."""

    name = "zero"

    def __init__(self, keep: torch.Tensor) -> None:
        super().__init__()
        self.keep = keep

    def hidden(self, site, x):  # type: ignore[no-untyped-def]
        return x * self.keep[:, None, None] if site.place == "residual" else x


@pytest.mark.parametrize("name", ["vit", "swin", "beit", "torch-encoder-seq-first", "hf-vit"])
def test_without_residual_branches_nothing_mixes_tokens_of_those_images(name: str) -> None:
    model, x = build(name)
    plain = run(model, x)
    attndrop.apply(model, Zero(torch.tensor([1.0, 0.0, 1.0])))
    mixed = run(model, x)
    torch.testing.assert_close(mixed[[0, 2]], plain[[0, 2]], atol=1e-5, rtol=1e-4)
    assert not torch.allclose(mixed[1], plain[1], atol=1e-3)


def test_swin_windows_of_one_image_share_its_mask_at_every_place() -> None:
    class OneImage(Places):
        def hidden(self, site, x):  # type: ignore[no-untyped-def]
            assert x.shape[0] == 2, site
            return x * torch.tensor([1.0, 0.0])[:, None, None]

    model = liven(swin()).train()
    x = images(2)
    attndrop.apply(model, OneImage())
    first = model(x)
    x = torch.stack([x[0], torch.randn_like(x[0])])
    torch.testing.assert_close(model(x)[0], first[0], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    "name", ["vit", "beit", "eva", "eva-split", "torch-encoder", "bert", "hf-vit", "llama"]
)
def test_taps_hold_input_and_projections(name: str) -> None:
    model, x = build(name)
    watch = Watch()
    handle = attndrop.apply(model, watch)
    handle.outputs(x)
    (taps,) = watch.kept
    assert [tap.call.site.layer for tap in taps.attention] == [0, 1]
    tap = taps.attention[0]
    heads, width = tap.call.q.shape[1], tap.call.q.shape[-1]
    assert tap.x.shape[:2] == tap.call.q.shape[::2][:1] + tap.call.q.shape[2:3]
    values = tap.x @ tap.w_v.T
    assert values.shape[-1] == heads * width
    by_head = values.unflatten(-1, (heads, width)).transpose(1, 2)
    # up to the projection's bias, which is the same for all tokens
    centred = tap.call.v - tap.call.v.mean(2, keepdim=True)
    torch.testing.assert_close(
        by_head - by_head.mean(2, keepdim=True), centred, atol=1e-5, rtol=1e-4
    )
    if "eva" not in name and name != "llama":  # those rotate queries and keys
        for weight, seen in ((tap.w_q, tap.call.q), (tap.w_k, tap.call.k)):
            made = (tap.x @ weight.T).unflatten(-1, (heads, width)).transpose(1, 2)
            difference = made - seen
            assert (difference - difference[:, :, :1]).abs().max() < 1e-4
    places = [tap.site.place for tap in taps.linear]
    assert places == (["fc1", "fc1", "fc2"] if name == "llama" else ["fc1", "fc2"]) * 2
    for linear in taps.linear:
        assert linear.x.shape[-1] == linear.weight.shape[-1]


def test_taps_are_those_of_one_pass_and_do_not_stop_copies() -> None:
    model, x = build("vit")
    watch = Watch()
    handle = attndrop.apply(model, watch)
    for _ in range(2):
        handle.outputs(x)
        assert len(handle.runtime.taps.attention) == 2
    watch.kept.clear()
    twin = copy.deepcopy(model)
    assert torch.isfinite(run(twin, x)).all()


def test_timm_stochastic_depth_of_its_own_stays() -> None:
    model = liven(eva(drop_path_rate=0.5)).train()
    plain = [model(images(4)) for _ in range(2)]
    assert not torch.equal(*plain)
    places = Places()
    attndrop.apply(model, places)
    assert not torch.equal(model(images(4)), model(images(4)))
    assert places.seen()["residual"] == 8


def test_a_pooling_latent_is_no_self_attention() -> None:
    model = liven(vit(global_pool="map", class_token=False, depth=1)).train()
    places = Places()
    handle = attndrop.apply(model, places)
    assert [site.kind for site in handle.runtime.attention] == ["encoder-self", "cross"]
    model(images(2))
    residual = [site.path for site in handle.sites if site.place == "residual"]
    assert residual == ["blocks.0.drop_path1", "blocks.0.drop_path2", "attn_pool.mlp.fc2"]


def test_only_modules_that_can_matter_are_swapped() -> None:
    model, _ = build("vit")
    kept = type(model.blocks[0].mlp.fc1)
    attndrop.apply(model, Watch("attention"))
    assert type(model.blocks[0].mlp.fc1) is kept is nn.Linear
