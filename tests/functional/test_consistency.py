"""The consistency objective and R-Drop's conventions against the oracle and by hand."""

import json
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from attndrop_repro.functional.consistency import consistency_objective
from attndrop_repro.functional.divergence import directed_divergence
from attndrop_repro.functional.rdrop import CONVENTIONS, rdrop_objective

ORACLE = json.loads((Path(__file__).parents[1] / "oracles.json").read_text())["consistency"]
Z1, Z2 = (torch.tensor(ORACLE[key], dtype=torch.float64) for key in ("z1", "z2"))
Y = torch.tensor(ORACLE["y"])
TASK = (F.cross_entropy(Z1, Y), F.cross_entropy(Z2, Y))


@pytest.mark.parametrize("direction", ["equation", "appendix"])
def test_oracle_of_both_directions(direction: str) -> None:
    oracle = ORACLE[f"attentiondrop_{direction}"]
    divergence = directed_divergence(Z1, Z2, direction)
    loss = consistency_objective(TASK, divergence, oracle["lam"], "first")
    assert loss.item() == pytest.approx(oracle["loss"], rel=1e-13)


def test_task_loss_on_both_is_their_mean() -> None:
    loss = consistency_objective(TASK, Z1.new_tensor(0.25), 2.0, "both")
    expected = (ORACLE["ce_1"] + ORACLE["ce_2"]) / 2 + 0.5
    assert loss.item() == pytest.approx(expected, rel=1e-13)
    with pytest.raises(ValueError, match="first or both"):
        consistency_objective(TASK, Z1.new_tensor(0.0), 1.0, "second")  # type: ignore[arg-type]


def test_rdrop_oracle() -> None:
    oracle = ORACLE["rdrop"]
    loss = rdrop_objective(TASK, Z1, Z2, oracle["alpha"])
    assert loss.item() == pytest.approx(oracle["loss"], rel=1e-13)


def hand(batch: int) -> tuple[tuple[Tensor, Tensor], Tensor, Tensor]:
    first = torch.zeros(batch, 2, dtype=torch.float64)
    second = torch.tensor([math.log(3), 0.0], dtype=torch.float64).expand(batch, 2)
    y = torch.zeros(batch, dtype=torch.long)
    return (F.cross_entropy(first, y), F.cross_entropy(second, y)), first, second


@pytest.mark.parametrize("batch", [1, 4])
def test_rdrop_conventions_by_hand(batch: int) -> None:
    task, first, second = hand(batch)
    nll = math.log(2) + math.log(4 / 3)
    half_sum = 0.1373265360835137  # of 0.143841 and 0.130812
    alpha = 3.0
    expected = {
        "paper": nll + alpha * half_sum,
        "readme": nll / 2 + alpha * half_sum * batch,
        "bert": nll + alpha * half_sum * batch,
        "vit": nll + alpha * 2 * half_sum * batch,
    }
    assert set(expected) == set(CONVENTIONS)
    for convention, value in expected.items():
        loss = rdrop_objective(task, first, second, alpha, convention=convention)
        assert loss.item() == pytest.approx(value, rel=1e-12), convention
    with pytest.raises(ValueError, match="paper, readme, bert, vit"):
        rdrop_objective(task, first, second, alpha, convention="nmt")  # type: ignore[arg-type]


def test_rdrop_padding_and_reduction() -> None:
    generator = torch.Generator().manual_seed(0)
    first, second = (torch.randn(2, 3, 4, generator=generator) for _ in range(2))
    real = torch.tensor([[True, True, False], [True, False, False]])
    zero = (first.new_zeros(()), first.new_zeros(()))
    mean = rdrop_objective(zero, first, second, 1.0, real=real)
    summed = rdrop_objective(zero, first, second, 1.0, real=real, reduction="sum")
    total = rdrop_objective(zero, first, second, 1.0, real=real, convention="bert")
    assert summed.item() == pytest.approx(mean.item() * 3 / 2, rel=1e-6)
    assert total.item() == pytest.approx(mean.item() * 3, rel=1e-6)


def test_rdrop_gradients_reach_both_passes() -> None:
    first, second = Z1.clone().requires_grad_(), Z2.clone().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda a, b: rdrop_objective((F.cross_entropy(a, Y), F.cross_entropy(b, Y)), a, b, 0.7),
        (first, second),
    )
