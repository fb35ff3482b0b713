"""Every attention of every kind of model goes through the method; nothing else changes (P06)."""

import copy
import pickle

import pytest
import torch
from support.models import ALL, BY_NAME, Tiny, build, run
from support.toys import ByHand, Shake, Spy, states
from torch import nn

import attndrop_repro as attndrop
from attndrop_repro.config.errors import AttndropError

EVERY = pytest.mark.parametrize("tiny", ALL, ids=str)


@EVERY
def test_spy_sees_sites_times_passes(tiny: Tiny) -> None:
    model, x = build(tiny.name)
    spy = Spy()
    handle = attndrop.apply(model, spy)
    assert len(handle.runtime.attention) == tiny.attentions
    for _ in range(2):
        run(model, x)
    assert len(spy.steps) == 2
    assert len(spy.calls) == 2 * tiny.attentions
    kinds = [call.site.kind for call in spy.calls[: tiny.attentions]]
    assert {kind: kinds.count(kind) for kind in kinds} == tiny.sites
    layers = [call.site.layer for call in spy.calls[: tiny.attentions]]
    assert layers == list(range(tiny.attentions))
    model.eval()
    run(model, x)
    assert len(spy.calls) == 2 * tiny.attentions
    assert len(spy.steps) == 2


@EVERY
def test_calls_hold_everything_that_attention_depends_on(tiny: Tiny) -> None:
    model, x = build(tiny.name)
    plain = run(model, x)
    attndrop.apply(model, ByHand())
    torch.testing.assert_close(run(model, x), plain, atol=1e-5, rtol=1e-4)


@EVERY
def test_training_differs_and_eval_is_bit_equal(tiny: Tiny) -> None:
    model, x = build(tiny.name)
    plain = run(model, x)
    model.eval()
    evaluated = run(model, x)
    with torch.no_grad():
        fast = run(model, x)
    keys = list(model.state_dict())
    attndrop.apply(model, Shake())
    assert torch.equal(run(model, x), evaluated)
    with torch.no_grad():
        assert torch.equal(run(model, x), fast)
    assert list(model.state_dict()) == keys
    for _ in range(2):  # train -> eval -> train
        model.train()
        once, again = run(model, x), run(model, x)
        assert not torch.allclose(once, plain, atol=1e-5)
        assert not torch.allclose(once, again, atol=1e-5)
        model.eval()
        assert torch.equal(run(model, x), evaluated)


@EVERY
def test_remove_gives_the_model_back(tiny: Tiny) -> None:
    model, x = build(tiny.name)
    plain = run(model, x)
    before = states(model)
    handle = attndrop.apply(model, Shake())
    run(model, x)
    handle.remove()
    after = states(model)
    assert before.keys() == after.keys()
    for path in before:
        assert before[path][0] is after[path][0]
        assert before[path][1].keys() == after[path][1].keys()
        for name, value in before[path][1].items():
            now = after[path][1][name]
            assert now is value or now == value
    assert torch.equal(run(model, x), plain)
    handle.remove()
    attndrop.apply(model, Spy()).remove()


@EVERY
def test_copies_use_their_own_weights(tiny: Tiny) -> None:
    model, x = build(tiny.name)
    attndrop.apply(model, Shake())
    run(model, x)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.manual_seed(3)
        ours = run(model, x)
        torch.manual_seed(3)
        assert torch.equal(run(twin, x), ours)
        with torch.no_grad():
            for parameter in twin.parameters():
                parameter.mul_(1.5)
        torch.manual_seed(3)
        assert torch.equal(run(model, x), ours)
        torch.manual_seed(3)
        assert not torch.allclose(run(twin, x), ours)
        assert list(twin.state_dict()) == list(model.state_dict())


def test_copies_have_their_own_runtime() -> None:
    model, x = build("vit")
    spy = Spy()
    attndrop.apply(model, spy)
    twin = copy.deepcopy(model)
    run(twin, x)
    assert spy.calls == []


def test_unfused_and_fused_agree() -> None:
    results = []
    for name in ("vit", "vit-unfused"):
        model, x = build(name)
        attndrop.apply(model, Shake())
        torch.manual_seed(1)
        results.append(run(model, x))
        assert [block.attn.fused_attn for block in model.blocks] == [name == "vit"] * 2
    torch.testing.assert_close(*results, atol=1e-6, rtol=1e-5)


def test_twice_is_an_error_wherever_the_first_one_sits() -> None:
    model, _ = build("vit")
    handle = attndrop.apply(model.blocks[0], Spy())
    for part in (model, model.blocks[0], model.blocks[0].attn):
        with pytest.raises(AttndropError, match="already has a method: call remove"):
            attndrop.apply(part, Spy())
    handle.remove()
    assert attndrop.apply(model, Spy()).runtime.attention


def test_a_frozen_part_in_eval_mode_stays_plain() -> None:
    model, x = build("vit")
    spy = Spy()
    attndrop.apply(model, spy)
    model.blocks[0].eval()
    run(model, x)
    assert [call.site.layer for call in spy.calls] == [1]


class Wrapped(nn.Module):
    """A network inside another module, as recipes have it."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x * 2 - 1)


@pytest.mark.parametrize(
    ("name", "prefix"),
    [("vit", 1), ("deit-distilled", 2), ("beit", 1), ("eva", 1), ("swin", 0),
     ("torchvision-vit", 1), ("hf-vit", 1), ("bert", 0), ("torch-encoder", 0)],
)  # fmt: skip
def test_prefix_tokens_are_found_around_the_attention(name: str, prefix: int) -> None:
    model, _ = build(name)
    handle = attndrop.apply(Wrapped(model), Spy())
    assert [site.prefix_tokens for site in handle.runtime.attention] == [prefix] * 2
    assert {site.heads for site in handle.runtime.attention} == {2}


@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_part_called_by_itself_is_a_pass(checkpointing: bool) -> None:
    model, x = build("vit")
    model.set_grad_checkpointing(checkpointing)
    shake = Shake(0.0)
    attndrop.apply(model, shake)
    outputs = []
    for _ in range(2):
        features = model.forward_features(x)
        factor = shake.factor
        features.sum().backward()
        assert shake.factor is factor  # activations computed again find the same draws
        outputs.append(features)
    assert not torch.allclose(*outputs)
    model.eval()
    assert torch.equal(model.forward_features(x), model.forward_features(x))


def test_a_failed_forward_leaves_no_pass_open() -> None:
    model, x = build("vit")
    handle = attndrop.apply(model, Shake())
    with pytest.raises(AssertionError):
        model(x[..., :5])
    assert not handle.runtime.inside
    assert not torch.allclose(model.forward_features(x), model.forward_features(x))


def test_a_training_part_of_a_model_in_eval_mode_stays_plain() -> None:
    model, x = build("vit")
    plain = run(model.eval(), x)
    attndrop.apply(model, Shake())
    model.blocks.train()
    assert torch.equal(run(model, x), plain)


def test_two_models_with_two_methods_at_once() -> None:
    first, x = build("vit")
    second, words = build("bert")
    one, two = Spy(), Spy()
    attndrop.apply(first, one)
    attndrop.apply(second, two)
    run(first, x)
    assert (len(one.calls), len(two.calls)) == (BY_NAME["vit"].attentions, 0)
    run(second, words)
    assert (len(one.calls), len(two.calls)) == (2, 2)


def test_a_handle_says_what_it_is() -> None:
    model = BY_NAME["vit"].make()
    handle = attndrop.apply(model, "dropkey+dropout")
    places = len(handle.sites)
    assert repr(handle) == f"<dropkey+dropout at work in {type(model).__name__}: {places} places>"
