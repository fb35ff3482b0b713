"""`nn.MultiheadAttention` against the library's own, in every form in which it can be called."""

import itertools

import pytest
import torch
from support.models import Translator, liven
from support.toys import ByHand, Places, Spy, Watch
from torch import Tensor, nn

import attndrop_repro as attndrop

B, Q, K, C, H = 2, 4, 5, 8, 2


def _attention(**options: object) -> nn.MultiheadAttention:
    return liven(nn.MultiheadAttention(C, H, **options)).train()  # type: ignore[arg-type, return-value]


def _tokens(n: int, width: int = C, seed: int = 0, batched: bool = True) -> Tensor:
    generator = torch.Generator().manual_seed(seed + n)
    return torch.randn(*([B] if batched else []), n, width, generator=generator)


PADDING = torch.tensor([[False] * K, [False] * 3 + [True] * 2])
MASK = torch.zeros(Q, K, dtype=torch.bool)
MASK[0, 1:] = True
MASK[2, :2] = True
MASK3 = torch.zeros(B * H, Q, K, dtype=torch.bool)
MASK3[1, 0, 2:] = True
FLOAT = torch.randn(Q, K, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize(
    ("padding", "mask"),
    list(itertools.product(
        [None, PADDING, torch.zeros(B, K).masked_fill(PADDING, float("-inf"))],
        [None, MASK, MASK3, torch.zeros(Q, K).masked_fill(MASK, float("-inf")), FLOAT],
    )),
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:Support for mismatched")
def test_masks(
    padding: Tensor | None, mask: Tensor | None, batch_first: bool, need_weights: bool
) -> None:
    attention = _attention(batch_first=batch_first)
    tokens = [_tokens(n, seed=i) for i, n in enumerate((Q, K, K))]
    if not batch_first:
        tokens = [t.transpose(0, 1) for t in tokens]
    options = {"key_padding_mask": padding, "attn_mask": mask, "need_weights": need_weights}
    expected, expected_weights = attention(*tokens, **options)
    attndrop.apply(attention, ByHand())
    output, weights = attention(*tokens, **options)
    torch.testing.assert_close(output, expected, atol=1e-6, rtol=1e-5)
    assert (weights is None) is (expected_weights is None)
    if weights is not None:
        torch.testing.assert_close(weights, expected_weights, atol=1e-6, rtol=1e-5)


def test_a_row_without_any_key_stays_finite_where_the_library_gives_nan() -> None:
    attention = _attention(batch_first=True)
    x = _tokens(Q).requires_grad_()
    padding = torch.ones(B, Q, dtype=torch.bool)
    padding[0] = False
    assert attention(x, x, x, key_padding_mask=padding)[0][1].isnan().all()
    attndrop.apply(attention, Spy())
    for need_weights in (True, False):
        output, _ = attention(x, x, x, key_padding_mask=padding, need_weights=need_weights)
        (gradient,) = torch.autograd.grad(output.sum(), x)
        assert torch.isfinite(output).all()
        assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_weights_with_and_without_a_batch(batch_first: bool, batched: bool, average: bool) -> None:
    attention = _attention(batch_first=batch_first)
    x = _tokens(Q, batched=batched)
    if batched and not batch_first:
        x = x.transpose(0, 1)
    padding = (PADDING if batched else PADDING[1])[..., :Q]
    options = {"average_attn_weights": average, "key_padding_mask": padding}
    expected = attention(x, x, x, **options)
    attndrop.apply(attention, Spy())
    for ours, theirs in zip(attention(x, x, x, **options), expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)


class Halve(ByHand):
    """Attends by itself with weights that are not the soft-max."""

    def attend(self, call):  # type: ignore[no-untyped-def]
        return super().attend(call) * 0.5


def test_weights_are_those_that_the_method_applied() -> None:
    attention = _attention(batch_first=True)
    x = _tokens(Q)
    _, plain = attention(x, x, x)
    attndrop.apply(attention, Halve())
    output, weights = attention(x, x, x)
    torch.testing.assert_close(weights, plain * 0.5, atol=1e-6, rtol=1e-5)
    assert output.shape == x.shape


def test_weights_after_dropout_are_those_of_the_output() -> None:
    attention = _attention(batch_first=True, dropout=0.5, bias=False)
    with torch.no_grad():
        attention.out_proj.weight.copy_(torch.eye(C))
    x = _tokens(Q)
    attndrop.apply(attention, Spy())
    output, weights = attention(x, x, x, average_attn_weights=False)
    values = (x @ attention.in_proj_weight[2 * C :].T).unflatten(-1, (H, -1)).transpose(1, 2)
    torch.testing.assert_close(
        output, (weights @ values).transpose(1, 2).flatten(2), atol=1e-6, rtol=1e-5
    )
    assert (weights == 0).any()


@pytest.mark.parametrize("need_weights", [True, False])
def test_causal_hint(need_weights: bool) -> None:
    attention = _attention(batch_first=True)
    x = _tokens(Q)
    mask = nn.Transformer.generate_square_subsequent_mask(Q)
    options = {"attn_mask": mask, "is_causal": True, "need_weights": need_weights}
    expected, _ = attention(x, x, x, **options)
    spy = ByHand()
    attndrop.apply(attention, spy)
    torch.testing.assert_close(attention(x, x, x, **options)[0], expected, atol=1e-6, rtol=1e-5)
    assert spy.calls[0].causal
    assert spy.calls[0].allowed is None


def test_other_widths_of_keys_and_values() -> None:
    attention = _attention(batch_first=True, kdim=6, vdim=3)
    tokens = [_tokens(Q), _tokens(K, 6), _tokens(K, 3)]
    expected = attention(*tokens)
    places = Places()
    handle = attndrop.apply(attention, places)
    for ours, theirs in zip(attention(*tokens), expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)
    assert {"q", "k", "v", "proj"} <= set(places.seen())
    handle.remove()
    handle = attndrop.apply(attention, Places(double="k"))
    output, _ = attention(*tokens)
    handle.remove()
    with torch.no_grad():
        attention.k_proj_weight.mul_(2)
    torch.testing.assert_close(output, attention(*tokens)[0], atol=1e-6, rtol=1e-5)


def test_keys_from_elsewhere_make_it_a_cross_attention() -> None:
    attention = _attention(batch_first=True)
    spy = Spy()
    attndrop.apply(attention, spy)
    x, memory = _tokens(Q), _tokens(K)
    attention(x, x, x)
    attention(x, memory, memory)
    assert [call.site.kind for call in spy.calls] == ["encoder-self", "cross"]
    assert spy.calls[0].x is not None
    assert spy.calls[0].memory is None
    assert spy.calls[1].memory is not None


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_first", [False, True])
def test_the_fast_path_of_a_layer_alone(
    norm_first: bool, activation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = nn.TransformerEncoderLayer(
        C, H, 12, batch_first=True, norm_first=norm_first, activation=activation
    )
    liven(layer).eval()
    x = _tokens(K)
    calls = []
    genuine = torch._transformer_encoder_layer_fwd
    with torch.no_grad():
        expected = layer(x, src_key_padding_mask=PADDING)
        handle = attndrop.apply(layer, Spy())
        monkeypatch.setattr(
            torch, "_transformer_encoder_layer_fwd", lambda *a: calls.append(1) or genuine(*a)
        )
        assert torch.equal(layer(x, src_key_padding_mask=PADDING), expected)
    assert calls == [1]
    layer.train()
    layer(x)
    assert len(handle.runtime.method.steps) == 1
    handle.remove()
    assert type(layer) is nn.TransformerEncoderLayer


def test_decoder_and_cross_attention_of_torch() -> None:
    model = liven(Translator()).train()
    watch = Spy()
    handle = attndrop.apply(model, watch)
    kinds = {site.path: site.kind for site in handle.runtime.attention}
    assert kinds["body.decoder.layers.1.self_attn"] == "decoder-self"
    assert kinds["body.decoder.layers.1.multihead_attn"] == "cross"
    ids = torch.randint(0, 20, (2, K))
    model(ids, ids)
    causal = {call.site.kind: call.causal for call in watch.calls}
    assert causal == {"encoder-self": False, "decoder-self": True, "cross": False}


def test_taps_of_a_cross_attention_show_both_sides() -> None:
    model = liven(Translator()).train()
    watch = Watch("attention")
    handle = attndrop.apply(model, watch)
    handle.outputs((torch.randint(0, 20, (2, K)), torch.randint(0, 20, (2, Q))))
    (tap,) = [t for t in watch.kept[0].attention if t.call.site.path.endswith("1.multihead_attn")]
    assert (tap.x.shape, tap.call.memory.shape) == ((2, Q, C), (2, K, C))
    keys = (tap.call.memory @ tap.w_k.T).unflatten(-1, (H, -1)).transpose(1, 2)
    difference = keys - tap.call.k
    assert (difference - difference[:, :, :1]).abs().max() < 1e-5


def test_taps_do_not_pretend_when_keys_and_values_differ() -> None:
    attention = _attention(batch_first=True)
    handle = attndrop.apply(nn.Sequential(attention), Watch("attention"))
    attention(_tokens(Q), _tokens(K), _tokens(K, seed=1))
    assert handle.runtime.taps.attention[0].x is None
