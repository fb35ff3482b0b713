"""Recipes: what is wrong is named with file, line, what is allowed, and the nearest name."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attndrop_repro.config.errors import AttndropError, UsageError
from attndrop_repro.config.load import dump_recipe, load_recipe
from attndrop_repro.config.paths import header, recipe_file, recipe_names

GOOD = """\
name: tiny
data:
  name: digits
  test: 0.25
model:
  name: vit_tiny_patch16_224
training:
  epochs: 3
  batch_size: 64
method: none
"""


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "tiny.yaml"
    file.write_text(text)
    return file


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(UsageError) as error:
        load_recipe(write(tmp_path, text))
    return str(error.value).splitlines()


def test_defaults_are_filled_in(tmp_path):
    recipe = load_recipe(write(tmp_path, GOOD))
    assert recipe.method == "none"
    assert recipe.training.epochs == 3
    assert recipe.runtime.threads == 1
    assert recipe.evaluation.attack.eps[-1] == "8/255"


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("epochs: 3", "epochs: 0", 8, ["training.epochs = 0", "whole number, at least 1"]),
        ("epochs: 3", "epochs: three", 8, ["training.epochs = 'three'", "whole number"]),
        ("epochs: 3", "epochs: '3'", 8, ["training.epochs = '3'", "whole number"]),
        ("epochs: 3", "epochs: true", 8, ["training.epochs = true", "whole number"]),
        ("epochs: 3", "epochs: 2.5", 8, ["training.epochs = 2.5", "whole number"]),
        ("epochs: 3", "epochs: null", 8, ["training.epochs = null", "whole number"]),
        ("epochs: 3", "epohcs: 3", 8, ["unknown key", "'training.epochs'"]),
        ("epochs: 3", "epochs: [3]", 8, ["training.epochs = [3]", "whole number"]),
        ("epochs: 3", "epoch: 3", 8, ["unknown key 'training.epoch'", "'training.epochs'"]),
        ("test: 0.25", "test: 1.5", 4, ["data.test = 1.5", "above 0 and below 1, or null"]),
        ("method: none", "method: null", 10, ["method = null", "expected text"]),
        ("method: none", "method: 12", 10, ["method = 12", "put it in quotes"]),
        ("method: none", "epochs: 5", 10, ["unknown key 'epochs'", "'training.epochs'"]),
        ("method: none", "runtime: {threds: 2}", 10, ["'runtime.threds'", "'runtime.threads'"]),
        ("method: none", "runtime: {compile: yes}", 10, ["'yes'", "expected true or false"]),
        ("method: none", "runtime: 3", 10, ["runtime = 3", "is a section"]),
        ("method: none", "runtime: {precision: fp23}", 10, ["fp64, fp32", "mean 'fp32'"]),
        ("method: none", "settings: {dropkey: 3}", 10, ["settings", "a mapping"]),
        ("method: none", "settings: {Drop key: {p: 1}}", 10, ["'Drop key' is no method's name"]),
        ("name: tiny", "name: Tiny Recipe", 1, ["'Tiny Recipe'", "lower-case"]),
        ("name: tiny", "name: ../tiny", 1, ["'../tiny'", "lower-case"]),
        ("name: tiny", "task: translate\nname: x", 1, ["task = 'translate'", "one of"]),
        (
            "method: none",
            "evaluation: {attack: {eps: [1/255, '8']}}",
            10,
            ["evaluation.attack.eps.1", "outside [0, 1]", "8/255?"],
        ),
        (
            "method: none",
            "evaluation: {attack: {step_size: 1/0}}",
            10,
            ["evaluation.attack.step_size", "divides by zero"],
        ),
        ("batch_size: 64", "batch_size: 64\n  accumulate: 5", 7, ["multiple of accumulate"]),
        (
            "batch_size: 64",
            "batch_size: 64\n  snapshots: [-1]",
            10,
            ["snapshots.0 = -1", "at least 0"],
        ),
        ("batch_size: 64", "batch_size: 64\n  snapshots: 0,5", 10, ["list of whole numbers"]),
        ("batch_size: 64", "batch_size: 64\n  betas: [0.9]", 10, ["betas", "2 numbers"]),
        ("batch_size: 64", "batch_size: 64\n  lr: .nan", 10, ["training.lr", "a number, above 0"]),
        ("  batch_size: 64\n", "", 7, ["training.batch_size is missing", "at least 1"]),
        ("data:\n  name: digits\n  test: 0.25\n", "", 1, ["data is missing"]),
    ],
)
def test_one_problem_one_line(tmp_path, old, new, line, words):
    assert old in GOOD
    told = problems(tmp_path, GOOD.replace(old, new))
    assert len(told) == 1, told
    assert f"tiny.yaml:{line}: " in told[0]
    for word in words:
        assert word in told[0]


def test_several_problems_are_told_at_once(tmp_path):
    text = GOOD.replace("epochs: 3", "epochs: 0").replace("test: 0.25", "tset: 0.25")
    assert len(problems(tmp_path, text + "runtime:\n  threads: 0\n")) == 3


def test_a_list_element_is_named_by_its_line(tmp_path):
    text = GOOD + "evaluation:\n  gradient_variance:\n    epochs:\n      - 0\n      - ten\n"
    (told,) = problems(tmp_path, text)
    assert "tiny.yaml:15: evaluation.gradient_variance.epochs" in told


def test_words_of_yaml_1_1_stay_text(tmp_path):
    for word in ("no", "on", "off", "yes", "n"):
        recipe = load_recipe(write(tmp_path, GOOD.replace("method: none", f"method: {word}")))
        assert recipe.method == word


def test_numbers_are_read_as_people_write_them(tmp_path):
    text = GOOD.replace("batch_size: 64", "batch_size: 64\n  lr: 1e-3\n  weight_decay: 0")
    recipe = load_recipe(write(tmp_path, text))
    assert (recipe.training.lr, recipe.training.weight_decay) == (0.001, 0.0)


def test_dumped_recipe_is_read_back_equal(tmp_path):
    recipe = load_recipe(write(tmp_path, GOOD), ["training.epochs=7", "dropkey.p=1e-5"])
    assert load_recipe(write(tmp_path, dump_recipe(recipe))) == recipe


def test_every_recipe_that_ships_is_valid_named_as_its_file_and_has_a_header():
    assert "digits-vit" in recipe_names()
    for name in recipe_names():
        assert load_recipe(name).name == name
        # large ones are headed by their torchrun command
        assert f" train --recipe {name}" in header(recipe_file(name))


def test_unknown_names_and_files(tmp_path):
    for name, words in [
        ("digits-vitt", "unknown recipe 'digits-vitt'; did you mean 'digits-vit'?"),
        (str(tmp_path / "digits-vit.yml"), "does not exist; did you mean 'digits-vit'?"),
        (str(tmp_path), "is a folder"),
        ("./digits-vit", "does not exist"),
        ("", "names no recipe"),
        ("a\0b", "names no recipe"),
        ("x" * 5000, "unknown recipe"),
        ("/" + "x" * 5000, "does not exist"),
    ]:
        with pytest.raises(UsageError) as error:
            load_recipe(name)
        assert words in str(error.value)
        assert "\n" not in str(error.value)


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_no_recipe_text_leads_to_a_traceback(tmp_path_factory, data):
    lines = GOOD.splitlines()
    index = data.draw(st.integers(0, len(lines) - 1))
    junk = st.text(max_size=20) | st.sampled_from(
        ["training: [1]", "  ? x", "data: {name: 3, foo: {bar: [1, 2]}}", "evaluation: []", "a: !x"]
    )
    lines[index] = data.draw(junk)
    file = tmp_path_factory.getbasetemp() / "junk.yaml"
    file.write_text("\n".join(lines), encoding="utf-8", errors="replace")
    with contextlib.suppress(AttndropError):
        load_recipe(file)
