"""`methods`, `recipes`, `datasets`, `doctor`, `errata`: lists for people and for programs."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
import yaml

from attndrop_repro import methods

CONTRIBUTING = (Path(__file__).resolve().parents[2] / "CONTRIBUTING.md").read_text()


@pytest.fixture
def toy_method(tmp_path, monkeypatch):
    """The method that CONTRIBUTING.md shows, as one new file and no other edit."""
    (code,) = re.findall(r"```python\n(.*?)```", CONTRIBUTING, re.DOTALL)
    folder = tmp_path / "more"
    folder.mkdir()
    (folder / "key_noise.py").write_text(code)
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(folder)])
    yield "key-noise"
    methods.registry._METHODS.pop("key-noise", None)
    sys.modules.pop("attndrop_repro.methods.key_noise", None)


def test_every_method_is_listed_with_its_reference(cli):
    ran = cli("methods")
    listed = json.loads(cli("methods", "--json").out)
    assert [method["name"] for method in listed] == methods.registry.names()
    for method in listed:
        assert method["name"] in ran.out
        assert method["reference"]
        assert all(item["description"] for item in method["settings"])
    assert "Reconstruction" in next(m["reference"] for m in listed if m["name"] == "attendout")


def test_a_composition_is_shown_part_by_part(cli):
    ran = cli("methods", "show", "consistency+attentiondrop-blur")
    assert ran.code == 0
    assert ran.out.index("attentiondrop-blur") < ran.out.index("name       consistency")
    assert "sigma_max = 0.5   [0, inf)" in ran.out
    parts = json.loads(cli("methods", "show", "attentiondrop-hard", "--json").out)
    ranges = {item["name"]: item["range"] for item in parts[0]["settings"]}
    assert ranges["p"] == "[0, 1]"
    assert ranges["mode"] == "zero | drop"


def test_parts_that_do_not_compose_are_named(cli):
    ran = cli("methods", "show", "rdrop+consistency")
    assert ran.code == 2
    assert "objective" in ran.err


def test_a_method_in_a_new_file_is_listed_and_trained_with_no_other_edit(cli, toy_method, tiny):
    assert toy_method in cli("methods").out
    assert "half width" in cli("methods", "show", toy_method).out
    ran = cli("train", "--recipe", "tiny.yaml", "--method", f"{toy_method}+consistency",
              "--set", "scale=0.5", "--dry-run")  # fmt: skip
    assert ran.code == 0, ran.err
    assert yaml.safe_load(ran.out)["settings"][toy_method] == {"scale": 0.5}


def test_recipes(cli):
    assert "digits-vit" in cli("recipes").out
    listed = json.loads(cli("recipes", "--json").out)
    assert "digits-vit" in [recipe["name"] for recipe in listed]
    ran = cli("recipes", "show", "digits-vit")
    assert ran.out.startswith("# A small Vision Transformer")
    assert yaml.safe_load(ran.out)["name"] == "digits-vit"
    assert json.loads(cli("recipes", "show", "digits-vit", "--json").out)["header"]


def test_datasets(cli):
    assert "digits" in cli("datasets").out
    listed = {entry["name"]: entry for entry in json.loads(cli("datasets", "--json").out)}
    assert listed["digits"]["layout"] == ""
    assert "none needed" in cli("datasets", "show", "digits").out
    assert json.loads(cli("datasets", "show", "digits", "--json").out) == listed["digits"]


def test_doctor_says_what_it_finds(cli):
    ran = cli("doctor")
    assert ran.code == 0, ran.out
    checks = {check["name"]: check for check in json.loads(cli("doctor", "--json").out)}
    assert {"python", "packages", "torch", "cores", "memory", "results", "disk"} <= set(checks)
    assert checks["data: digits"]["found"] == "1,797 images"
    assert not [check for check in checks.values() if check["state"] == "problem"]


def test_doctor_fails_on_results_that_cannot_be_written(cli, tmp_path):
    (tmp_path / "file").write_text("")
    ran = cli("--results", "file", "doctor", "--json")
    assert ran.code == 1
    problems = [check for check in json.loads(ran.out) if check["state"] == "problem"]
    assert [check["name"] for check in problems] == ["results"]
    assert problems[0]["remedy"]


def test_errata(cli):
    ran = cli("errata", "E6", "x1", "--json")
    assert [row["id"] for row in json.loads(ran.out)] == ["E6", "X1"]
    assert "'E6'" in cli("errata", "E66").err
