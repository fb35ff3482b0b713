"""Strengths: what users may write, what `at` answers, schedules, learning."""

import copy
import json
import pickle
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from attndrop_repro.config.errors import UsageError
from attndrop_repro.methods import Settings, Site, Step, build, setting
from attndrop_repro.methods.strength import (
    OneStrength,
    Positive,
    Probability,
    ProbabilityBelow1,
    Range,
    Strength,
)


class Some(Settings):
    p: Probability = setting(0.1, "a probability")
    s: Positive = setting(0.5, "a width")
    d: ProbabilityBelow1 = setting(0.1, "a dropout rate")


def site(layer: int = 0, layers: int = 2, heads: int = 3) -> Site:
    return Site("attention", layer, layers, f"blocks.{layer}.attn", heads=heads)


def strength(value: Any, name: str = "p") -> Strength:
    within = next(x for x in Some.model_fields[name].metadata if isinstance(x, Range))
    return Strength(getattr(Some(**{name: value}), name), within, name)


@pytest.mark.parametrize(
    ("given_", "kept"),
    [
        (0.3, 0.3),
        (1, 1.0),
        ("0.25", 0.25),
        ("1e-3", 0.001),
        ([0.1, 0.2], (0.1, 0.2)),
        ([[0.1, 0.2], [0.3]], ((0.1, 0.2), (0.3,))),
    ],
)
def test_numbers_stay_plain(given_: Any, kept: Any) -> None:
    value = Some(p=given_).p
    assert value == kept
    assert type(value) is type(kept)


@pytest.mark.parametrize(
    "value",
    [
        0.5,
        [0.1, 0.2],
        [[0.1], [0.2]],
        {"schedule": "constant", "value": 0.2},
        {"schedule": "linear", "value": [0.1, 0.2], "start": 0.05, "turn": 0.5},
        {"schedule": "v-shape", "value": 0.2},
        {"learnable": True, "init": 0.3},
        {"learnable": True, "init": [[0.3, 0.2], [0.1, 0.4]], "lr": 0.1},
    ],
)
def test_settings_survive_json_and_pickle(value: Any) -> None:
    made = Some(p=value)
    assert Some.model_validate_json(made.model_dump_json()) == made
    assert Some(**made.model_dump()) == made
    assert Some(**json.loads(json.dumps(made.model_dump()))) == made
    assert pickle.loads(pickle.dumps(made)) == made
    assert hash(made) == hash(Some(p=value))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (1.5, "1.5 is outside [0, 1]"),
        (-0.1, "outside [0, 1]"),
        ([0.1, 2], "2 is outside [0, 1]"),
        (float("nan"), "finite"),
        (float("inf"), "finite"),
        (True, "should be a number"),
        ("much", "should be a number"),
        (None, "should be a number"),
        ([], "one number for each layer"),
        ([0.1, [0.2]], "one number for each layer"),
        ([[[0.1]]], "not deeper"),
        ({}, "'schedule' or 'learnable"),
        ({"schedule": "linear", "learnable": True}, "'schedule' or 'learnable"),
        ({"schedule": "linear"}, "'value' is missing"),
        ({"schedule": "cosine", "value": 0.1}, "'constant', 'linear' or 'v-shape'"),
        ({"schedule": "linear", "value": 1.5}, "outside [0, 1]"),
        ({"schedule": "linear", "value": 0.5, "start": -1}, "outside [0, 1]"),
        ({"schedule": "linear", "value": 0.5, "turn": 0}, "turn"),
        ({"schedule": "linear", "value": 0.5, "end": 1}, "end"),
        ({"learnable": True}, "'init' is missing"),
        ({"learnable": True, "init": 0}, "strictly inside"),
        ({"learnable": True, "init": [0.5, 1.0]}, "strictly inside"),
        ({"learnable": True, "init": 0.5, "lr": 0}, "lr"),
        ({"learnable": False, "init": 0.5}, "learnable"),
    ],
)
def test_what_is_wrong_is_said(value: Any, words: str) -> None:
    with pytest.raises(ValidationError) as error:
        Some(p=value)
    (only,) = error.value.errors()
    assert only["loc"] == ("p",)
    assert words in only["msg"]


def test_ranges_of_the_kinds() -> None:
    Some(s=7.0, p=1.0, d=0.999)
    for bad in ({"s": -1}, {"d": 1}, {"d": [0.1, 1.0]}):
        with pytest.raises(ValidationError, match="outside"):
            Some(**bad)
    assert str(Range(0, 1)) == "[0, 1]"
    assert str(Range(0)) == "[0, infinity)"
    schema = Some.model_json_schema()["properties"]
    assert schema["p"]["maximum"] == 1
    assert schema["d"]["exclusiveMaximum"] == 1
    assert "maximum" not in schema["s"]


def test_at_a_layer_and_head() -> None:
    assert strength(0.3).at(site()) == 0.3
    assert strength([0.1, 0.2]).at(site(1)) == 0.2
    by_head = strength([[0, 0, 0], [0.1, 0, 0.3]])
    assert by_head.at(site(0)) == 0.0
    values = by_head.at(site(1))
    assert isinstance(values, torch.Tensor)
    assert values.shape == (3, 1, 1)
    assert values.flatten().tolist() == pytest.approx([0.1, 0, 0.3])


def test_lists_that_do_not_fit_the_model() -> None:
    with pytest.raises(UsageError, match=r"p has 3 values by layer, but the model has 2 places"):
        strength([0.1, 0.2, 0.3]).at(site())
    with pytest.raises(
        UsageError, match=r"2 values by head for layer 0, but 'blocks.0.attn' has 3"
    ):
        strength([[0.1, 0.2], [0.1, 0.2]]).at(site())


@pytest.mark.parametrize(
    ("value", "zero"),
    [
        (0, True),
        (1e-300, False),
        ([0, 0], True),
        ([0, 0.1], False),
        ([[0.0], [0.0]], True),
        ([[0.0], [0.1]], False),
        ({"schedule": "linear", "value": 0}, True),
        ({"schedule": "linear", "value": 0, "start": 0.1}, False),
        ({"schedule": "v-shape", "value": 0.1}, False),
        ({"learnable": True, "init": 1e-6}, False),
    ],
)
def test_is_zero(value: Any, zero: bool) -> None:
    assert strength(value).is_zero == zero


def follow(value: Any, shares: list[float]) -> list[float]:
    it, found = strength(value), []
    for share in shares:
        it.begin(Step(index=round(share * 1000), total=1000))
        found.append(it.at(site()))
    return found


def test_schedules() -> None:
    moments = [0.0, 0.25, 0.5, 0.75, 1.0]
    constant = {"schedule": "constant", "value": 0.4}
    assert follow(constant, moments) == [0.4] * 5
    linear = {"schedule": "linear", "value": 0.4}
    assert follow(linear, moments) == pytest.approx([0, 0.1, 0.2, 0.3, 0.4])
    warm = {"schedule": "linear", "value": 0.4, "start": 0.2, "turn": 0.5}
    assert follow(warm, moments) == pytest.approx([0.2, 0.3, 0.4, 0.4, 0.4])
    v = {"schedule": "v-shape", "value": 0.4}
    assert follow(v, moments) == pytest.approx([0.4, 0.2, 0, 0.2, 0.4])
    lopsided = {"schedule": "v-shape", "value": 0.3, "start": 0.2, "turn": 0.25}
    assert follow(lopsided, moments) == pytest.approx([0.2, 0, 0.1, 0.2, 0.3])
    falling = {"schedule": "v-shape", "value": 0.3, "start": 0.2, "turn": 1.0}
    assert follow(falling, moments) == pytest.approx([0.2, 0.15, 0.1, 0.05, 0])
    layers = {"schedule": "linear", "value": [[0.4, 0.2, 0.0], [0.1] * 3]}
    half = follow(layers, [0.5])[0]
    assert half.flatten().tolist() == pytest.approx([0.2, 0.1, 0.0])


@given(
    st.sampled_from(["constant", "linear", "v-shape"]),
    st.floats(0, 1),
    st.none() | st.floats(0, 1),
    st.none() | st.floats(0, 1, exclude_min=True),
    st.floats(0, 1),
)
def test_schedules_stay_in_range(
    schedule: str, value: float, start: float | None, turn: float | None, share: float
) -> None:
    it = strength({"schedule": schedule, "value": value, "start": start, "turn": turn})
    it.begin(Step(index=round(share * 997), total=997))
    assert 0 <= it.at(site()) <= 1
    it.begin(Step(index=997, total=997))
    if not (schedule == "v-shape" and turn == 1):
        assert it.at(site()) == pytest.approx(value, abs=1e-12)


def test_a_schedule_without_a_known_length_is_at_its_end() -> None:
    it = strength({"schedule": "linear", "value": 0.4})
    it.begin(Step(index=3))
    assert it.at(site()) == 0.4


@pytest.mark.parametrize(
    ("init", "shape"), [(0.3, ()), ([0.3, 0.4], (2,)), ([[0.3] * 3, [0.4] * 3], (2, 3))]
)
@pytest.mark.parametrize("name", ["p", "s"])
def test_learning_starts_at_init_and_descends(init: Any, shape: tuple, name: str) -> None:
    it = strength({"learnable": True, "init": init, "lr": 0.05}, name)
    learner = it.learner()
    assert learner is not None
    (free,) = learner.modules().parameters()
    assert free.shape == shape
    first = it.at(site(1))
    assert first.shape == (() if len(shape) < 2 else (3, 1, 1))
    expected = torch.tensor(init)[1] if shape else torch.tensor(init)
    torch.testing.assert_close(first.detach().flatten(), expected.flatten())
    for _ in range(100):
        (it.at(site(1)) - 0.1).square().sum().backward()
        log = learner.update(None, None, None, None)
    assert it.at(site(1)).detach().mean().item() == pytest.approx(0.1, abs=0.02)
    assert set(log) == {name}
    if shape:  # the other layer had no gradient
        other = torch.tensor(init)[0]
        torch.testing.assert_close(it.at(site(0)).detach().flatten(), other.flatten())


def test_learning_stays_in_range() -> None:
    for sign, end in ((1, 0), (-1, 1)):
        it = strength({"learnable": True, "init": 0.5, "lr": 1.0})
        for _ in range(200):
            (sign * it.at(site())).backward()
            it.learner().update(None, None, None, None)
        value = it.at(site()).item()
        assert 0 <= value <= 1
        assert value == pytest.approx(end, abs=0.01)


def test_a_gradient_that_is_not_finite_is_skipped() -> None:
    it = strength({"learnable": True, "init": 0.5})
    (free,) = it.learner().modules().parameters()
    free.grad = torch.tensor(float("inf"))
    it.learner().update(None, None, None, None)
    assert free.item() == 0.0
    assert free.grad is None


def test_learning_goes_on_bit_by_bit() -> None:
    def step(it: Strength) -> None:
        (it.at(site()) - 0.2).square().backward()
        it.learner().update(None, None, None, None)

    whole = strength({"learnable": True, "init": 0.5, "lr": 0.1})
    for _ in range(3):
        step(whole)
    state = whole.learner().state_dict()
    assert all(isinstance(value, torch.Tensor | int | float) for value in state.values())
    resumed = strength({"learnable": True, "init": 0.5, "lr": 0.1})
    resumed.learner().load_state_dict(state)
    for other in (resumed, copy.deepcopy(whole), pickle.loads(pickle.dumps(whole))):
        for _ in range(3):
            step(other)
    for _ in range(3):
        step(whole)
    assert torch.equal(whole.at(site()), resumed.at(site()))
    assert torch.equal(whole.at(site()), other.at(site()))
    fresh = strength({"learnable": True, "init": 0.5}).learner()
    fresh.load_state_dict(fresh.state_dict())  # also before the first step


def test_two_learned_methods_compose() -> None:
    learned = {"learnable": True, "init": 0.3}
    both = build("dropkey+drophead", {"dropkey": {"p": learned}, "drophead": {"p": learned}})
    learner = both.learner()
    assert len(list(learner.modules().parameters())) == 2
    state = learner.state_dict()
    assert set(state) == {"dropkey/p.free", "drophead/p.free"}
    for free in learner.modules().parameters():
        free.grad = torch.tensor(1.0)
    assert set(learner.update(None, None, None, None)) == {"dropkey.p", "drophead.p"}
    assert learner.state_dict()["dropkey/p.free"] != state["dropkey/p.free"]
    learner.load_state_dict(state)
    assert learner.state_dict()["dropkey/p.free"] == state["dropkey/p.free"]
    assert build("dropkey", {"p": 0.1}).learner() is None


def test_one_strength() -> None:
    class Toy(OneStrength[Some]):
        name, reference, Settings = "toy", "-", Some
        strength_name = "s"

    assert Toy(Some(s=0)).idle
    toy = Toy(Some(s={"schedule": "linear", "value": 1}))
    assert not toy.idle
    toy.begin_step(Step(index=1, total=4))
    assert toy.strength.at(site()) == 0.25
    assert toy.learner() is None
