"""Hard masking as a method: the definition, masks, biases, scope, rates, gradients."""

import pytest
import torch
from scipy.stats import binomtest
from support.attention import grads, make_call, output, ready, visible
from torch import Tensor

from attndrop_repro.config.errors import UsageError
from attndrop_repro.methods import AttentionCall, Step, build

NAME = "attentiondrop-hard"
PADDING = torch.tensor([[True] * 4 + [False] * 2, [True] * 6])[:, None, None, :]
CAUSAL = torch.ones(6, 6, dtype=torch.bool).tril()


def draws(call: AttentionCall, k: int, seed: int) -> Tensor:
    torch.manual_seed(seed)
    return torch.rand(*call.shape[:3], min(k, call.shape[3]))


def by_definition(
    call: AttentionCall, u: Tensor, p: float, k: int, mode: str, bias: str, skip: int = 0
) -> Tensor:
    """Row by row in plain Python: select, draw, mask, soft-max."""
    see = visible(call)
    logits = call.q @ call.k.transpose(-2, -1) * call.scale
    if call.bias is not None and bias == "with_logits":
        logits = logits + call.bias
    out = []
    for b in range(call.shape[0]):
        for h in range(call.shape[1]):
            for i in range(call.shape[2]):
                row = logits[b, h, i]
                keys = [j for j in range(call.shape[3]) if see[b, h, i, j]]
                if not keys:
                    out.append(torch.zeros_like(call.v[b, h, 0]))
                    continue
                order = sorted((j for j in keys if j >= skip), key=lambda j: -row[j].item())
                masked = {j for j, draw in zip(order[:k], u[b, h, i], strict=False) if draw < p}
                if i < skip:
                    masked = set()
                if mode == "drop" and len(masked) == len(keys):
                    masked.discard(order[0])
                new = [0 * row[j] if j in masked else row[j] for j in keys]
                if call.bias is not None and bias == "after":
                    full = call.bias.expand(call.shape)[b, h, i]
                    new = [value + full[j] for value, j in zip(new, keys, strict=True)]
                if mode == "drop":
                    new = [
                        value - torch.inf if j in masked else value
                        for value, j in zip(new, keys, strict=True)
                    ]
                out.append(torch.stack(new).softmax(0) @ call.v[b, h, keys])
    return torch.stack(out).view(*call.shape[:3], -1)


CASES = {
    "plain": {},
    "more keys": {"keys": 9},
    "one token": {"queries": 1},
    "one key": {"keys": 1},
    "padding": {"allowed": PADDING},
    "causal": {"causal": True},
    "causal padding": {"causal": True, "allowed": PADDING},
    "bias": {"bias": (1, 3, 6, 6)},
    "bias padding": {"bias": (2, 1, 1, 6), "allowed": PADDING},
    "nothing allowed": {"allowed": torch.tensor([[True] * 6, [False] * 6])[:, None, None, :]},
}


@pytest.mark.parametrize("fields", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("mode", ["zero", "drop"])
@pytest.mark.parametrize(("p", "k"), [(0.5, 3), (1.0, 4), (0.5, 100), (1.0, 100)])
def test_definition(fields: dict, mode: str, p: float, k: int) -> None:
    call = make_call(**fields)
    for bias in ("after", "with_logits"):
        method = ready(NAME, call, p=p, k=k, mode=mode, bias=bias)
        u = draws(call, k, seed=1)
        torch.manual_seed(1)
        got = output(method, call)
        expected = by_definition(call, u, p, k, mode, bias)
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-13)
        for a, b in zip(grads(got, call), grads(expected, call), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_prefix_tokens_are_left_alone() -> None:
    call = make_call(prefix_tokens=2)
    settings = {"skip_prefix_keys": True, "skip_prefix_queries": True}
    method = ready(NAME, call, p=1.0, k=3, mode="drop", **settings)
    got = output(method, call)
    u = draws(call, 3, seed=0)
    expected = by_definition(call, u, 1.0, 3, "drop", "after", skip=2)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-13)


def test_p_0_is_idle_and_elsewhere_the_plain_attention() -> None:
    call = make_call(dtype=torch.float32, bias=(1, 3, 6, 6), causal=True)
    for settings in ({"p": 0}, {"kinds": ["cross"]}, {"p": [0.0]}):
        method = build(NAME, settings)
        method.begin_step(Step())
        assert torch.equal(output(method, call), call.run())
    assert build(NAME, {"p": 0}).idle
    assert build(NAME, {"p": [0.0, 0.0]}).idle


def test_causal_gradients_are_exactly_zero() -> None:
    for fields in ({"causal": True}, {"allowed": CAUSAL & PADDING}):
        call = make_call(dtype=torch.float32, **fields)
        y = output(ready(NAME, call, p=0.5, k=3), call)
        see = visible(call)
        for i in range(6):
            for x in (call.k, call.v):
                (grad,) = torch.autograd.grad(y[:, :, i].sum(), x, retain_graph=True)
                assert not bool(grad[~see[:, :, i]].any())


@pytest.mark.parametrize("mode", ["zero", "drop"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_extremes_stay_finite(mode: str, dtype: torch.dtype) -> None:
    nothing = torch.tensor([[True] * 6, [False] * 6])[:, None, None, :]
    for allowed in (None, nothing, nothing & CAUSAL):
        call = make_call(dtype=dtype, allowed=allowed, bias=(2, 3, 6, 6))
        call = call.replace(q=call.q * 200, k=call.k * 20)
        y = output(ready(NAME, call, p=1.0, k=9, mode=mode), call)
        assert bool(y.isfinite().all())
        y.float().sum().backward()


def test_rate_and_probability_by_layer_and_head() -> None:
    call = make_call(batch=40, heads=2, queries=10, layers=2, layer=1)
    ones = call.replace(q=torch.zeros_like(call.q), bias=torch.full((1, 10), 1.0).double())
    # logits are all 1, so a masked one is 0: read the mask off the weights
    ones = ones.replace(v=torch.eye(10).double().expand(40, 2, 10, 10))
    settings = {"k": 4, "bias": "with_logits"}
    method = ready(NAME, ones, p=[[0.5, 0.5], [0.0, 0.3]], **settings)
    weights = output(method, ones)
    masked = (weights < weights.amax(-1, keepdim=True) - 1e-9).sum(-1)
    assert not bool(masked[:, 0].any())
    assert binomtest(int(masked[:, 1].sum()), 40 * 10 * 4, 0.3).pvalue > 1e-6
    assert int(masked.max()) <= 4


def test_dropout_of_the_call_is_honoured() -> None:
    call = make_call(batch=8, queries=20, dropout_p=0.5)
    ones = call.replace(v=torch.ones_like(call.v))
    method = ready(NAME, call, p=0.5)
    sums = output(method, ones)[..., 0]
    assert sums.std() > 0.05
    assert abs(sums.mean().item() - 1) < 0.05
    doubled = ones.then_on_weights(lambda weights: 2 * weights).replace(dropout_p=0.0)
    torch.testing.assert_close(output(method, doubled), 2 * torch.ones_like(call.v))


def test_learnable_p_gets_a_gradient_and_steps() -> None:
    call = make_call()
    for mode in ("zero", "drop"):
        method = ready(NAME, call, p={"learnable": True, "init": 0.5, "lr": 0.1}, mode=mode)
        learner = method.learner()
        output(method, call).square().sum().backward()
        (free,) = learner.modules().parameters()
        assert free.grad is not None
        assert free.grad.abs() > 0
        before = learner.state_dict()
        assert learner.update(None, None, None, None)["p"] != 0.5
        assert free.grad is None
        learner.load_state_dict(before)
        assert free.item() == 0.0


def test_vmap_and_compile() -> None:
    call = make_call(allowed=PADDING[:1])
    method = ready(NAME, call, p=0.5, k=3, mode="drop")
    torch.manual_seed(0)
    eager = output(method, call)
    compiled = torch.compile(lambda q: output(method, call.replace(q=q)), backend="aot_eager",
                             fullgraph=True)  # fmt: skip
    torch.manual_seed(0)
    torch.testing.assert_close(compiled(call.q), eager, rtol=0, atol=1e-14)

    def alone(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return output(method, call.replace(q=q[None], k=k[None], v=v[None])).square().sum()

    grad = torch.func.grad(alone, argnums=(0, 1, 2))
    found = torch.func.vmap(grad, randomness="different")(call.q, call.k, call.v)
    assert all(bool(g.isfinite().all()) for g in found)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"k": 0}, "= 0: expected a whole number, at least 1"),
        ({"p": 1.1}, "outside [0, 1]"),
        ({"mode": "mask"}, "'zero' or 'drop'"),
        ({"kinds": []}, "kinds"),
        ({"kinds": ["encoder"]}, "encoder-self"),
    ],
)
def test_bad_settings_are_named(settings: dict, words: str) -> None:
    with pytest.raises(UsageError) as error:
        build(NAME, settings)
    assert words in str(error.value)
