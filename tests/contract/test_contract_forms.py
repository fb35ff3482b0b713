"""The same method in another form: unfused, compiled, with per-sample gradients."""

import pytest
import torch
from support.contract import criterion, fresh, goes, in_turn, methods, put, some_cases, targets
from support.models import images, liven, run, vit
from torch import nn
from torch._inductor import config as inductor
from torch.func import functional_call, grad, vmap


@pytest.mark.parametrize("method", methods())
def test_fused_and_unfused_agree(method: str) -> None:
    results = []
    for model in ("vit", "vit-unfused"):
        net, x = fresh(model)
        handle = put(net, model, method)
        torch.manual_seed(4)
        results.append(handle.loss(x, targets(net, x), criterion))
    torch.testing.assert_close(*results, atol=1e-5, rtol=1e-5)


# each compilation takes a second or two, that of an encoder-decoder three times as long
COMPILED = ("vit", "swin", "beit", "torch-encoder", "bert", "llama")


@in_turn(*COMPILED)
def test_compiled_agrees_with_equal_draws(model: str, method: str) -> None:
    """aot_eager keeps the draws of eager code and all of the graph's rules; no graph break."""
    net, x = fresh(model)
    if not goes(model, method):
        return
    put(net, model, method)
    torch.manual_seed(6)
    eager = run(net, x)
    torch._dynamo.reset()
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    torch.manual_seed(6)
    torch.testing.assert_close(run(compiled, x), eager, atol=1e-5, rtol=1e-4)
    gradients = []
    for forward in (net, compiled):
        net.zero_grad()
        torch.manual_seed(7)
        run(forward, x).square().sum().backward()
        gradients.append([p.grad.clone() for p in net.parameters() if p.grad is not None])
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_an_encoder_decoder_compiles() -> None:
    test_compiled_agrees_with_equal_draws("t5", "attentiondrop-blur+dropkey")


def test_inductor_agrees_with_equal_draws() -> None:
    """Once, and the forward alone: it compiles C++, which takes long on a CPU."""
    net = liven(vit(depth=1)).train()
    handle = put(net, "vit", "attentiondrop-blur+dropkey+dropout")
    x = images(2)
    torch._dynamo.reset()
    compiled = torch.compile(net, fullgraph=True)
    with torch.no_grad(), inductor.patch(fallback_random=True):
        torch.manual_seed(8)
        eager = handle.outputs(x)
        torch.manual_seed(8)
        ours = handle.outputs(x, forward=compiled)
    torch.testing.assert_close(ours, eager, atol=1e-5, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@some_cases("vit")
def test_per_sample_gradients(model: str, method: str) -> None:
    net, x = fresh(model)
    if isinstance(x, dict):  # the library inspects the values of a mask
        x = {name: value for name, value in x.items() if name != "attention_mask"}
    if not goes(model, method):
        return
    y = targets(net, x)
    plain = _per_sample(net, None, x, y)
    handle = put(net, model, method)
    perturbed = _per_sample(net, handle, x, y)
    assert all(torch.isfinite(g).all() for g in perturbed.values())
    assert perturbed.keys() == plain.keys()
    assert any(not torch.allclose(perturbed[name], plain[name]) for name in plain)
    handle.remove()
    handle = put(net, model, method, 0.0)
    for name, gradient in _per_sample(net, handle, x, y).items():
        torch.testing.assert_close(gradient, plain[name], atol=1e-5, rtol=1e-4)


def _per_sample(net: nn.Module, handle, x, y):  # type: ignore[no-untyped-def]
    parameters = {name: p.detach() for name, p in net.named_parameters()}

    def loss(parameters, x, y):  # type: ignore[no-untyped-def]
        def forward(*args, **kwargs):  # type: ignore[no-untyped-def]
            return functional_call(net, parameters, args, kwargs)

        batch = {k: v[None] for k, v in x.items()} if isinstance(x, dict) else x[None]
        if handle is not None:
            return handle.loss(batch, y[None], criterion, forward=forward)
        output = forward(**batch) if isinstance(x, dict) else forward(batch)
        return criterion(getattr(output, "logits", output), y[None])

    return vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")(parameters, x, y)
