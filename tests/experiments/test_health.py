"""What `doctor` finds when something is wrong; each finding has a remedy."""

from __future__ import annotations

import sys
from importlib import metadata
from types import SimpleNamespace

import pytest

from attndrop_repro.experiments import health


@pytest.mark.parametrize(
    ("torch", "torchvision", "state"),
    [
        ("torch 2.14.1+cpu", "torchvision 0.29.1+cpu", "ok"),
        ("torch 2.9.1", "torchvision 0.24.1", "ok"),
        ("torch 2.14.1", "torchvision 0.24.1", "problem"),
        ("torch 3.0.0", "torchvision 1.0.0", "ok"),
        ("torch unknown", "torchvision 0.24.1", "ok"),
    ],
)
def test_pairs_of_torch_and_torchvision(torch, torchvision, state):
    found = health.pairing(torch, torchvision)
    assert found.state == state
    assert bool(found.remedy) == (state == "problem")


def test_a_torchvision_that_does_not_import(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    found = health._torch()
    assert found.state == "problem"
    assert "torchvision does not import" in found.found


def test_missing_and_old_packages_are_named(monkeypatch):
    def version(name: str) -> str:
        if name == "timm":
            raise metadata.PackageNotFoundError
        return "0.1" if name == "typer" else "999"

    wanted = ["timm>=1", "typer>=0.29", "numpy", 'ray>=2 ; extra == "ray"']
    monkeypatch.setattr(health.metadata, "requires", lambda name: wanted)
    monkeypatch.setattr(health.metadata, "version", version)
    found = health._dependencies()
    assert found.state == "problem"
    assert found.found == "timm is missing; typer is 0.1, not >=0.29"


def test_not_installed_at_all(monkeypatch):
    def requires(name: str) -> list[str]:
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(health.metadata, "requires", requires)
    assert health._dependencies().state == "note"


def test_a_full_disk(monkeypatch, tmp_path):
    monkeypatch.setattr(health.shutil, "disk_usage", lambda path: SimpleNamespace(free=10**6))
    found = {check.name: check for check in health._store(tmp_path / "new" / "results")}
    assert found["results"].state == "ok"
    assert found["disk"].state == "problem"
    assert not (tmp_path / "new").exists()  # looking changes nothing


def test_a_folder_that_cannot_be_written(monkeypatch, tmp_path):
    def refuse(**options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(health.tempfile, "NamedTemporaryFile", refuse)
    (found,) = health._store(tmp_path)
    assert (found.state, found.remedy) == ("problem", "choose another folder with --results DIR")


def test_little_memory_is_worth_a_note(monkeypatch):
    monkeypatch.setattr(health.os, "sysconf", lambda name: 1024)
    found = health._memory()
    assert found.state == "note"
    assert "--jobs 1" in found.remedy


def test_memory_that_the_system_does_not_tell(monkeypatch):
    def unknown(name):
        raise ValueError(name)

    monkeypatch.setattr(health.os, "sysconf", unknown)
    assert health._memory().found.startswith("unknown")
