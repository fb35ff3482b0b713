"""Overrides by path, and the settings of a method from a recipe."""

import contextlib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from attndrop_repro.config.errors import UsageError
from attndrop_repro.config.load import load_recipe, settings_for

FIELDS = {
    "attentiondrop-blur": {"p", "w", "sigma_max"},
    "consistency": {"lam"},
    "dropout": {"p"},
    "none": set(),
}


@pytest.fixture
def load(tmp_path):
    file = tmp_path / "tiny.yaml"
    file.write_text(
        "name: tiny\ndata: {name: digits}\nmodel: {name: vit, args: {depth: 3}}\n"
        "training: {epochs: 3, batch_size: 64}\nsettings: {dropout: {p: 0.2}}\n"
    )
    return lambda *overrides: load_recipe(file, overrides)


def told(load, *overrides):
    with pytest.raises(UsageError) as error:
        load(*overrides)
    return str(error.value)


def test_by_path(load):
    recipe = load(
        "training.epochs=5",
        "training.betas=[0.8, 0.9]",
        "training.augmentation.flip=true",
        "model.args.depth=4",
        "model.args.pool=no",
        "data.test=null",
        "method=dropout",
        "evaluation.attack.eps=[0, 8/255]",
        " runtime.threads = 2 ",
    )
    assert recipe.training.epochs == 5
    assert recipe.training.betas == (0.8, 0.9)
    assert recipe.training.augmentation.flip
    assert recipe.model.args == {"depth": 4, "pool": "no"}
    assert recipe.data.test is None
    assert recipe.method == "dropout"
    assert recipe.evaluation.attack.eps == (0, "8/255")
    assert recipe.runtime.threads == 2


def test_the_last_of_one_key_counts(load):
    assert load("training.epochs=5", "training.epochs=7").training.epochs == 7


def test_the_demo_recipe_takes_a_shorter_training_without_more_ado():
    assert load_recipe("digits-vit", ["training.epochs=3"]).training.epochs == 3


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("training.epochs=three", ["training.epochs = 'three'", "whole number, at least 1"]),
        ("training.epochs=0", ["at least 1"]),
        ("runtime.threads=100000", ["runtime.threads = 100000", "1024"]),
        ("training.snapshots=[0, -1]", ["snapshots.1 = -1", "a whole number, at least 0"]),
        ("training.betas=[0.9, 1]", ["betas.1 = 1", "a number, at least 0 and below 1"]),
        ("training.accumulate=3", ["must be a multiple of accumulate = 3"]),
        ("training.epochs=", ["no value", "null"]),
        ("training.epochs", ["KEY=VALUE"]),
        ("=3", ["KEY=VALUE"]),
        ("training.epoch=3", ["'training.epochs'"]),
        ("trainig.epochs=3", ["'training.epochs'"]),
        ("training.lr.x=3", ["'training.lr' is one value"]),
        ("training=3", ["is a section", "training.epochs"]),
        ("training.augmentation=3", ["is a section", "training.augmentation.flip"]),
        ("training.augmentation.flipp=true", ["'training.augmentation.flip'"]),
        ("data.epochs=3", ["'training.epochs'"]),
        ("training..epochs=3", ["no path of names"]),
        ("training.epochs=[1", ["not valid YAML"]),
        ("training.epochs=&a 3", ["anchors"]),
        ("training.epochs=!!int 3", ["tags"]),
        ("runtime.precision=fp31", ["mean 'fp32'"]),
        ("settings=3", ["settings = 3", "mapping"]),
        ("model.args=3", ["model.args = 3", "mapping"]),
        ("method=null", ["expected text"]),
    ],
)
def test_wrong_ones_name_the_override(load, override, words):
    message = told(load, override)
    assert message.startswith(f"--set {override}")
    assert "\n" not in message
    for word in words:
        assert word in message


@pytest.mark.parametrize("override", ["training.lr=1\n2", "training\nlr=1", "training.lr\n"])
def test_one_of_several_lines_is_told_in_one(load, override):
    message = told(load, override)
    assert message.startswith(f"--set {' '.join(override.split())}: ")
    assert "\n" not in message


def test_several_wrong_ones_are_told_at_once(load):
    assert len(told(load, "training.epochs", "foo=[").splitlines()) == 2
    assert len(told(load, "training.epochs=0", "runtime.threads=0").splitlines()) == 2


def test_bare_settings_go_to_the_part_that_has_them(load):
    parts = ["attentiondrop-blur", "consistency"]
    given = settings_for(load("p=0.3", "lam=2", "sigma_max=0.5"), parts, FIELDS)
    assert given == {"attentiondrop-blur": {"p": 0.3, "sigma_max": 0.5}, "consistency": {"lam": 2}}


def test_settings_named_by_method_win_over_bare_ones_and_over_the_recipe(load):
    parts = ["attentiondrop-blur", "dropout"]
    assert settings_for(load(), parts, FIELDS)["dropout"] == {"p": 0.2}
    for overrides in (["dropout.p=0.4"], ["settings.dropout.p=0.4"]):
        given = settings_for(load(*overrides), parts, FIELDS)
        assert given == {"attentiondrop-blur": {}, "dropout": {"p": 0.4}}
    given = settings_for(load("dropout.p=0.4", "p=0.1"), ["dropout"], FIELDS)
    assert given == {"dropout": {"p": 0.4}}


def test_underscores_may_stand_for_hyphens(load):
    given = settings_for(load("attentiondrop_blur.p=0.4"), ["attentiondrop-blur"], FIELDS)
    assert given == {"attentiondrop-blur": {"p": 0.4}}


@pytest.mark.parametrize(
    ("override", "parts", "words"),
    [
        ("p=0.3", ["attentiondrop-blur", "dropout"], ["attentiondrop-blur.p=", "dropout.p="]),
        ("q=0.3", ["dropout"], ["'dropout' has no setting 'q'"]),
        ("sigmamax=1", ["attentiondrop-blur"], ["did you mean 'sigma_max'"]),
        ("epochs=3", ["dropout"], ["training.epochs"]),
        ("p=0.3", ["none"], ["'none' has no setting 'p'", "no settings"]),
        ("consistency.lam=1", ["dropout"], ["no part of this run's method 'dropout'"]),
        ("dropot.p=1", ["dropout"], ["did you mean 'dropout'?"]),
        ("dropout.q=1", ["dropout"], ["'dropout' has no setting 'q'"]),
    ],
)
def test_settings_that_no_part_takes(load, override, parts, words):
    with pytest.raises(UsageError) as error:
        settings_for(load(override), parts, FIELDS)
    for word in words:
        assert word in str(error.value)
    assert "\n" not in str(error.value)


def test_a_wrong_setting_in_the_file_is_named(tmp_path):
    file = tmp_path / "tiny.yaml"
    file.write_text(
        "name: tiny\ndata: {name: digits}\nmodel: {name: vit}\n"
        "training: {epochs: 3, batch_size: 64}\nsettings: {dropout: {pp: 0.2}}\n"
    )
    with pytest.raises(UsageError, match=r"settings\.dropout\.pp.*no such setting.*'p'"):
        settings_for(load_recipe(file), ["dropout"], FIELDS)


@settings(max_examples=150, deadline=None)
@given(
    key=st.text(max_size=12)
    | st.sampled_from(["training.epochs", "training", "p", "model.args.x.y", "settings.a.b", "*"]),
    value=st.text(max_size=12) | st.sampled_from(["[", "{a: b}", "!x", "&a", "1e999", "\ud800"]),
)
@example("settings.*.p", "3")
@example("model.args.depth.x", "3")
@example("settings.dropout.p.q", "3")
def test_no_override_leads_to_a_traceback(key, value):
    with contextlib.suppress(UsageError):
        recipe = load_recipe("digits-vit", [f"{key}={value}"])
        settings_for(recipe, ["dropout"], FIELDS)
