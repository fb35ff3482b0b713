"""Suites, and where recipes and suites are found."""

import pytest

from attndrop_repro.config import paths
from attndrop_repro.config.errors import UsageError
from attndrop_repro.config.suite import load_suite

GOOD = """\
name: tiny
title: A tiny suite
recipes: [digits-vit]
methods:
  - none
  - dropout
seeds: [0, 1]
"""


def problems(tmp_path, text):
    file = tmp_path / "tiny.yaml"
    file.write_text(text)
    with pytest.raises(UsageError) as error:
        load_suite(file)
    return str(error.value).splitlines()


def test_digits_is_as_promised():
    suite = load_suite("digits")
    assert suite.recipes == ("digits-vit",)
    assert suite.methods == (
        "none",
        "dropout",
        "dropconnect",
        "rdrop",
        "attentiondrop-hard",
        "attentiondrop-blur",
        "attentiondrop-hard+consistency",
        "attentiondrop-blur+consistency",
    )
    assert suite.seeds == (0, 1, 2)
    assert suite.baseline == "none"
    assert suite.measure == ("eval", "calibrate", "attack", "gradvar")


def test_every_suite_that_ships_is_valid_and_named_as_its_file():
    for name in paths.suite_names():
        assert load_suite(name).name == name
        assert f"attndrop reproduce --suite {name}" in paths.header(paths.suite_file(name))


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("seeds: [0, 1]", "seeds: []", 7, "seeds"),
        ("seeds: [0, 1]", "seeds: [0, 0]", 7, "0 stands in it twice"),
        ("seeds: [0, 1]", "seeds: [-1]", 7, "at least 0"),
        ("seeds: [0, 1]", "seed: [0]", 7, "did you mean 'seeds'"),
        (
            "seeds: [0, 1]",
            "measure: [evil]",
            7,
            "measure.0 = 'evil': expected one of eval, calibrate, ",
        ),
        ("seeds: [0, 1]", "baseline: dropkey", 1, "must be one of the methods"),
        ("  - dropout", "  - none", 4, "'none' stands in it twice"),
        ("[digits-vit]", "[digits-vti]", 3, "did you mean 'digits-vit'"),
        ("title: A tiny suite\n", "", 1, "title is missing"),
        ("  - dropout", "  - null", 6, "methods.1 = null"),
    ],
)
def test_problems_have_their_line(tmp_path, old, new, line, words):
    assert old in GOOD
    (told,) = problems(tmp_path, GOOD.replace(old, new))
    assert f"tiny.yaml:{line}: " in told
    assert words in told


def test_unknown_suite_has_the_nearest_name():
    with pytest.raises(UsageError, match=r"unknown suite 'digit'; did you mean 'digits'\?"):
        load_suite("digit")


def test_a_wheel_finds_what_ships_in_it(tmp_path, monkeypatch):
    shipped = tmp_path / "attndrop_repro" / "_shipped" / "recipes" / "suites"
    shipped.mkdir(parents=True)
    (shipped.parent / "one.yaml").write_text("# One recipe.\n#\n#   attndrop ...\nname: one\n#x\n")
    monkeypatch.setattr(paths, "_PACKAGE", tmp_path / "attndrop_repro")
    assert paths.recipe_names() == ["one"]
    assert paths.suite_names() == []
    assert paths.header(paths.recipe_file("one")) == "One recipe.\n\n  attndrop ..."


def test_a_file_of_ones_own_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("name: mine\n")
    (tmp_path / "digits-vit").mkdir()
    assert paths.recipe_file("mine.yaml").name == "mine.yaml"
    assert paths.recipe_file("digits-vit").suffix == ".yaml"
