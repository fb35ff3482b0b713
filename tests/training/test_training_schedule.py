"""The learning rate by optimiser step (public bug P10: epochs and updates confused)."""

import math

import pytest
import torch

from attndrop_repro.config.recipe import Training
from attndrop_repro.training.schedule import Schedule


def rates(steps_per_epoch: int = 7, **options: object) -> list[float]:
    training = Training(batch_size=8, **options)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=training.lr)
    schedule = Schedule(optimizer, training, steps_per_epoch)
    return [schedule.set(step) for step in range(training.epochs * steps_per_epoch)]


def test_warm_up_starts_and_ends_where_it_says() -> None:
    found = rates(epochs=10, lr=0.01, warmup_epochs=2, warmup_lr=1e-5, min_lr=1e-4)
    assert found[0] == 1e-5
    assert found[14] == 0.01
    expected = [1e-5 + (0.01 - 1e-5) * step / 14 for step in range(14)]
    assert found[:14] == pytest.approx(expected)


def test_cosine_by_formula() -> None:
    found = rates(epochs=10, lr=0.01, warmup_epochs=2, min_lr=1e-4)
    for step in range(14, 70):
        half = 0.5 * (1 + math.cos(math.pi * (step - 14) / 56))
        assert found[step] == pytest.approx(1e-4 + (0.01 - 1e-4) * half)
    assert 1e-4 < found[-1] < found[-2]


def test_constant() -> None:
    found = rates(epochs=3, lr=0.01, warmup_epochs=1, schedule="constant")
    assert found[7:] == [0.01] * 14


@pytest.mark.parametrize("warmup", [0, 0.5, 1, 100])
@pytest.mark.parametrize("schedule", ["cosine", "constant"])
def test_the_shortest_trainings(warmup: float, schedule: str) -> None:
    for steps in (1, 2):
        options = {"epochs": 1, "warmup_epochs": warmup, "schedule": schedule, "lr": 0.01}
        found = rates(steps, **options)
        assert len(found) == steps
        assert all(0 < rate <= 0.01 for rate in found)


def test_it_is_a_function_of_the_step_alone() -> None:
    training = Training(batch_size=8, epochs=5, warmup_epochs=1)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=training.lr)
    schedule = Schedule(optimizer, training, 4)
    forwards = [schedule.set(step) for step in range(20)]
    assert [schedule.set(step) for step in reversed(range(20))] == forwards[::-1]
