"""The design's arrows: who may import whom, and what must not wait for torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

PACKAGE = "attndrop_repro"
ROOT = Path(__file__).parents[1] / PACKAGE

# cli -> experiments, report -> training, evaluation, theory -> adapters, models, data -> methods ->
# functional; config, store and randomness are below all. A part may import itself and lower levels.
LEVELS = (
    {"config", "store", "randomness"},
    {"functional"},
    {"methods"},
    {"adapters", "models", "data"},
    {"training", "evaluation", "theory"},
    {"experiments", "report"},
    {"cli"},
)
LEVEL = {part: level for level, parts in enumerate(LEVELS) for part in parts}
# Arrows inside a level, one way too: runs are specified by recipes; what is measured is a model
# with its data and its handle (`models.subject`); `reproduce` ends in a report.
BESIDE = {
    ("store", "config"),
    ("models", "adapters"),
    ("models", "data"),
    ("experiments", "report"),
}
# Of these, nothing that runs when they are imported may load torch, which takes seconds.
HEAVY = {"torch", "torchvision", "timm", "transformers", "torchattacks", "torchmetrics"}


def imported(tree: ast.AST, module: str) -> Iterator[tuple[int, str]]:
    """Every import in a file, also inside functions and under TYPE_CHECKING: line, full name."""
    parents = module.split(".")
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*parents[: len(parents) - node.level], *filter(None, [base])])
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"
        elif isinstance(node, ast.Call) and _is_import_call(node.func):
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield node.lineno, first.value


def _is_import_call(function: ast.expr) -> bool:
    name = getattr(function, "attr", getattr(function, "id", ""))
    return name in ("import_module", "__import__")


def part_of(name: str) -> str | None:
    """The part of the package that a full name lies in; None for others and the package itself."""
    words = name.split(".")
    return words[1] if words[0] == PACKAGE and len(words) > 1 and words[1] in LEVEL else None


def violations(root: Path) -> list[str]:
    found = []
    for path in sorted(root.rglob("*.py")):
        words = path.relative_to(root.parent).with_suffix("").parts
        here = words[1] if len(words) > 2 else words[-1]
        if here in ("__init__", "__main__"):
            continue  # the front door: it lends names of all parts, when asked
        where = path.relative_to(root.parent)
        if here not in LEVEL:
            found.append(f"{where}:1: {here!r} is no part of the design")
            continue
        for line, name in imported(ast.parse(path.read_text()), ".".join(words)):
            there = part_of(name)
            if there is None or there == here or (here, there) in BESIDE:
                continue
            if LEVEL[there] >= LEVEL[here]:
                found.append(f"{where}:{line}: {here} must not import {there}")
            elif here == "report" and there not in LEVELS[0]:
                found.append(f"{where}:{line}: report reads the store only, not {there}")
    return found


def test_arrows_point_one_way():
    assert violations(ROOT) == [], "\n" + "\n".join(violations(ROOT))


def test_arrows_inside_a_level_make_no_circle():
    assert not {source for source, _ in BESIDE} & {target for _, target in BESIDE}
    assert all(LEVEL[source] == LEVEL[target] for source, target in BESIDE)


def test_report_names_no_heavy_library():
    found = [
        f"{path.relative_to(ROOT.parent)}:{line}: {name}"
        for path in sorted((ROOT / "report").rglob("*.py"))
        for line, name in imported(ast.parse(path.read_text()), "x.y.z")
        if name.split(".")[0] in HEAVY
    ]
    assert found == []


@pytest.mark.parametrize(
    ("where", "code", "line"),
    [
        ("functional/a.py", "import attndrop_repro.methods", 1),
        ("functional/a.py", "import torch\nfrom attndrop_repro.methods import none", 2),
        ("functional/a.py", "from attndrop_repro import methods", 1),
        ("functional/a.py", "def f():\n    from attndrop_repro.cli.main import x", 2),
        (
            "config/a.py",
            """
            from typing import TYPE_CHECKING
            if TYPE_CHECKING:
                from attndrop_repro.methods.base import Method
            """,
            3,
        ),
        ("config/a.py", "from attndrop_repro.store import Store", 1),
        ("config/a.py", "import importlib\nimportlib.import_module('attndrop_repro.data')", 2),
        ("store/a.py", "from attndrop_repro.randomness import derive", 1),
        ("store/a.py", "from ..training import train", 1),
        ("data/base.py", "from .. import models", 1),
        ("adapters/a.py", "from attndrop_repro.data import load", 1),
        ("training/deep/a.py", "from ...evaluation import measure", 1),
        ("report/a.py", "from attndrop_repro.evaluation import calibration", 1),
        ("report/a.py", "from attndrop_repro.experiments import jobs", 1),
        ("randomness.py", "import attndrop_repro.config.errors", 1),
        ("utils/a.py", "", 1),
        ("helpers.py", "", 1),
    ],
)
def test_a_planted_violation_is_caught(tmp_path, where, code, line):
    path = tmp_path / PACKAGE / where
    path.parent.mkdir(parents=True)
    path.write_text(dedent(code).strip())
    (found,) = violations(tmp_path / PACKAGE)
    assert found.startswith(f"{PACKAGE}/{where}:{line}: ")


@pytest.mark.parametrize(
    ("where", "code"),
    [
        ("__init__.py", "from attndrop_repro import methods"),
        ("cli/train.py", "from attndrop_repro import __version__\nimport attndrop_repro.training"),
        ("store/a.py", "from attndrop_repro.config.spec import RunSpec\nfrom . import schema"),
        ("store/deep/a.py", "from ..schema import SCHEMA\nfrom ...config import errors"),
        ("experiments/a.py", "from attndrop_repro.report.build import build_report"),
        ("methods/a.py", "import timm\nfrom attndrop_repro.functional import kl"),
    ],
)
def test_arrows_that_are_allowed(tmp_path, where, code):
    path = tmp_path / PACKAGE / where
    path.parent.mkdir(parents=True)
    path.write_text(code)
    assert violations(tmp_path / PACKAGE) == []


def test_parts_that_must_not_wait_for_torch():
    code = f"""
        import importlib, pkgutil, sys
        for part in ("config", "store", "report"):
            package = importlib.import_module("{PACKAGE}." + part)
            for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
                importlib.import_module(module.name)
                heavy = {HEAVY!r} & set(sys.modules)
                assert not heavy, (module.name, heavy)
    """
    done = subprocess.run(
        [sys.executable, "-c", dedent(code)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
