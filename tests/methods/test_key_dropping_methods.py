"""DropKey and DropAttention as methods: definition, rows, masks, rates, learning."""

import pytest
import torch
from scipy.stats import binomtest
from support.attention import grads, make_call, output, ready, visible
from torch import Tensor

from attndrop_repro.functional.key_dropping import dropattention
from attndrop_repro.functional.masked_softmax import masked_softmax
from attndrop_repro.methods import AttentionCall, Step, build

NAMES = ["dropkey", "dropattention"]
PADDING = torch.tensor([[True] * 4 + [False] * 2, [True] * 6])[:, None, None, :]
CAUSAL = torch.ones(6, 6, dtype=torch.bool).tril()
FORMS = [
    ("dropkey", {}),
    ("dropattention", {}),
    ("dropattention", {"w": 3}),
    ("dropattention", {"w": 20}),
    ("dropattention", {"unit": "column"}),
    ("dropattention", {"unit": "column", "w": 2}),
]


def dropped(method: object, call: AttentionCall) -> Tensor:
    """Which visible keys the method took away, (B, H, Q, K)."""
    return visible(call) & ~visible(method.rewrite(call))


@pytest.mark.parametrize(("name", "settings"), FORMS)
@pytest.mark.parametrize(
    "fields",
    [{}, {"allowed": PADDING}, {"causal": True}, {"bias": (1, 3, 6, 6)}, {"queries": 1},
     {"keys": 1}, {"allowed": CAUSAL & PADDING}],
)  # fmt: skip
@pytest.mark.parametrize("p", [0.4, 1.0])
def test_equals_dropping_after_the_softmax(
    name: str, settings: dict, fields: dict, p: float
) -> None:
    call = make_call(**fields)
    method = ready(name, call, p=p, **settings)
    changed = method.rewrite(call)
    keep = visible(changed)
    assert bool((keep <= visible(call)).all())  # nothing forbidden comes back
    assert bool(keep.any(-1).all())  # no row is empty
    logits = call.q @ call.k.transpose(-2, -1) * call.scale
    logits = logits if call.bias is None else logits + call.bias
    expected = dropattention(masked_softmax(logits, visible(call)), keep) @ call.v
    got = changed.run()
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-13)
    for a, b in zip(grads(got, call), grads(expected, call), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("name", "settings"), FORMS)
def test_rate(name: str, settings: dict) -> None:
    call = make_call(batch=60, heads=2, queries=8, keys=40)
    gone = dropped(ready(name, call, p=0.2, **settings), call)
    if settings.get("unit") == "column":
        assert torch.equal(gone, gone[:, :, :1].expand_as(gone))
        gone = gone[:, :, :1]
    # every w-th key, so that one window makes no two of them
    sample = gone[..., :: settings.get("w", 1)]
    assert binomtest(int(sample.sum()), sample.numel(), 0.2).pvalue > 1e-6


def test_p_1_leaves_one_key() -> None:
    call = make_call(allowed=PADDING)
    for name, settings in FORMS:
        keep = visible(ready(name, call, p=1.0, **settings).rewrite(call))
        # windows decide about runs of keys, so a run may be what is saved
        at_most = settings.get("w", 1)
        assert bool(((keep.sum(-1) >= 1) & (keep.sum(-1) <= at_most)).all())


def test_windows_are_runs() -> None:
    call = make_call(batch=20, keys=30)
    gone = dropped(ready("dropattention", call, p=0.1, w=4), call)
    inner = torch.nn.functional.pad(gone.to(torch.int8), (1, 1)).diff(dim=-1)
    starts, ends = (inner == 1).nonzero(), (inner == -1).nonzero()
    length = ends[:, -1] - starts[:, -1]
    whole = (starts[:, -1] > 0) & (ends[:, -1] < 30)
    assert bool((length[whole] >= 4).all())


@pytest.mark.parametrize("name", NAMES)
def test_p_0_is_the_call_itself(name: str) -> None:
    call = make_call(layers=2)
    for settings in ({"p": 0}, {"kinds": ["cross"]}, {"layers": [1]}, {"p": [0, 0.5]}):
        method = build(name, settings)
        method.begin_step(Step())
        assert method.rewrite(call) is call
    assert build(name, {"p": 0}).idle
    assert not build(name, {"p": [0, 0.5]}).idle


@pytest.mark.parametrize("name", NAMES)
def test_prefix_tokens_are_left_alone(name: str) -> None:
    call = make_call(prefix_tokens=2)
    settings = {"skip_prefix_keys": True, "skip_prefix_queries": True}
    gone = dropped(ready(name, call, p=1.0, **settings), call)
    assert not bool(gone[..., :2].any())
    assert not bool(gone[..., :2, :].any())
    assert bool(gone[..., 2:, 2:].all())


def test_columns_with_prefix_rows_left_alone() -> None:
    call = make_call(prefix_tokens=1)
    settings = {"skip_prefix_queries": True, "unit": "column"}
    gone = dropped(ready("dropattention", call, p=0.5, **settings), call)
    assert not bool(gone[..., :1, :].any())
    assert torch.equal(gone[..., 1:, :], gone[..., 1:2, :].expand(-1, -1, 5, -1))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_padding_queries_stay_finite(name: str, dtype: torch.dtype) -> None:
    nothing = torch.tensor([[True] * 6, [False] * 6])[:, None, None, :]
    for allowed in (nothing, nothing & CAUSAL):
        for p in (1.0, {"learnable": True, "init": 0.9}):
            call = make_call(dtype=dtype, allowed=allowed)
            y = output(ready(name, call, p=p), call)
            assert bool(y.isfinite().all())
            assert not bool(y[1].any())
            assert all(bool(grad.isfinite().all()) for grad in grads(y, call))


@pytest.mark.parametrize(("name", "settings"), FORMS)
def test_learnable_p(name: str, settings: dict) -> None:
    call = make_call(allowed=PADDING, bias=(1, 3, 6, 6))
    method = ready(name, call, p={"learnable": True, "init": 0.5}, **settings)
    y = output(method, call)
    assert bool(y.isfinite().all())
    y.square().sum().backward()
    (free,) = method.learner().modules().parameters()
    assert free.grad.abs() > 0
    # at p near 0 the relaxed mask leaves the attention as it is
    calm = ready(name, call, p={"learnable": True, "init": 1e-5}, **settings)
    torch.testing.assert_close(output(calm, call), call.run(), rtol=0, atol=0.05)


@pytest.mark.parametrize(("name", "settings"), FORMS)
def test_vmap_and_per_sample_draws(name: str, settings: dict) -> None:
    call = make_call(batch=1, keys=30)
    method = ready(name, call, p=0.5, **settings)

    def alone(q: Tensor) -> Tensor:
        return output(method, call.replace(q=q)).square().sum()

    same = call.q.detach().expand(4, *call.q.shape)
    found = torch.func.vmap(torch.func.grad(alone), randomness="different")(same)
    assert bool(found.isfinite().all())
    assert not torch.equal(found[0], found[1])


def test_two_calls_differ() -> None:
    call = make_call()
    for name, settings in FORMS:
        method = ready(name, call, p=0.5, **settings)
        assert not torch.equal(output(method, call), output(method, call))
