"""A run's specification: what its hash holds and what it leaves out."""

import subprocess
import sys
from typing import Any

import pytest

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.config.recipe import Recipe
from attndrop_repro.config.spec import RunSpec, canonical_json


def recipe(**changes: Any) -> Recipe:
    tree: dict[str, Any] = {
        "name": "tiny",
        "data": {"name": "digits", "test": 0.25},
        "model": {"name": "vit", "args": {"depth": 3, "width": 48}},
        "training": {"epochs": 3, "batch_size": 64},
    }
    for path, value in changes.items():
        *sections, last = path.split("__")
        target = tree
        for section in sections:
            target = target.setdefault(section, {})
        target[last] = value
    return Recipe.model_validate(tree)


def spec(settings: dict[str, Any] | None = None, **changes: Any) -> RunSpec:
    fields = {k: changes.pop(k) for k in ("seed", "init_from", "method") if k in changes}
    given = {"dropkey": {"p": 0.1}} if settings is None else settings
    return RunSpec(
        recipe=recipe(**changes), settings=given, **{"method": "dropkey", "seed": 0, **fields}
    )


def test_golden_hash():
    # If this fails, every run of every store there is becomes another run.
    assert spec().config_hash == "dd761d8da479"
    assert spec().run_id == "tiny--dropkey--s0--dd761d8d"


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"seed": 5},
        {"training__snapshots": [0, 3]},
        {"training__checkpoint_every": 2},
        {"evaluation__ece_bins": 10},
        {"evaluation__attack__eps": ["1/255"]},
        {"method_default": None},
        {"settings_of_others": None},
        {"runtime__threads": 1},
        {"training__lr": 1e-3},
        {"model__args": {"width": 48, "depth": 3.0}},
    ],
)
def test_what_changes_no_number_changes_no_hash(change):
    if "method_default" in change:
        other = spec().model_copy(update={"recipe": recipe().model_copy(update={"method": "x"})})
    elif "settings_of_others" in change:
        filled = recipe().model_copy(update={"settings": {"dropout": {"p": 0.5}}})
        other = spec().model_copy(update={"recipe": filled})
    else:
        other = spec(**change)
    assert other.config_hash == spec().config_hash


@pytest.mark.parametrize(
    "change",
    [
        {"data__name": "cifar10"},
        {"data__split_seed": 1},
        {"data__label_noise": 0.2},
        {"model__args": {"depth": 4, "width": 48}},
        {"training__epochs": 4},
        {"training__lr": 2e-3},
        {"training__ema": 0.99},
        {"training__augmentation__flip": True},
        {"runtime__threads": 2},
        {"runtime__precision": "fp64"},
        {"method": "dropout"},
        {"settings": {"dropkey": {"p": 0.2}}},
        {"settings": {"dropkey": {"p": 0.1, "q": None}}},
        {"init_from": "0123456789abcdef"},
    ],
)
def test_what_changes_numbers_changes_the_hash(change):
    assert spec(**change).config_hash != spec().config_hash


def test_hash_is_equal_in_other_processes_and_for_other_orders():
    code = (
        "from attndrop_repro.config.recipe import Recipe\n"
        "from attndrop_repro.config.spec import RunSpec\n"
        "recipe = Recipe.model_validate({'training': {'batch_size': 64, 'epochs': 3},"
        " 'model': {'args': {'width': 48, 'depth': 3}, 'name': 'vit'},"
        " 'data': {'test': 0.25, 'name': 'digits'}, 'name': 'tiny'})\n"
        "print(RunSpec(seed=0, settings={'dropkey': {'p': 0.1}}, method='dropkey',"
        " recipe=recipe).config_hash)\n"
    )
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == spec().config_hash


def test_defaults_that_hashes_rest_on():
    # Fields at their defaults are not hashed, so that new fields orphan no run. The price: a
    # default must never change. To change what people get, change the recipes.
    tree = recipe().model_dump(mode="json")
    pinned = {
        "task": "image-classification",
        "runtime": {"threads": 1, "precision": "fp32", "compile": False, "deterministic": True},
        "data": {
            "image_size": None,
            "train_images": None,
            "validation": 0.1,
            "split_seed": 0,
            "label_noise": 0.0,
        },
        "training": {
            "accumulate": 1,
            "optimizer": "adamw",
            "lr": 1e-3,
            "betas": [0.9, 0.999],
            "momentum": 0.9,
            "weight_decay": 0.05,
            "schedule": "cosine",
            "warmup_epochs": 0,
            "warmup_lr": 1e-6,
            "min_lr": 1e-6,
            "label_smoothing": 0.0,
            "clip_grad": None,
            "ema": None,
        },
    }
    for section, content in pinned.items():
        if isinstance(content, dict):
            assert {key: tree[section][key] for key in content} == content
        else:
            assert tree[section] == content
    off = {
        "auto": None,
        "random_resized_crop": None,
        "mix_probability": 1,
        "switch_probability": 0.5,
    }
    for key, value in tree["training"]["augmentation"].items():
        assert value == off.get(key, 0), key


def test_json_round_trip_is_exact():
    one = spec(settings={"a": {"x": 0.1 + 0.2, "n": 2**60, "t": "none", "l": [1, None, True]}})
    again = RunSpec.from_json(one.to_json())
    assert again == one
    assert again.config_hash == one.config_hash
    assert again.settings["a"]["x"] == 0.1 + 0.2


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"recipe": 3}', "null", "\x00"])
def test_other_json_is_refused_in_one_line(text):
    with pytest.raises(AttndropError) as error:
        RunSpec.from_json(text)
    assert "\n" not in str(error.value)


def test_columns():
    columns = spec(
        settings={
            "attentiondrop-blur": {"p": 0.3, "w": 5, "sigma_max": 1},
            "consistency": {"lam": 1},
        },
        method="attentiondrop-blur+consistency",
    ).columns()
    assert columns["p"] == 0.3
    assert columns["w"] == 5
    assert columns["k"] is None
    assert (columns["sigma_max"], columns["lam"]) == (1.0, 1.0)
    assert columns["settings"].startswith('{"attentiondrop-blur":{"p":0.3')
    assert columns["dataset"] == "digits"
    assert columns["threads"] == 1


@pytest.mark.parametrize(
    ("settings", "p"),
    [
        ({"a": {"p": 0.1}, "b": {"p": 0.1}}, 0.1),
        ({"a": {"p": 0.1}, "b": {"p": 0.2}}, None),
        ({"a": {"p": [0.1, 0.2]}}, None),
        ({"a": {"p": 0.1}, "b": {"p": {"kind": "linear"}}}, None),
        ({"a": {"p": True}}, None),
        ({"a": {"p": None}}, None),
        ({"a": {}}, None),
        ({"a": {"p": 0}}, 0.0),
    ],
)
def test_a_column_holds_what_the_parts_agree_on(settings, p):
    assert spec(settings=settings).columns()["p"] == p


def test_resolved_recipe_repeats_the_run():
    resolved = spec().resolved_recipe
    assert resolved.method == "dropkey"
    assert resolved.settings == {"dropkey": {"p": 0.1}}


def test_canonical_json_is_one_for_equal_content():
    assert canonical_json({"b": (1, 2.0), "a": {2, 1}}) == canonical_json(
        {"a": [1, 2], "b": [1, 2]}
    )
    assert canonical_json({"a": -0.0}) == canonical_json({"a": 0})
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical_json({"a": float("nan")})
