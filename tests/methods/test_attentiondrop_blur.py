"""The blur of keys against the blur of logits, entry by entry, for every case there is."""

import copy
import pickle

import pytest
import torch
from support.attention import blurred_logits, grads, make_call, output, ready, visible
from torch import Tensor

from attndrop_repro.config.errors import UsageError
from attndrop_repro.functional.blur import gaussian_kernel
from attndrop_repro.methods import Step, build, canonical

NAME = "attentiondrop-blur"
PADDING = torch.tensor([[True] * 4 + [False] * 2, [True] * 6])[:, None, None, :]
SEGMENTS = torch.tensor([0, 0, 0, 1, 1, 2])
PACKED = SEGMENTS[:, None] == SEGMENTS
CAUSAL = torch.ones(6, 6, dtype=torch.bool).tril()
COLUMNS = {"axes": "rows_and_columns"}
WITH = {"bias": "with_logits"}
DECODER = {"kinds": ["decoder-self"]}

# what the call is, settings of the method
CASES = {
    "plain": ({}, {}),
    "wide kernel": ({}, {"w": 31}),
    "one token": ({"queries": 1}, {}),
    "one key": ({"keys": 1}, {}),
    "more keys than queries": ({"keys": 9}, {}),
    "renormalised": ({}, {"edges": "renormalised"}),
    "columns": ({}, COLUMNS),
    "columns renormalised": ({}, {**COLUMNS, "edges": "renormalised"}),
    "padding": ({"allowed": PADDING}, {}),
    "padding renormalised": ({"allowed": PADDING}, {"edges": "renormalised"}),
    "padding columns": ({"allowed": PADDING}, COLUMNS),
    "padding columns renormalised": (
        {"allowed": PADDING},
        {**COLUMNS, "edges": "renormalised"},
    ),
    "padding over all rows": ({"allowed": PADDING.expand(2, 1, 6, 6)}, COLUMNS),
    "bias after": ({"bias": (1, 3, 6, 6)}, {}),
    "bias with logits": ({"bias": (1, 3, 6, 6)}, WITH),
    "bias of keys with logits": ({"bias": (2, 1, 1, 6)}, WITH),
    "bias with logits columns": ({"bias": (1, 3, 6, 6)}, {**WITH, **COLUMNS}),
    "bias of keys with logits columns": ({"bias": (3, 1, 6)}, {**WITH, **COLUMNS}),
    "bias with logits padding": (
        {"bias": (2, 3, 6, 6), "allowed": PADDING},
        {**WITH, "edges": "renormalised"},
    ),
    "packed": ({"allowed": PACKED}, {}),
    "packed renormalised": ({"allowed": PACKED}, {"edges": "renormalised"}),
    "packed columns": ({"allowed": PACKED}, COLUMNS),
    "causal": ({"causal": True, "kind": "decoder-self"}, DECODER),
    "causal wide": ({"causal": True, "kind": "decoder-self"}, {**DECODER, "w": 15}),
    "causal renormalised": (
        {"causal": True, "kind": "decoder-self"},
        {**DECODER, "edges": "renormalised"},
    ),
    "causal padding": (
        {"causal": True, "allowed": PADDING, "kind": "decoder-self"},
        DECODER,
    ),
    "causal bias with logits": (
        {"causal": True, "bias": (1, 3, 6, 6), "kind": "decoder-self"},
        {**DECODER, **WITH},
    ),
    "causal bias of keys": (
        {"causal": True, "bias": (2, 1, 1, 6), "kind": "decoder-self"},
        DECODER,
    ),
    "causal as a mask": ({"allowed": CAUSAL & PADDING, "kind": "decoder-self"}, DECODER),
    "causal packed": ({"allowed": CAUSAL & PACKED, "kind": "decoder-self"}, DECODER),
    "causal past only": (
        {"causal": True, "kind": "decoder-self"},
        {**DECODER, "causal": "past_only"},
    ),
    "causal past only renormalised": (
        {"causal": True, "kind": "decoder-self"},
        {**DECODER, "causal": "past_only", "edges": "renormalised"},
    ),
    "prefix keys": ({"prefix_tokens": 2}, {"skip_prefix_keys": True}),
    "prefix queries": ({"prefix_tokens": 2}, {"skip_prefix_queries": True}),
    "prefix": (
        {"prefix_tokens": 1, "bias": (1, 3, 6, 6), "allowed": PADDING},
        {"skip_prefix_keys": True, "skip_prefix_queries": True, **WITH},
    ),
    "prefix columns": (
        {"prefix_tokens": 1},
        {"skip_prefix_keys": True, "skip_prefix_queries": True, **COLUMNS},
    ),
    "prefix renormalised": (
        {"prefix_tokens": 1},
        {"skip_prefix_keys": True, "edges": "renormalised"},
    ),
    "cross": ({"keys": 9, "kind": "cross"}, {"kinds": ["cross"]}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_blurred_keys_are_blurred_logits(case: tuple[dict, dict]) -> None:
    fields, settings = case
    settings = {"sigma_max": 2.0, **settings}
    call = make_call(**fields)
    method = ready(NAME, call, seed=3, **settings)
    torch.manual_seed(3)
    sigma = (torch.rand(()) * settings["sigma_max"]).double()
    expected = blurred_logits(
        call,
        gaussian_kernel(sigma, settings.get("w", 5)),
        columns=settings.get("axes") == "rows_and_columns",
        edges=settings.get("edges", "zero"),
        bias=settings.get("bias", "after"),
        skip_prefix_keys=settings.get("skip_prefix_keys", False),
        skip_prefix_queries=settings.get("skip_prefix_queries", False),
        past_only=settings.get("causal") == "past_only",
    )
    got = output(method, call)
    real = torch.ones_like(got, dtype=torch.bool)
    if settings.get("axes") == "rows_and_columns":  # padding queries have no meaning
        real = real & visible(call).any(-2)[..., : got.shape[-2], None]
    torch.testing.assert_close(got[real], expected[real], rtol=0, atol=2e-13)
    for a, b in zip(grads(got * real, call), grads(expected * real, call), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


LATER = {
    "flag": ({"causal": True, "kind": "decoder-self"}, DECODER),
    "flag renormalised": (
        {"causal": True, "kind": "decoder-self"},
        {**DECODER, "edges": "renormalised"},
    ),
    "past only": ({"causal": True, "kind": "decoder-self"}, {**DECODER, "causal": "past_only"}),
    "bias": (
        {"causal": True, "kind": "decoder-self", "bias": (1, 3, 6, 6)},
        {**DECODER, **WITH},
    ),
    "mask": ({"allowed": CAUSAL & PADDING, "kind": "decoder-self"}, DECODER),
    "mask in an encoder": ({"allowed": CAUSAL}, {}),
    "mask in an encoder, columns": ({"allowed": CAUSAL}, COLUMNS),
    "flag in an encoder, columns": ({"causal": True}, COLUMNS),
    "prefix seen by all": (
        {"allowed": CAUSAL | (torch.arange(6) < 2), "kind": "decoder-self"},
        DECODER,
    ),
    "window": ({"allowed": CAUSAL & ~CAUSAL.tril(-3), "kind": "decoder-self"}, DECODER),
}


@pytest.mark.parametrize("case", LATER.values(), ids=LATER.keys())
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_no_hidden_token_has_a_gradient(case: tuple[dict, dict], dtype: torch.dtype) -> None:
    fields, settings = case
    call = make_call(dtype=dtype, **fields)
    see = visible(call)
    y = output(ready(NAME, call, sigma_max=3.0, **settings), call)
    for i in range(6):
        for x in (call.k, call.v):
            (grad,) = torch.autograd.grad(y[:, :, i].sum(), x, retain_graph=True)
            assert not bool(grad[~see[:, :, i]].any())
        (grad,) = torch.autograd.grad(y[:, :, i].sum(), call.q, retain_graph=True)
        assert not bool(grad[:, :, i + 1 :].any()) or "prefix" in str(case)


@pytest.mark.parametrize("edges", ["zero", "renormalised"])
@pytest.mark.parametrize("axes", ["rows", "rows_and_columns"])
@pytest.mark.parametrize("extra", [1, 4])
def test_more_padding_changes_nothing(edges: str, axes: str, extra: int) -> None:
    call = make_call(queries=5, bias=(1, 3, 5, 5))
    pad = torch.nn.functional.pad
    garbage = {
        name: torch.cat([getattr(call, name), torch.randn(2, 3, extra, 4).double()], -2)
        for name in "qkv"
    }
    bias = pad(call.bias, (0, extra, 0, extra), value=7.0)
    padded = call.replace(**garbage, bias=bias, allowed=torch.arange(5 + extra) < 5)
    for settings in ({}, WITH):
        method = ready(NAME, call, sigma_max=2.0, edges=edges, axes=axes, **settings)
        wide, narrow = output(method, padded), output(method, call)
        torch.testing.assert_close(wide[:, :, :5], narrow, rtol=0, atol=1e-13)


@pytest.mark.parametrize("axes", ["rows", "rows_and_columns"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_an_example_that_is_all_padding_stays_finite(axes: str, dtype: torch.dtype) -> None:
    nothing = torch.tensor([[True] * 6, [False] * 6])[:, None, None, :]
    for allowed in (nothing, nothing & CAUSAL):
        call = make_call(dtype=dtype, allowed=allowed)
        y = output(ready(NAME, call, sigma_max=1.0, axes=axes), call)
        assert bool(y.isfinite().all())
        assert not bool(y[1].any())
        assert all(bool(grad.isfinite().all()) for grad in grads(y, call))


@pytest.mark.parametrize("sigma_max", [0.0, 1e-30])
def test_sigma_0_is_the_identity(sigma_max: float) -> None:
    call = make_call(dtype=torch.float32)
    method = ready(NAME, call, sigma_max=sigma_max)
    assert method.idle == (sigma_max == 0)
    assert (method.rewrite(call) is call) == (sigma_max == 0)
    assert torch.equal(output(method, call), call.run())


def test_w_1_is_idle() -> None:
    method = build(NAME, {"w": 1})
    assert method.idle


def test_other_kinds_and_layers_are_left_alone() -> None:
    for fields, settings in (
        ({"kind": "cross"}, {"kinds": ["encoder-self"]}),
        ({"layers": 2, "layer": 1}, {"layers": [0]}),
        ({"layers": 2, "layer": 1}, {"sigma_max": [0.5, 0.0]}),
    ):
        method = build(NAME, settings)
        call = make_call(**fields)
        method.begin_step(Step())
        assert method.rewrite(call) is call


def kernels(method: object, call: object) -> Tensor:
    """What a unit impulse at key 3 becomes: the kernel, by sample and head."""
    impulse = torch.zeros_like(call.k)
    impulse[:, :, 3] = 1.0
    return method.rewrite(call.replace(k=impulse)).k[..., 0]


def test_one_sigma_a_batch_shared_by_layers() -> None:
    calls = [make_call(layers=2, layer=layer) for layer in range(2)]
    method = ready(NAME, calls[0], sigma_max=2.0)
    first, second = (kernels(method, call) for call in calls)
    assert torch.equal(first, second)
    assert torch.equal(first, first[:1, :1].expand_as(first))
    method.begin_step(Step(attention=[calls[0].site], pass_index=1))
    assert not torch.equal(kernels(method, calls[0]), first)


def test_one_sigma_a_layer() -> None:
    calls = [make_call(layers=2, layer=layer) for layer in range(2)]
    method = ready(NAME, calls[0], sigma_max=2.0, sigma_per="layer")
    first, second = (kernels(method, call) for call in calls)
    assert not torch.equal(first, second)
    assert torch.equal(first, kernels(method, calls[0]))


def test_one_sigma_a_sample_shared_by_layers() -> None:
    calls = [make_call(layers=2, layer=layer) for layer in range(2)]
    method = ready(NAME, calls[0], sigma_max=2.0, sigma_per="sample")
    first, second = (kernels(method, call) for call in calls)
    assert torch.equal(first, second)
    assert not torch.equal(first[0], first[1])
    assert torch.equal(first[0, :1].expand_as(first[0]), first[0])
    method.begin_step(Step(pass_index=1))
    assert not torch.equal(kernels(method, calls[0]), first)


@pytest.mark.parametrize("per", ["batch", "sample"])
def test_sigma_by_head_and_sample_equals_the_definition(per: str) -> None:
    call = make_call(bias=(1, 3, 6, 6))
    sigma_max = [[0.0, 1.0, 3.0]]
    got = output(ready(NAME, call, seed=5, sigma_max=sigma_max, sigma_per=per, **WITH), call)
    torch.manual_seed(5)
    u = torch.rand(()) if per == "batch" else torch.rand(2, 1)
    kernel = gaussian_kernel((u * torch.tensor(sigma_max)).double(), 5).expand(2, 3, 5)
    expected = blurred_logits(call, kernel, **WITH)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-13)


def test_sigma_is_uniform() -> None:
    call = make_call()
    method = build(NAME, {"sigma_max": 2.0})
    torch.manual_seed(0)
    centre = []
    for _ in range(200):
        method.begin_step(Step())
        centre.append(kernels(method, call)[0, 0, 3].item())
    grid = gaussian_kernel((torch.arange(200, dtype=torch.float64) + 0.5) / 100, 5)[:, 2]
    gap = torch.tensor(centre, dtype=torch.float64).sort().values - grid.sort().values
    assert gap.abs().max() < 0.15  # Kolmogorov's band for n = 200 is 0.115 of probability


def test_learnable_sigma_has_the_gradient_of_the_blur() -> None:
    call = make_call()
    method = ready(NAME, call, seed=1, sigma_max={"learnable": True, "init": 1.5})
    assert not method.idle
    loss = output(method, call).square().sum()
    (free,) = method.learner().modules().parameters()
    (grad,) = torch.autograd.grad(loss, free)
    torch.manual_seed(1)
    u = torch.rand(())

    def value(sigma_max: float) -> float:
        kernel = gaussian_kernel((u * sigma_max).double(), 5)
        return blurred_logits(call, kernel).square().sum().item()

    # d/d log(sigma_max) by central differences
    slope = (value(1.5 * 1.001) - value(1.5 / 1.001)) / (2 * 0.0009995)
    assert grad.item() == pytest.approx(slope, rel=1e-3)


@pytest.mark.parametrize("per", ["batch", "layer", "sample"])
def test_copies_do_not_carry_draws(per: str) -> None:
    call = make_call()
    method = ready(NAME, call, sigma_per=per, sigma_max={"learnable": True, "init": 1.0})
    output(method, call)
    for other in (copy.deepcopy(method), pickle.loads(pickle.dumps(method))):
        torch.manual_seed(0)
        other.begin_step(Step(attention=[call.site]))
        method.begin_step(Step(attention=[call.site]))
        assert output(other, call).shape == call.q.shape


@pytest.mark.parametrize("case", ["plain", "columns", "causal", "packed", "prefix", "padding"])
def test_vmap_and_compile(case: str) -> None:
    fields, settings = CASES[case]
    call = make_call(**fields)
    settings = {"sigma_max": 1.0, **settings}
    method = ready(NAME, call, **settings)
    eager = output(method, call)
    compiled = torch.compile(lambda k: output(method, call.replace(k=k)), backend="aot_eager",
                             fullgraph=True)  # fmt: skip
    torch.testing.assert_close(compiled(call.k), eager, rtol=0, atol=1e-14)

    def alone(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        method.begin_step(Step(attention=[call.site]))
        inner = call.replace(q=q[None], k=k[None], v=v[None], bias=None, allowed=call.allowed)
        if call.allowed is not None and call.allowed.dim() == 4:
            inner = inner.replace(allowed=call.allowed[:1])
        return output(method, inner).square().sum()

    grad = torch.func.grad(alone, argnums=(0, 1, 2))
    found = torch.func.vmap(grad, randomness="different")(call.q, call.k, call.v)
    assert all(bool(g.isfinite().all()) for g in found)
    copy.deepcopy(method)  # no draw of the map has stayed behind


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"w": 4}, "odd"),
        ({"w": 0}, "= 0: expected a whole number, at least 1"),
        ({"sigma_max": -0.1}, "outside [0, infinity)"),
        ({"edges": "reflect"}, "zero"),
        ({**COLUMNS, **DECODER}, "later positions"),
        ({"sigma": 1}, "sigma_max"),
    ],
)
def test_bad_settings_are_named(settings: dict, words: str) -> None:
    with pytest.raises(UsageError, match=r"attentiondrop-blur") as error:
        build(NAME, settings)
    assert words in str(error.value)


def test_blurs_before_others_drop_keys() -> None:
    assert canonical("attendout+attentiondrop-blur") == "attentiondrop-blur+attendout"
    assert canonical("consistency+dropkey+attentiondrop-blur") == (
        "attentiondrop-blur+dropkey+consistency"
    )


@pytest.mark.parametrize("fields", [{}, {"causal": True}], ids=["plain", "causal"])
def test_composed_with_hard_masking_and_dropkey(fields: dict) -> None:
    call = make_call(**fields)
    both = ready(
        "attentiondrop-blur+dropkey",
        call,
        **{NAME: {"sigma_max": 2.0}, "dropkey": {"p": 0.5}},
    )
    blurred = both.parts[0].rewrite(call)
    torch.manual_seed(0)
    both.begin_step(Step(attention=[call.site]))
    changed = both.rewrite(call)
    kept = visible(changed)
    assert bool((kept <= visible(blurred)).all())
    assert bool(kept.any(-1).all())
    # every key a query may see is offered exactly once
    assert torch.equal(visible(blurred).sum(-1), visible(call).sum(-1))
    hard = ready(f"{NAME}+attentiondrop-hard", call, **{NAME: {"sigma_max": 2.0},
                 "attentiondrop-hard": {"p": 0.0}})  # fmt: skip
    torch.testing.assert_close(output(hard, call), hard.parts[0].rewrite(call).run())
    masked = ready(f"{NAME}+attentiondrop-hard", call, **{NAME: {"sigma_max": 2.0},
                   "attentiondrop-hard": {"p": 1.0, "k": 2}})  # fmt: skip
    y = output(masked, call)
    assert bool(y.isfinite().all())
    assert all(bool(g.isfinite().all()) for g in grads(y, call))
