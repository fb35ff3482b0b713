"""What cannot be caught, or only in part, is refused in one line that names the class."""

import re
from collections.abc import Callable
from functools import partial

import pytest
import timm
import torch
import torch.nn.functional as F
from support.models import bert, build, gpt2, images, liven, run, vit, words
from support.toys import Places, Spy, Watch, states
from torch import Tensor, nn

import attndrop_repro as attndrop
from attndrop_repro.config.errors import AttndropError
from attndrop_repro.methods import Method, Settings


def _timm(name: str, **options: object) -> nn.Module:
    with torch.device("meta"):
        return timm.create_model(name, **options)


@pytest.mark.parametrize(
    ("name", "cls"),
    [
        ("cait_xxs24_224", "TalkingHeadAttn"),  # two of its attentions could be caught
        ("swinv2_tiny_window8_256", "WindowAttention"),
        ("swinv2_cr_tiny_224", "WindowMultiHeadAttention"),
        ("mvitv2_tiny", "MultiScaleAttention"),
        ("davit_tiny", "ChannelAttention"),
        ("volo_d1_224", "OutlookAttention"),
        ("levit_128", "Attention"),
        ("edgenext_small", "CrossCovarianceAttn"),
    ],
)
def test_attention_that_cannot_be_caught(name: str, cls: str) -> None:
    model = _timm(name)
    before = states(model)
    with pytest.raises(AttndropError) as error:
        attndrop.apply(model, Spy())
    message = str(error.value)
    assert re.match(rf"{cls} at '[\w.]+' in {type(model).__name__} computes its attention", message)
    assert "\n" not in message
    assert states(model).keys() == before.keys()
    assert all(type(m) is before[path][0] for path, m in model.named_modules())


@pytest.mark.parametrize("name", ["resnet18", "mixer_s32_224"])
def test_no_attention_at_all(name: str) -> None:
    with pytest.raises(AttndropError, match="has no place that spy needs: attention"):
        attndrop.apply(_timm(name), Spy())


def test_torchvision_swin_attends_in_a_function() -> None:
    import torchvision

    with torch.device("meta"):
        model = torchvision.models.swin_t()
    with pytest.raises(AttndropError, match=r"ShiftedWindowAttention at .* by itself"):
        attndrop.apply(model, Spy())


class ByHandAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        return torch.softmax(q @ k.transpose(-2, -1), -1) @ v


class Aliased(ByHandAttention):
    def forward(self, x: Tensor) -> Tensor:
        attend = F.scaled_dot_product_attention
        q, k, v = self.qkv(x).unsqueeze(1).chunk(3, -1)
        return attend(q, k, v).squeeze(1)


class WholeBlock(ByHandAttention):
    """Attention and feed-forward in one module: half of its layers have names that are known."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.fc1(super().forward(x)))


class Switched(ByHandAttention):
    """Can do both, and does it by hand: nothing in its code says which one runs."""

    fast = False

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        if self.fast:
            return F.scaled_dot_product_attention(q, k, v)
        return (q @ k.mT).softmax(-1) @ v


class Probabilities(nn.Module):
    """A soft-max without a product of matrices is no attention."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).softmax(-1)


def test_attention_of_anybody() -> None:
    with pytest.raises(AttndropError, match="ByHandAttention at '0' in Sequential"):
        attndrop.apply(nn.Sequential(ByHandAttention()), Spy())
    with pytest.raises(AttndropError, match="WholeBlock at '1' in Sequential"):
        attndrop.apply(nn.Sequential(Aliased(), WholeBlock()), Spy())
    spy = Spy()
    model = nn.Sequential(Aliased(), Probabilities(Aliased()))
    attndrop.apply(model, spy)
    model(torch.randn(2, 5, 8))
    assert [tuple(call.q.shape) for call in spy.calls] == [(2, 1, 5, 8)] * 2


def test_an_attention_that_escapes_while_training_is_an_error_then() -> None:
    model = nn.Sequential(Switched())
    handle = attndrop.apply(model, Spy())
    with pytest.raises(AttndropError, match="Switched at '0' computed its attention without"):
        model(torch.randn(2, 5, 8))
    handle.remove()
    assert model(torch.randn(2, 5, 8)).shape == (2, 5, 8)
    model[0].fast = True
    spy = Spy()
    attndrop.apply(model, spy)
    assert model(torch.randn(2, 5, 8)).shape == (2, 5, 8)
    assert tuple(spy.calls[0].q.shape) == (2, 1, 5, 8)


XCIT = partial(timm.models.Xcit, img_size=16, patch_size=8, embed_dim=16, depth=1, num_heads=2)
NEST = partial(
    timm.models.Nest, img_size=16, patch_size=2, num_levels=2, embed_dims=(8, 8), num_heads=(2, 2),
    depths=(1, 1),
)  # fmt: skip


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (XCIT, "XCA at .* attends over channels"),
        (NEST, "Attention at .* attends over 5 dimensions"),
    ],
)
def test_attention_over_something_else_is_an_error_when_it_runs(
    make: Callable[[], nn.Module], what: str
) -> None:
    model = make()
    handle = attndrop.apply(model, Spy())
    with pytest.raises(AttndropError, match=what):
        model(images(1))
    handle.remove()


@pytest.mark.parametrize("option", ["add_bias_kv", "add_zero_attn"])
def test_keys_that_are_no_tokens(option: str) -> None:
    model = nn.Sequential(nn.MultiheadAttention(8, 2, **{option: True}))
    with pytest.raises(AttndropError, match=f"MultiheadAttention at '0' has {option}=True"):
        attndrop.apply(model, Spy())


def test_a_multihead_attention_with_a_forward_of_its_own() -> None:
    class Other(nn.MultiheadAttention):
        def forward(self, *args: Tensor) -> Tensor:
            return F.multi_head_attention_forward(*args)[0]

    with pytest.raises(AttndropError, match="Other at '0' in Sequential computes its attention"):
        attndrop.apply(nn.Sequential(Other(8, 2)), Spy())


def test_hugging_face_implementations_with_masks_of_their_own() -> None:
    model = bert()
    model.config._attn_implementation_internal = "flash_attention_2"
    with pytest.raises(
        AttndropError, match=r"'flash_attention_2'.*model.set_attn_implementation\('sdpa'\)"
    ):
        attndrop.apply(model, Spy())


def test_hugging_face_soft_cap() -> None:
    import transformers

    config = transformers.Gemma2Config(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, head_dim=4, intermediate_size=8, attn_implementation="eager",
    )  # fmt: skip
    model = transformers.Gemma2ForCausalLM(config)
    with pytest.raises(AttndropError, match=r"Gemma2Attention at .* soft-cap"):
        attndrop.apply(model, Spy())


def test_weights_of_layers_that_are_no_linear_layers() -> None:
    class Odd(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + 1

    model = liven(vit())
    model.blocks[1].mlp.fc1.__class__ = Odd
    with pytest.raises(AttndropError, match=r"places changes weights .* Odd at 'blocks.1.mlp.fc1'"):
        attndrop.apply(model, Places())
    attndrop.apply(model, Spy())


def test_projections_that_cannot_be_told_apart() -> None:
    model = liven(gpt2()).train()
    watch = Watch("attention")
    handle = attndrop.apply(model, watch)
    assert {site.width for site in handle.runtime.attention} == {0}
    handle.outputs(words(2))
    assert [(tap.x is None, tap.w_q) for tap in watch.kept[0].attention] == [(True, None)] * 2


class Nothing(Method[Settings]):
    name = "nothing"
    reference = "test"


def test_a_method_that_needs_no_place_goes_into_anything() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 2))
    handle = attndrop.apply(model, Nothing(Settings()))
    x = torch.randn(2, 3, 4, 4)
    assert torch.isfinite(handle.loss(x, torch.tensor([0, 1]), F.cross_entropy))
    handle.remove()
    attndrop.apply(model, "none").remove()


def test_settings_with_a_built_method() -> None:
    model, x = build("vit")
    with pytest.raises(attndrop.config.errors.UsageError, match="settings go with the name"):
        attndrop.apply(model, Spy(), p=0.5)
    assert torch.isfinite(run(model, x)).all()


def test_maps_are_no_tokens() -> None:
    """An attention that projects by convolutions takes (B, C, height, width)."""

    class Maps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.proj = nn.Conv2d(8, 24, 1), nn.Conv2d(8, 8, 1)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.qkv(x).flatten(2).mT.unsqueeze(1).chunk(3, -1)
            y = F.scaled_dot_product_attention(q, k, v)
            return self.proj(y.squeeze(1).mT.reshape(x.shape))

    model = nn.Sequential(Maps())
    handle = attndrop.apply(model, Spy())
    assert {site.place for site in handle.sites} == {"attention"}
    handle.remove()
    with pytest.raises(AttndropError, match="has no place that dropdim needs: attention-input"):
        attndrop.apply(model, "dropdim")
