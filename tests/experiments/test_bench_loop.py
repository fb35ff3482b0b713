"""The bare loop makes the product's own steps, and their times are compared turn by turn."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from support.tiny_run import spec_of, trained

from attndrop_repro import data
from attndrop_repro.config.recipe import Recipe
from attndrop_repro.experiments.bare_loop import BareLoop
from attndrop_repro.experiments.bench_loop import LoopCost, _Turns, bench_loop, loop_measurements
from attndrop_repro.randomness import seed_regulariser
from attndrop_repro.store import Store
from attndrop_repro.training.machine import numerics


def bare(spec) -> BareLoop:
    return BareLoop(spec, data.load(spec.recipe.data), torch.device("cpu"))


@pytest.mark.parametrize(
    ("method", "training", "runtime"),
    [
        ("none", {}, {}),
        ("none", {"accumulate": 2, "clip_grad": 0.5, "label_smoothing": 0.1}, {}),
        ("none", {"augmentation": {"shift": 1}}, {"precision": "fp64"}),
        ("none", {"augmentation": {"mixup": 0.2}}, {"precision": "bf16"}),
        ("dropkey+consistency", {}, {}),
    ],
)
def test_the_bare_loop_makes_the_same_steps_bit_by_bit(tmp_path, method, training, runtime):
    spec = spec_of(method, training={"epochs": 2, **training}, runtime=runtime)
    ours = trained(tmp_path, spec).weights
    with numerics(spec.recipe.runtime), torch.random.fork_rng():
        loop = bare(spec)
        seed_regulariser(spec.seed)
        loop.advance(0, 5)
        loop.advance(5, 12)
    theirs = loop.model.network.state_dict()
    assert loop.batches.steps_per_epoch == 6
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_the_average_of_the_weights_is_the_same_too(tmp_path):
    spec = spec_of(training={"epochs": 1, "ema": 0.9})
    ours = trained(tmp_path, spec).weights
    with numerics(spec.recipe.runtime):
        loop = bare(spec)
        loop.advance(0, 6)
    assert all(torch.equal(ours[name], loop.averaged.tensors[name]) for name in ours)


def test_the_bare_loop_validates_once_an_epoch(monkeypatch):
    loop, at = bare(spec_of()), []
    monkeypatch.setattr(loop, "validate", lambda: at.append(loop.model.training))
    for start, stop in ((0, 3), (3, 6), (6, 9), (9, 12)):
        loop.advance(start, stop)
    assert at == [True]  # as the second epoch begins; the model's mode is put back after it
    assert loop.model.training


def test_validation_counts_every_image_once():
    loop = bare(spec_of())
    accuracy, loss = loop.validate()
    split = loop.splits.validation
    with torch.no_grad():
        logits = loop.model(split.pixels(range(len(split))))
    right = logits.argmax(1) == split.labels
    assert accuracy == pytest.approx(right.double().mean().item())
    assert loss == pytest.approx(torch.nn.functional.cross_entropy(logits, split.labels).item())


class Lane:
    """A loop that takes a second a step."""

    def __init__(self, clock, seconds):
        self.clock, self.seconds = clock, seconds
        self.batches = SimpleNamespace(steps_per_epoch=4)
        self.turns = []

    def advance(self, start, stop):
        self.turns.append((start, stop))
        self.clock.now += self.seconds * (stop - start)


def test_what_the_bare_loops_take_is_not_the_trainings():
    clock = SimpleNamespace(now=0.0)
    lanes = [Lane(clock, 1.0), Lane(clock, 2.0)]
    turns = _Turns(lanes, 8, lambda: clock.now)
    for step in range(17):
        if step and step % 4 == 0:
            clock.now += 7  # validation and files, after the last step of an epoch
        clock.now += 3
        turns(SimpleNamespace(step=step), torch.zeros(()), 0.1)
    assert lanes[0].turns == [(start, start + 2) for start in range(0, 16, 2)]
    assert turns.whole[:2] == [[8 * 3 + 7.0, 8.0, 16.0], [8 * 3 + 14.0, 8.0, 16.0]]
    # the first turn of an epoch has the end of the last one in it
    assert turns.inside[1] == [4 * 3.0, 4.0, 8.0]


@pytest.fixture(scope="module")
def cost() -> tuple[LoopCost, Recipe]:
    recipe = spec_of(training={"checkpoint_every": 2, "snapshots": [0, 1]}).recipe
    return bench_loop(recipe, rounds=3), recipe


def test_a_round_has_the_recipes_share_of_checkpoints(cost):
    found, _ = cost
    assert (found.epochs, found.steps, found.rounds, found.method) == (2, 12, 3, "none")
    for value in (found.ratio, found.noise, found.steps_ratio, found.milliseconds):
        assert math.isfinite(value)
        assert value > 0
    assert found.low <= found.ratio <= found.high


def test_the_store_says_what_was_compared(cost, tmp_path):
    found, recipe = cost
    columns, measured = loop_measurements(found, recipe, "cpu")
    store = Store(tmp_path)
    store.write_outside(columns, measured)
    (row,) = store.frame().to_dict("records")
    assert (row["metric"], row["value"], row["recipe"]) == ("loop_time_ratio", found.ratio, "tiny")
