"""What a CPU cannot tell: `make test-gpu` runs these, on a machine with a CUDA device."""

import copy

import pytest
import torch
import torch.nn.functional as F
from support.contract import criterion, fresh, methods, put, targets
from support.models import images, liven, vit
from torch import Tensor

import attndrop_repro as attndrop
from attndrop_repro.config.load import load_recipe
from attndrop_repro.evaluation.attention_cost import Attention, attention_cost
from attndrop_repro.evaluation.step_cost import Contender
from attndrop_repro.experiments import bench
from attndrop_repro.functional import attention_by_rows as by_rows
from attndrop_repro.functional.hard_attention import hard_attention
from attndrop_repro.functional.hard_masking import hard_masking
from attndrop_repro.functional.masked_softmax import masked_softmax

pytestmark = pytest.mark.gpu
DEVICE = "cuda"


@pytest.mark.parametrize("method", methods())
def test_eval_is_the_plain_model_and_training_is_finite(method: str) -> None:
    net, x = fresh("vit")
    net, x = net.to(DEVICE), x.to(DEVICE)
    plain = net.eval()(x)
    handle = put(net, "vit", method)
    assert torch.equal(net.eval()(x), plain)
    net.train()
    for precision in (None, torch.bfloat16, torch.float16):
        with torch.autocast(DEVICE, precision, enabled=precision is not None):
            loss = handle.loss(x, targets(net, x).to(DEVICE), criterion)
        loss.backward()
        assert loss.isfinite()
        assert all(p.grad.isfinite().all() for p in net.parameters() if p.grad is not None)


@pytest.mark.parametrize("method", methods())
def test_fused_and_unfused_agree(method: str) -> None:
    results: list[Tensor] = []
    for model in ("vit", "vit-unfused"):
        net, x = fresh(model)
        net, x = net.to(DEVICE), x.to(DEVICE)
        handle = put(net, model, method)
        torch.manual_seed(4)
        results.append(handle.loss(x, targets(net, x).to(DEVICE), criterion))
    torch.testing.assert_close(*results, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("mode", ["zero", "drop"])
@pytest.mark.parametrize("keys", [9, 300], ids=["one maximum after the other", "a sort"])
def test_hard_masking_some_rows_at_a_time(
    mode: str, keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_rows, "_AT_A_TIME_ON_A_GPU", 4 * keys)
    torch.manual_seed(0)
    options = {"dtype": torch.float64, "device": DEVICE, "requires_grad": True}
    q, k, v = (torch.randn(2, 3, n, 4, **options) for n in (7, keys, keys))  # type: ignore[call-overload]
    keep = torch.rand(2, 3, 7, 5, device=DEVICE) > 0.4
    allowed = torch.rand(2, 1, 1, keys, device=DEVICE) > 0.2
    fast = hard_attention(q, k, v, keep, scale=0.5, allowed=allowed, mode=mode)  # type: ignore[arg-type]
    logits = hard_masking(q @ k.mT * 0.5, keep, 5, allowed=allowed, mode=mode)  # type: ignore[arg-type]
    slow = masked_softmax(logits, allowed) @ v
    torch.testing.assert_close(fast, slow, rtol=0, atol=1e-12)
    weight = torch.randn_like(slow)
    grads = [torch.autograd.grad((y * weight).sum(), (q, k, v)) for y in (fast, slow)]
    torch.testing.assert_close(*grads, rtol=0, atol=1e-12)


@pytest.mark.parametrize("method", ["attentiondrop-blur+dropkey", "attention-dropout", "dropout"])
def test_compiled_with_equal_draws(method: str) -> None:
    net = liven(vit(depth=1)).to(DEVICE).train()
    handle = attndrop.apply(net, method)
    x = images(2).to(DEVICE)
    torch._dynamo.reset()
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    outputs = []
    for forward in (None, compiled):
        torch.manual_seed(8)
        outputs.append(handle.outputs(x, forward=forward))
    torch.testing.assert_close(*outputs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("method", "most"), [("attentiondrop-blur", 2), ("attentiondrop-hard", 4), ("dropkey", None)]
)
def test_memory_of_a_long_attention(method: str, most: int | None) -> None:
    """Added by one attention of 4,096 tokens, over what plain fused attention adds."""
    size = Attention(4096, device=DEVICE)
    plain = attention_cost(size, None, rounds=3).added_mb
    ours = attention_cost(size, Contender(method, method), rounds=3).added_mb
    if most is not None:
        assert ours <= most * plain
    assert ours < 4 * 4096 * 4096 * 4 / 2**20  # the logits of all heads


def test_a_benchmark_by_events() -> None:
    work = bench.workload(load_recipe("digits-vit"), batch_size=8, device=DEVICE, precision="bf16")
    rows = bench.bench(work, bench.contenders(["dropkey"]), rounds=3, memory=True)
    assert {"none", "none (again)", "dropkey"} <= {row.label for row in rows}
    for row in rows:
        assert row.images_per_second > 0
        assert row.label == "none (again)" or row.peak_memory_mb > 0


def test_the_same_seed_trains_the_same() -> None:
    found, origin = [], liven(vit(depth=1)).to(DEVICE).train()
    for _ in range(2):
        net = copy.deepcopy(origin)
        handle = attndrop.apply(net, "attentiondrop-hard+dropout")
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        torch.manual_seed(0)
        x, y = images(4).to(DEVICE), torch.arange(4, device=DEVICE)
        for _ in range(5):
            optimizer.zero_grad()
            handle.loss(x, y, F.cross_entropy).backward()
            optimizer.step()
        found.append([p.detach().cpu() for p in net.parameters()])
    for first, second in zip(*found, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-6)
