"""Off, in eval mode, and gone: the model is the plain one, bit for bit, and its checkpoints too."""

import copy
import pickle

import pytest
import torch
from support.contract import (
    all_variants,
    cases,
    criterion,
    fresh,
    goes,
    put,
    some_cases,
    targets,
    varies,
)
from support.models import run
from support.toys import states
from torch.nn import functional as F

import attndrop_repro as attndrop


@cases()
def test_eval_is_plain_and_training_is_not(model: str, method: str) -> None:
    net, x = fresh(model)
    if not goes(model, method):
        return
    trained = run(net, x)
    keys = list(net.state_dict())
    plain = {name: value.clone() for name, value in net.state_dict().items()}
    before = states(net)
    net.eval()
    evaluated = run(net, x)
    handle = put(net, model, method)
    assert torch.equal(run(net, x), evaluated)
    assert list(net.state_dict()) == keys
    assert list(dict(net.named_parameters())) == list(dict(fresh(model)[0].named_parameters()))

    for _ in range(2):  # train -> eval -> train
        net.train()
        torch.manual_seed(0)
        assert varies(handle, x) is handle.method.stochastic
        net.eval()
        assert torch.equal(run(net, x), evaluated)

    other, _ = fresh(model)
    other.load_state_dict({k: v + 1 for k, v in plain.items()})
    other.load_state_dict(net.state_dict())
    assert torch.equal(run(other.eval(), x), evaluated)
    net.load_state_dict(plain)
    assert torch.equal(run(net, x), evaluated)

    handle.remove()
    net.train()
    assert torch.equal(run(net, x), trained)
    after = states(net)
    for path, (cls, attributes) in before.items():
        assert after[path][0] is cls
        assert after[path][1].keys() == attributes.keys()
        for name, value in attributes.items():
            if name not in {"training", "_output_capturing_hooks_installed"}:
                assert after[path][1][name] is value or after[path][1][name] == value


@cases()
def test_every_strength_at_zero_is_plain_in_training_too(model: str, method: str) -> None:
    net, x = fresh(model)
    plain = run(net, x)
    y = targets(net, x)
    handle = put(net, model, method, 0.0)
    state = torch.get_rng_state()
    assert handle.passes == 1
    assert torch.equal(run(net, x), plain)
    assert torch.equal(handle.loss(x, y, criterion), criterion(plain, y))
    assert torch.equal(torch.get_rng_state(), state), "an idle method draws"


@pytest.mark.parametrize("model", ["vit", "bert", "torch-transformer", "swin", "llama"])
@pytest.mark.parametrize(("method", "variant"), all_variants(), ids=str)
def test_every_variant_is_plain_where_it_must_be(
    model: str, method: str, variant: dict[str, object]
) -> None:
    if not goes(model, method, variant):
        return
    net, x = fresh(model)
    plain, y = run(net, x), targets(net, x)
    handle = put(net, model, method, extra=variant)
    torch.manual_seed(0)
    assert torch.isfinite(handle.loss(x, y, criterion))
    assert varies(handle, x) is handle.method.stochastic
    net.eval()
    assert torch.equal(run(net, x), plain)
    handle.remove()
    net.train()
    put(net, model, method, 0.0, variant)
    assert torch.equal(run(net, x), plain)


@some_cases("vit", "bert")
def test_copies_use_their_own_weights(model: str, method: str) -> None:
    net, x = fresh(model)
    if not goes(model, method):
        return
    handle = put(net, model, method)
    handle.loss(x, targets(net, x), criterion).backward()
    net.zero_grad()
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        torch.manual_seed(3)
        ours = run(net, x)
        torch.manual_seed(3)
        assert torch.equal(run(twin, x), ours)
        with torch.no_grad():
            for parameter in twin.parameters():
                parameter.mul_(1.5)
        torch.manual_seed(3)
        assert torch.equal(run(net, x), ours)
        torch.manual_seed(3)
        assert not torch.allclose(run(twin, x), ours)


@some_cases("vit", "swin", "torch-encoder")
def test_losses_and_gradients_are_finite_in_every_precision(model: str, method: str) -> None:
    net, x = fresh(model)
    if not goes(model, method):
        return
    y = targets(net, x)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        torch.manual_seed(1)
        net = fresh(model)[0].to(dtype)
        batch = x.to(dtype) if isinstance(x, torch.Tensor) else x
        loss = put(net, model, method).loss(batch, y, lambda o, t: criterion(o.float(), t))
        loss.backward()
        assert torch.isfinite(loss), dtype
        gradients = [p.grad for p in net.parameters() if p.grad is not None]
        assert gradients
        assert all(torch.isfinite(gradient).all() for gradient in gradients), dtype


@some_cases("vit")
def test_autocast_is_finite(model: str, method: str) -> None:
    net, x = fresh(model)
    if not goes(model, method):
        return
    y = targets(net, x)
    handle = put(net, model, method)
    with torch.autocast("cpu", torch.bfloat16):
        loss = handle.loss(x, y, lambda o, t: criterion(o.float(), t))
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(p.grad).all() for p in net.parameters() if p.grad is not None)


@cases(("vit", "swin", "bert", "t5", "llama", "torch-transformer"))
def test_the_strongest_of_all_stays_finite(model: str, method: str) -> None:
    net, x = fresh(model)
    if not goes(model, method):
        return
    y = targets(net, x)
    handle = put(net, model, method, 1.0)
    loss = handle.loss(x, y, criterion)
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(p.grad).all() for p in net.parameters() if p.grad is not None)


def test_none_goes_into_anything() -> None:
    net = torch.nn.Linear(3, 2)
    x, y = torch.randn(4, 3), torch.tensor([0, 1, 1, 0])
    handle = attndrop.apply(net, "none")
    assert torch.equal(handle.loss(x, y, F.cross_entropy), F.cross_entropy(net(x), y))
