"""Attention dropout, DropHead and DropDim as methods."""

import pytest
import torch
from scipy.stats import binomtest
from support.attention import grads, make_call, output, ready, visible
from torch import Tensor

from attndrop_repro.config.errors import UsageError
from attndrop_repro.functional.attention_dropout import attention_dropout
from attndrop_repro.methods import Site, Step, build

PADDING = torch.tensor([[True] * 4 + [False] * 2, [True] * 6])[:, None, None, :]
INPUT = Site("attention-input", 0, 1, "attn")


# attention dropout


def test_attention_dropout_uses_the_fused_form() -> None:
    call = make_call()
    changed = ready("attention-dropout", call, p=0.2).rewrite(call)
    assert changed.dropout_p == 0.2
    assert changed.on_weights is None
    joint = ready("attention-dropout", call, p=0.2).rewrite(call.replace(dropout_p=0.5))
    assert joint.dropout_p == pytest.approx(0.6)


def test_attention_dropout_rate_and_mean() -> None:
    call = make_call(batch=60, heads=2, queries=10, keys=10, width=10)
    eye = call.replace(v=torch.eye(10).double().expand(60, 2, 10, 10))
    plain = eye.run()
    for p in (0.3, [[0.3, 0.3]]):
        weights = output(ready("attention-dropout", call, p=p), eye)
        gone = weights == 0
        assert binomtest(int(gone.sum()), gone.numel(), 0.3).pvalue > 1e-6
        torch.testing.assert_close(weights[~gone], plain[~gone] / 0.7, rtol=1e-6, atol=0)


def test_attention_dropout_by_head_equals_the_definition() -> None:
    call = make_call(allowed=PADDING, bias=(1, 3, 6, 6))
    p = [[0.0, 0.5, 0.9]]
    method = ready("attention-dropout", call, p=p)
    changed = method.rewrite(call)
    torch.manual_seed(1)
    got = changed.run()
    torch.manual_seed(1)
    u = torch.rand(call.shape)
    rates = torch.tensor(p).view(3, 1, 1)
    logits = call.q @ call.k.transpose(-2, -1) * call.scale + call.bias
    weights = logits.masked_fill(~visible(call), -torch.inf).softmax(-1)
    expected = attention_dropout(weights, u >= rates, rates.double()) @ call.v
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)
    assert all(bool(g.isfinite().all()) for g in grads(got, call))


def test_attention_dropout_learns() -> None:
    call = make_call()
    method = ready("attention-dropout", call, p={"learnable": True, "init": 0.3})
    output(method, call).square().sum().backward()
    (free,) = method.learner().modules().parameters()
    assert free.grad.abs() > 0


def test_attention_dropout_has_no_p_1() -> None:
    with pytest.raises(UsageError, match=r"outside \[0, 1\)"):
        build("attention-dropout", {"p": 1})


# DropHead


@pytest.mark.parametrize("p", [0.4, 1.0])
def test_drophead_drops_whole_heads_and_rescales(p: float) -> None:
    call = make_call(batch=300, heads=4, queries=2)
    plain = call.run()
    got = output(ready("drophead", call, p=p), call)
    kept = got.abs().sum((2, 3)) > 0
    count = kept.sum(1)
    assert int(count.min()) >= 1
    scale = (4 / count)[:, None, None, None] * kept[:, :, None, None]
    torch.testing.assert_close(got, plain * scale, rtol=1e-6, atol=0)
    if p == 1.0:
        assert int(count.max()) == 1
    else:
        # a sample that loses all heads gets one back
        expected = p - p**4 / 4
        assert binomtest(int((~kept).sum()), kept.numel(), expected).pvalue > 1e-6


def test_drophead_per_batch_and_by_head() -> None:
    call = make_call(batch=5, heads=4)
    kept = output(ready("drophead", call, p=0.5, per="batch"), call).abs().sum((2, 3)) > 0
    assert torch.equal(kept, kept[:1].expand_as(kept))
    by_head = output(ready("drophead", call, p=[[0.0, 1.0, 1.0, 0.0]]), call)
    assert (by_head.abs().sum((2, 3)) > 0).tolist() == [[True, False, False, True]] * 5


def test_drophead_schedule_is_a_v() -> None:
    call = make_call(batch=400, heads=8, queries=1)
    method = build("drophead", {"p": {"schedule": "v-shape", "value": 0.4, "turn": 0.25}})
    rates = []
    for index in (0, 25, 100):
        method.begin_step(Step(index=index, total=100))
        kept = output(method, call).abs().sum((2, 3)) > 0
        rates.append(1 - kept.double().mean().item())
    assert rates == pytest.approx([0.4, 0.0, 0.4], abs=0.04)


def test_drophead_learns_by_layer_and_head() -> None:
    call = make_call(layers=2, layer=1)
    method = ready("drophead", call, p={"learnable": True, "init": [[0.2] * 3, [0.5] * 3]})
    output(method, call).square().sum().backward()
    (free,) = method.learner().modules().parameters()
    assert free.shape == (2, 3)
    assert not bool(free.grad[0].any())
    assert bool(free.grad[1].any())


# DropDim


@pytest.mark.parametrize("form", ["random", "span"])
@pytest.mark.parametrize("p", [0.3, 0.99, 1.0])
def test_dropdim_drops_dimensions_of_all_tokens_and_rescales(form: str, p: float) -> None:
    x = torch.randn(50, 7, 20)
    method = build("dropdim", {"p": p, "form": form})
    method.begin_step(Step())
    got = method.hidden(INPUT, x)
    kept = (got != 0).any(1)
    torch.testing.assert_close(
        got, x * (kept / kept.double().mean(-1, keepdim=True))[:, None].float(), rtol=1e-5, atol=0
    )
    assert int(kept.sum(-1).min()) >= 1
    if form == "span":
        assert bool((kept.sum(-1) == 20 - min(round(20 * p), 19)).all())
        edges = torch.nn.functional.pad((~kept).to(torch.int8), (1, 1)).diff(dim=-1)
        assert bool(((edges == 1).sum(-1) == 1).all())
        assert len({tuple(row.tolist()) for row in kept}) > 1
    elif p == 0.3:
        assert binomtest(int((~kept).sum()), kept.numel(), 0.3).pvalue > 1e-6


def test_dropdim_spans_start_anywhere() -> None:
    method = build("dropdim", {"p": 0.25, "form": "span"})
    torch.manual_seed(0)
    got = method.hidden(INPUT, torch.ones(4000, 1, 8))[:, 0]
    starts = (got == 0).double().argmax(-1)
    assert starts.unique().tolist() == list(range(7))
    for start in (0, 6):
        assert binomtest(int((starts == start).sum()), 4000, 1 / 7).pvalue > 1e-6


def test_dropdim_leaves_other_places_and_p_0_alone() -> None:
    x = torch.randn(2, 3, 4)
    method = build("dropdim", {"p": 0.5})
    assert method.hidden(Site("mlp-hidden", 0, 1, "fc2"), x) is x
    assert method.hidden(Site("attention-input", 0, 1, "attn", kind="cross"), x) is x
    assert build("dropdim", {"p": 0.01, "form": "span"}).hidden(INPUT, x).equal(x)
    assert build("dropdim", {"p": 0}).idle


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_dropdim_keeps_the_type_and_any_number_of_axes(dtype: torch.dtype) -> None:
    for shape in ((2, 5), (2, 3, 5), (2, 3, 4, 5)):
        got = build("dropdim", {"p": 0.5}).hidden(INPUT, torch.randn(shape).to(dtype))
        assert got.dtype == dtype
        assert got.shape == shape
        assert bool(got.isfinite().all())


def test_dropdim_learns_unless_it_drops_spans() -> None:
    method = build("dropdim", {"p": {"learnable": True, "init": 0.3}})
    method.hidden(INPUT, torch.randn(2, 3, 8)).square().sum().backward()
    (free,) = method.learner().modules().parameters()
    assert free.grad.abs() > 0
    with pytest.raises(UsageError, match="form = random"):
        build("dropdim", {"p": {"learnable": True, "init": 0.3}, "form": "span"})


def test_vmap() -> None:
    call = make_call(batch=1)
    for name, settings in (
        ("attention-dropout", {"p": 0.5}),
        ("attention-dropout", {"p": [[0.5, 0.5, 0.5]]}),
        ("drophead", {"p": 0.5}),
    ):
        method = ready(name, call, **settings)

        def alone(q: Tensor, method: object = method) -> Tensor:
            return output(method, call.replace(q=q)).square().sum()

        many = call.q.detach().expand(6, *call.q.shape)
        found = torch.func.vmap(torch.func.grad(alone), randomness="different")(many)
        assert bool(found.isfinite().all())
        assert len({tuple(g.flatten().tolist()) for g in found}) > 1
    for form in ("random", "span"):
        dropdim = build("dropdim", {"p": 0.5, "form": form})

        def hidden(x: Tensor, method: object = dropdim) -> Tensor:
            return method.hidden(INPUT, x[None])[0]

        rows = torch.func.vmap(hidden, randomness="different")(torch.ones(6, 3, 8))
        assert len({tuple(row.flatten().tolist()) for row in rows}) > 1
