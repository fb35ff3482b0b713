"""One attention's cost: what is run, what is weighed, and how ratios are made of times."""

import math

import pytest
import torch

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.evaluation import attention_cost as module
from attndrop_repro.evaluation.attention_cost import Attention, attention_cost
from attndrop_repro.evaluation.memory_cost import added_memory_mb
from attndrop_repro.evaluation.step_cost import Contender

SMALL = Attention(tokens=24, batch=2, heads=2, width=8)


class Told:
    """A clock that says what it is told, and runs what it is given."""

    def __init__(self, seconds):
        self.seconds = iter(seconds)

    def time(self, call):
        call()
        return next(self.seconds)


def test_ratio_is_the_median_of_pairs_whoever_goes_first(monkeypatch):
    # (plain, ours), (ours, plain), (plain, ours): ratios 2, 3, 1
    monkeypatch.setattr(module, "Clock", lambda device: Told([1, 2, 6, 2, 4, 4.0]))
    cost = attention_cost(SMALL, Contender("dropkey", "dropkey"), rounds=3)
    assert cost.seconds == (2, 6, 4)
    assert (cost.ratio, cost.low, cost.high) == (2.0, 1.5, 2.5)


@pytest.mark.parametrize("method", ["attentiondrop-hard", "attentiondrop-blur", "drophead"])
def test_a_lane_goes_forward_and_backward_through_the_method(method, monkeypatch):
    seen = []
    original = torch.Tensor.backward

    def backward(self, gradient, *rest, **more):
        seen.append((tuple(self.shape), gradient.shape == self.shape))
        return original(self, gradient, *rest, **more)

    monkeypatch.setattr(torch.Tensor, "backward", backward)
    SMALL.lane(Contender(method, method), 24)()
    SMALL.lane(None, 12)()
    assert seen == [((2, 2, 24, 8), True), ((2, 2, 12, 8), True)]


def test_a_lane_without_perturbation_computes_plain_attention(monkeypatch):
    outputs = []
    original = torch.Tensor.backward

    def backward(self, gradient, *rest, **more):
        outputs.append(self.detach().clone())
        return original(self, gradient, *rest, **more)

    monkeypatch.setattr(torch.Tensor, "backward", backward)
    SMALL.lane(None, 24)()
    SMALL.lane(Contender("dropkey", "dropkey", {"p": 0.0}), 24)()
    assert torch.allclose(outputs[0], outputs[1], atol=1e-6)


def test_added_memory_is_that_of_the_call():
    device = torch.device("cpu")
    held = torch.ones(2**22)  # memory that is held before does not count
    added = added_memory_mb(lambda: torch.ones(2**24).sum(), device)  # 64 MiB
    assert 60 < added < 90
    assert added_memory_mb(lambda: None, device) < 8
    assert held.sum() == 2**22


def test_a_device_that_is_not_there_is_one_line():
    with pytest.raises(AttndropError, match="cannot be used"):
        attention_cost(Attention(8, device="nosuch"), None)
    assert math.isfinite(attention_cost(SMALL, None, rounds=3).added_mb)
