"""Consistency and R-Drop: what the loss of a step is, and who receives gradients."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from support.models import BY_NAME, run
from torch import Tensor

import attndrop_repro as attndrop
from attndrop_repro.config.errors import UsageError
from attndrop_repro.functional.divergence import kl_divergence
from attndrop_repro.methods import Step, Task, build

A = torch.zeros(3, 2)
B = torch.tensor([math.log(3), 0.0]).expand(3, 2)
Y = torch.zeros(3, dtype=torch.long)
CE_A, CE_B, AB, BA = math.log(2), math.log(4 / 3), 0.143841, 0.130812
TASK = Task(F.cross_entropy)


def objective(name: str, task: Task = TASK, **settings: object) -> float:
    return build(name, settings).objective([A, B], Y, task).item()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, CE_A + AB),
        ({"lam": 0.5}, CE_A + AB / 2),
        ({"direction": "appendix"}, CE_A + BA),
        ({"direction": "symmetric"}, CE_A + 0.137327),
        ({"task_loss": "both"}, (CE_A + CE_B) / 2 + AB),
        ({"lam": 0, "task_loss": "both"}, (CE_A + CE_B) / 2),
    ],
)
def test_consistency_by_hand(settings: dict[str, object], expected: float) -> None:
    value = objective("dropkey+consistency", consistency=settings)
    assert value == pytest.approx(expected, abs=2e-6)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, CE_A + CE_B + 0.137327),
        ({"alpha": 3}, CE_A + CE_B + 3 * 0.137327),
        ({"convention": "readme"}, (CE_A + CE_B) / 2 + 3 * 0.137327),
        ({"convention": "bert"}, CE_A + CE_B + 3 * 0.137327),
        ({"convention": "vit"}, CE_A + CE_B + 6 * 0.137327),
        ({"alpha": 0}, CE_A + CE_B),
    ],
)
def test_rdrop_by_hand(settings: dict[str, object], expected: float) -> None:
    assert objective("rdrop", **settings) == pytest.approx(expected, abs=4e-6)


@pytest.mark.parametrize("name", ["dropkey+consistency", "rdrop"])
@pytest.mark.parametrize(("tokens", "times"), [("mean", 1.0), ("sum", 4 / 3)])
def test_padding_never_counts(name: str, tokens: str, times: float) -> None:
    """4 real tokens in 3 examples; what stands at the others is of no account."""
    real = torch.tensor([[True, True, False], [True, False, False], [True, False, False]])
    first, second = (
        torch.where(real[..., None], t[:, None], torch.tensor(float("nan"))) for t in (A, B)
    )
    zero = Task(lambda outputs, y: outputs.new_zeros(()), real)
    part = name.split("+")[-1]
    method = build(name, {part: {"tokens": tokens}})
    value = method.objective([first, second], Y, zero).item()
    expected = AB if part == "consistency" else 0.137327
    assert value == pytest.approx(expected * times, abs=2e-6)


def test_both_passes_receive_gradients() -> None:
    for name in ("dropkey+consistency", "rdrop"):
        first, second = A.clone().requires_grad_(), B.clone().requires_grad_()
        build(name, {}).objective([first, second], Y, TASK).backward()
        for t in (first, second):
            assert t.grad is not None
            assert t.grad.abs().min() > 0
    # without the task loss too: neither side of the divergence is detached
    nothing = Task(lambda outputs, y: outputs.sum() * 0)
    first, second = A.clone().requires_grad_(), B.clone().requires_grad_()
    build("dropkey+consistency", {}).objective([first, second], Y, nothing).backward()
    assert first.grad is not None
    assert second.grad is not None
    torch.testing.assert_close(second.grad, (B.softmax(-1) - A.softmax(-1)) / 3)
    assert first.grad.abs().min() > 0


def test_a_schedule_of_lambda_follows_training() -> None:
    method = build(
        "dropkey+consistency", {"lam": {"schedule": "linear", "value": 2.0}, "dropkey": {"p": 0.1}}
    )
    for index, lam in ((0, 0.0), (5, 1.0), (10, 2.0)):
        method.begin_step(Step(index=index, total=10))
        value = method.objective([A, B], Y, TASK).item()
        assert value == pytest.approx(CE_A + lam * AB, abs=2e-6)


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("dropkey+consistency", {"lam": [1, 2]}, "should be a number or a schedule"),
        ("dropkey+consistency", {"lam": -1}, "outside"),
        ("rdrop", {"alpha": {"learnable": True, "init": 1.0}}, "should be a number or a schedule"),
        ("rdrop", {"convention": "nmt"}, "paper"),
        ("dropkey+consistency", {"direction": "both"}, "equation"),
    ],
)
def test_wrong_settings_are_named(name: str, settings: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        build(name, settings)
    assert "\n" not in str(caught.value)


def test_one_pass_where_the_second_would_not_count() -> None:
    assert build("dropkey+consistency", {"lam": 0}).passes == 1
    assert build("dropkey+consistency", {"lam": 0, "task_loss": "both"}).passes == 2
    assert build("rdrop", {"p": 0, "alpha": 0}).idle
    assert build("rdrop", {"p": 0.1, "alpha": 0}).passes == 2
    assert build("rdrop", {"p": 0, "alpha": 1}).passes == 2


@pytest.mark.parametrize(
    "name",
    [
        "rdrop", "dropkey+rdrop", "dropout+consistency", "dropconnect+consistency",
        "stochastic-depth+consistency", "drophead+consistency", "attentiondrop-hard+consistency",
        "attentiondrop-blur+consistency", "attendout+consistency",
    ],
)  # fmt: skip
def test_the_two_passes_differ(name: str) -> None:
    """Also where the draw is one for all layers (blur), or is made on weights or heads."""
    tiny = BY_NAME["vit"]
    network, x = tiny.make(), tiny.batch(4)
    settings = {"rdrop": {"p": 0.0}} if name == "dropkey+rdrop" else {}
    handle = attndrop.apply(network, name, settings)
    network.train()
    torch.manual_seed(0)
    first, second = handle.outputs(x)
    assert handle.passes == 2
    assert kl_divergence(first, second).item() > 0
    loss = handle.objective([first, second], torch.zeros(4, dtype=torch.long), F.cross_entropy)
    loss.backward()
    assert loss.isfinite()


def test_rdrop_drops_where_dropout_does() -> None:
    tiny = BY_NAME["vit"]
    outputs: list[Tensor] = []
    for name in ("dropout", "rdrop"):
        torch.manual_seed(0)
        network = tiny.make()
        attndrop.apply(network, name, p=0.3, places=["mlp-hidden"])
        torch.manual_seed(3)
        outputs.append(run(network.train(), tiny.batch(4)))
    assert torch.equal(*outputs)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_finite(dtype: torch.dtype) -> None:
    big = torch.tensor([[60.0, -60.0, 0.0]], dtype=dtype)
    criterion: Callable[[Tensor, Tensor], Tensor] = lambda z, y: F.cross_entropy(z.float(), y)  # noqa: E731
    for name in ("dropkey+consistency", "rdrop"):
        outputs = [big.clone().requires_grad_(), (-big).clone().requires_grad_()]
        loss = build(name, {}).objective(outputs, torch.zeros(1, dtype=torch.long), Task(criterion))
        loss.backward()
        assert loss.isfinite()
        assert all(t.grad.isfinite().all() for t in outputs)  # type: ignore[union-attr]
