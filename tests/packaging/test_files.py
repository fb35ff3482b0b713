"""What makes a checkout usable: pins that fit, Makefile, continuous integration, citation."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
# `make test` runs this: what it tells a make that it starts must not reach the one started here
OUTSIDE_MAKE = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def pins(machine: str) -> dict[str, str]:
    found = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line.startswith("#") or not line.strip():
            continue
        pin = Requirement(line)
        (version,) = pin.specifier
        assert version.operator == "==", line
        if pin.marker is None or pin.marker.evaluate({"platform_machine": machine}):
            assert canonicalize_name(pin.name) not in found, line
            found[canonicalize_name(pin.name)] = version.version
    return found


@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "arm64"])
def test_every_requirement_is_pinned_within_its_range(machine):
    pinned = pins(machine)
    extras = [text for extra in PROJECT["optional-dependencies"].values() for text in extra]
    for text in [*PROJECT["dependencies"], *extras]:
        wanted = Requirement(text)
        if canonicalize_name(wanted.name) == canonicalize_name(PROJECT["name"]):
            continue
        version = pinned[canonicalize_name(wanted.name)]
        assert wanted.specifier.contains(version), f"{text} excludes the pinned {version}"


@pytest.mark.parametrize(
    ("machine", "torch", "torchvision"),
    [("x86_64", "2.14.1", "0.29.1"), ("aarch64", "2.9.1", "0.24.1")],
)
def test_torch_and_torchvision_belong_together(machine, torch, torchvision):
    pinned = pins(machine)
    assert (pinned["torch"], pinned["torchvision"]) == (torch, torchvision)
    assert Version(torchvision).minor == Version(torch).minor + 15


def test_what_torch_pins_itself_is_left_to_it():
    assert not [name for name in pins("x86_64") if name.startswith(("nvidia-", "cuda-", "triton"))]


def test_continuous_integration_runs_make_test():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    text = script.read_text()
    assert text.startswith("#!/usr/bin/env bash\n")
    assert "set -euo pipefail" in text
    assert text.rstrip().endswith("make test")


@pytest.mark.parametrize("target", ["demo", "test", "lint", "test-gpu"])
@pytest.mark.parametrize("python", ["", "/bin/false"])
def test_make_says_in_one_line_that_python_is_too_old(tmp_path, target, python):
    done = subprocess.run(
        ["make", target, f"PYTHON={python}", f"VENV={tmp_path / 'venv'}"],
        cwd=ROOT, capture_output=True, text=True, env=OUTSIDE_MAKE,
    )  # fmt: skip
    assert done.returncode == 2
    said = [line for line in done.stderr.splitlines() if "***" not in line]
    assert len(said) == 1
    assert "needs Python 3.11" in said[0]
    assert "PYTHON=/" in said[0]
    assert not (tmp_path / "venv").exists()


def test_make_demo_reuses_an_environment_that_is_up_to_date(tmp_path):
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    attndrop = venv / "bin" / "attndrop"
    attndrop.write_text('#!/bin/sh\necho "ran $@"\n')
    attndrop.chmod(0o755)
    (venv / ".installed").touch()
    command = ["make", "demo", f"VENV={venv}", "PYTHON=/bin/false"]
    # a make inside `make test` would say where it enters and leaves
    apart = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=apart)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "ran reproduce --suite digits"


def test_the_citation_has_what_the_format_asks_for():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"] == "Apache-2.0"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", str(citation["date-released"]))
    assert all("name" in author or "family-names" in author for author in citation["authors"])
    for work in citation["references"]:
        assert {"type", "title", "authors"} <= set(work)
