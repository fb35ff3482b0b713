"""Hugging Face models: their own attention interface, their own config, `generate`, masks."""

import pytest
import torch
import transformers
from support.models import WORDS, bert, build, liven, llama, marian, run, t5, words
from support.toys import ByHand, Places, Shake, Spy, Watch
from torch import Tensor, nn
from transformers import AttentionInterface

import attndrop_repro as attndrop


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("make", [bert, marian, t5, llama])
def test_the_config_is_never_touched(make, implementation: str) -> None:  # type: ignore[no-untyped-def]
    model = liven(make(implementation)).train()
    before = model.config.to_dict()
    spy = Spy()
    handle = attndrop.apply(model, spy)
    x = words(2)
    if model.config.is_encoder_decoder:
        x["decoder_input_ids"] = x["input_ids"]
    run(model, x)
    assert spy.calls
    assert model.config._attn_implementation == implementation
    assert model.config.to_dict() == before
    model.eval()
    module = model.get_submodule(spy.calls[0].site.path)
    assert module.config is module.__dict__["config"]
    handle.remove()
    assert module.config._attn_implementation == implementation


def test_models_that_share_a_config_have_methods_of_their_own() -> None:
    first = liven(bert()).train()
    second = liven(type(first)(first.config)).train()
    assert first.config is second.config
    x = words(2)
    plain = run(second, x)
    one, two = Spy(), ByHand()
    handle = attndrop.apply(first, one)
    run(second, x)
    assert one.calls == []
    attndrop.apply(second, two)
    handle.remove()
    torch.testing.assert_close(run(second, x), plain, atol=1e-6, rtol=1e-5)
    assert len(two.calls) == 2


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("make", [marian, t5, llama])
def test_generate(make, implementation: str) -> None:  # type: ignore[no-untyped-def]
    model = liven(make(implementation)).eval()
    x = words(2)
    x["input_ids"] = x["input_ids"].flip(1)
    x["attention_mask"] = x["attention_mask"].flip(1)  # decoders are padded on the left
    options = {"max_new_tokens": 4, "do_sample": False, "num_beams": 2, "pad_token_id": 0}
    expected = model.generate(**x, **options)
    attndrop.apply(model, Shake())
    assert torch.equal(model.generate(**x, **options), expected)
    model.train()
    sampled = model.generate(**x, **options)
    assert sampled.shape[0] == 2
    model.eval()
    assert torch.equal(model.generate(**x, **options), expected)


def test_attentions_of_the_eager_form_are_those_that_were_applied() -> None:
    model, x = build("bert-eager")
    plain = model(**x, output_attentions=True).attentions
    handle = attndrop.apply(model, Spy())
    for ours, theirs in zip(model(**x, output_attentions=True).attentions, plain, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)
    handle.remove()
    attndrop.apply(model, Shake())
    shaken = model(**x, output_attentions=True).attentions
    assert all((weights == 0).any() for weights in shaken)
    torch.testing.assert_close(shaken[0].sum(-1), torch.ones_like(shaken[0].sum(-1)))


@pytest.mark.parametrize("name", ["bert", "marian", "t5", "llama"])
def test_more_padding_changes_nothing(name: str) -> None:
    model, x = build(name)
    attndrop.apply(model, ByHand())
    logits = run(model, x)
    more = dict(x)
    more["input_ids"] = nn.functional.pad(x["input_ids"], (0, 3), value=5)
    more["attention_mask"] = nn.functional.pad(x["attention_mask"], (0, 3))
    padded = run(model, more)
    if name == "llama":
        padded = padded[:, : logits.shape[1]]
        real = x["attention_mask"].bool()
        padded, logits = padded[real], logits[real]
    torch.testing.assert_close(padded, logits, atol=2e-6, rtol=1e-5)


def test_additive_masks_and_biases_are_told_apart() -> None:
    model, x = build("t5-eager")
    spy = Spy()
    attndrop.apply(model, spy)
    run(model, x)
    for call in spy.calls:
        assert call.bias is not None
        assert call.bias.abs().max() < 100
        assert call.allowed is not None
        assert call.allowed.dtype == torch.bool
        assert call.scale == 1.0
    first = spy.calls[0]
    assert not first.allowed[-1, ..., -2:].any()
    assert first.allowed[0].all()


def test_grouped_heads_are_repeated_after_rotation() -> None:
    model, x = build("llama")
    spy = Spy()
    attndrop.apply(model, spy)
    run(model, x)
    call = spy.calls[0]
    assert call.q.shape == call.k.shape == call.v.shape == (3, 4, 6, 4)
    assert torch.equal(call.k[:, 0], call.k[:, 1])
    assert not torch.equal(call.k[:, 0], call.k[:, 2])
    assert call.site.heads == 4


def test_causal_flag_without_padding_and_mask_with_it() -> None:
    model, x = build("llama")
    spy = Spy()
    attndrop.apply(model, spy)
    run(model, {"input_ids": x["input_ids"]})
    assert (spy.calls[0].causal, spy.calls[0].allowed) == (True, None)
    run(model, x)
    assert spy.calls[2].causal is False
    assert spy.calls[2].visible().shape == (3, 1, 6, 6)


def test_gradient_checkpointing() -> None:
    gradients = []
    for checkpointing in (False, True):
        model, x = build("bert")
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        attndrop.apply(model, Shake())
        torch.manual_seed(5)
        run(model, x).sum().backward()
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    for plain, checkpointed in zip(*gradients, strict=True):
        torch.testing.assert_close(checkpointed, plain)


def test_labels_and_losses_of_the_library_still_work() -> None:
    model, x = build("bert")
    attndrop.apply(model, Shake())
    output = model(**x, labels=torch.tensor([0, 1, 2]))
    assert torch.isfinite(output.loss)


def test_handle_takes_mappings_and_reads_logits() -> None:
    model, x = build("llama")
    handle = attndrop.apply(model, Shake())
    targets = x["input_ids"].roll(-1, 1)

    def criterion(logits: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())

    assert 0 < handle.loss(x, targets, criterion).item() < 2 * WORDS


def test_registered_once_with_the_library() -> None:
    build_name = "attndrop"
    model, _ = build("bert")
    attndrop.apply(model, Spy()).remove()
    assert build_name in AttentionInterface().valid_keys()
    assert "attndrop" not in str(model.config.to_dict())


def test_a_model_saved_while_a_method_is_in_it_loads_as_a_plain_one(tmp_path) -> None:  # type: ignore[no-untyped-def]
    model, x = build("bert")
    attndrop.apply(model, Shake())
    model.save_pretrained(tmp_path)
    loaded = transformers.BertForSequenceClassification.from_pretrained(tmp_path)
    model.eval()
    assert torch.equal(run(loaded.eval(), x), run(model, x))
    assert type(loaded.bert.encoder.layer[0].attention.self) is not type(
        model.bert.encoder.layer[0].attention.self
    )


def test_places_of_a_model_with_conv1d_layers() -> None:
    model, x = build("gpt2")
    places = Places()
    attndrop.apply(model, places)
    run(model, x)
    assert places.seen() == {
        "attention-input": 2, "proj-output": 2, "mlp-hidden": 2, "mlp-output": 2,
        "residual": 4,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["marian", "t5"])
def test_taps_of_a_cross_attention_show_both_sides(name: str) -> None:
    model, x = build(name)
    watch = Watch("attention")
    handle = attndrop.apply(model, watch)
    handle.outputs(x)
    taps = [tap for tap in watch.kept[0].attention if tap.call.site.kind == "cross"]
    assert len(taps) == 2
    for tap in taps:
        assert (tap.x.shape[:2], tap.call.memory.shape[:2]) == ((3, 5), (3, 6))
        keys = (tap.call.memory @ tap.w_k.T).unflatten(-1, (2, -1)).transpose(1, 2)
        difference = keys - tap.call.k
        assert (difference - difference[:, :, :1]).abs().max() < 1e-5
