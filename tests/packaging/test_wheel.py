"""The wheel: what is in it, and that it finds its recipes from any folder, without a checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = out.glob("*.whl")
    return built


def test_recipes_suites_licence_and_package_data_are_in_it(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    shipped = "attndrop_repro/_shipped/recipes/"
    for file in (ROOT / "recipes").rglob("*.yaml"):
        assert shipped + file.relative_to(ROOT / "recipes").as_posix() in names
    tracked = subprocess.run(
        ["git", "ls-files", "attndrop_repro"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    assert not [name for name in tracked if name not in names]
    assert any(name.endswith("LICENSE") for name in names)
    assert not [name for name in names if name.startswith(("tests/", "recipes/"))]


def test_an_unpacked_wheel_finds_its_recipes_from_any_folder(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    program = (
        "import attndrop_repro, sys\n"
        "from attndrop_repro.cli import main\n"
        "print(attndrop_repro.__file__)\n"
        "sys.exit(main(['recipes', 'show', 'digits-vit']))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=elsewhere,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path / "site"))
    assert "name: digits-vit" in done.stdout


def test_the_version_is_one():
    import attndrop_repro

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == attndrop_repro.__version__
