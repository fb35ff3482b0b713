"""The command line in this process: arguments in; status, stdout and stderr out."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from attndrop_repro.cli import main


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


Cli = Callable[..., Ran]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--freeze", action="store_true", help="write the snapshots of help texts anew")


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Runs `attndrop ARGUMENTS` in a folder of its own, 80 columns wide and without colour."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("ATTNDROP_RESULTS", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)

    def run(*arguments: str) -> Ran:
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


TINY = """\
# The smallest training there is, for tests.
#
#   attndrop train --recipe tiny.yaml
name: tiny
data: {name: digits, validation: 0.2, test: 0.25, train_images: 64}
model:
  name: vit_tiny_patch16_224
  args: {patch_size: 4, embed_dim: 8, depth: 1, num_heads: 2, mlp_ratio: 1}
training: {epochs: 2, batch_size: 32, lr: 0.01, snapshots: [0, 2]}
evaluation:
  attack: {eps: ["1/255", "8/255"], steps: 2, limit: 16}
  gradient_variance: {epochs: [0, 2], examples: 8, draws: 2}
"""

SUITE = """\
name: tiny-suite
title: Two methods on a few digits
recipes: [tiny.yaml]
methods: [none, dropkey+consistency]
seeds: [0]
"""


@pytest.fixture
def tiny(cli: Cli, tmp_path: Path) -> Path:
    """The folder in which commands run, with `tiny.yaml` and `suite.yaml` in it."""
    (tmp_path / "tiny.yaml").write_text(TINY)
    (tmp_path / "suite.yaml").write_text(SUITE)
    return tmp_path


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one finished run; tests copy it before they change it."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "tiny.yaml").write_text(TINY)
    recipe = str(folder / "tiny.yaml")
    results = folder / "results"
    assert main(["--quiet", "--results", str(results), "train", "--recipe", recipe]) == 0
    return results


@pytest.fixture
def store(trained: Path, tiny: Path) -> Path:
    """A copy of `trained` where commands look for results by themselves."""
    shutil.copytree(trained, tiny / "results")
    return tiny / "results"
