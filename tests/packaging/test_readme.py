"""What README.md shows is what there is: its code runs as written, its commands exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer.main
import yaml

from attndrop_repro.cli.app import COMMANDS, app

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("code", python_blocks(), ids=["own-model", "names", "results"])
def test_code_runs_as_written(code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})


def test_every_command_is_in_the_table():
    section = README.split("\n## Commands\n")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE)
    listed = [name for cell in cells for name in re.findall(r"`([a-z]+)", cell)]
    assert sorted(listed) == sorted(name for names in COMMANDS.values() for name in names)


def test_every_command_line_has_commands_and_options_that_exist():
    group = typer.main.get_command(app)
    documents = README + (ROOT / "CONTRIBUTING.md").read_text()
    lines = re.findall(r"(?:^    |`)(attndrop [^`\n]+)", documents, re.MULTILINE)
    assert len(lines) > 5
    for line in lines:
        words = [word for word in shlex.split(line)[1:] if word != "..."]
        command = group
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        options = {name for parameter in command.params for name in parameter.opts}
        for word in words:
            if word.startswith("--"):
                assert word in options | {"--help"}, line


def test_links_and_pictures_in_the_repository_are_there():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if not target.startswith("https://"):
            assert (ROOT / target).exists(), target


@pytest.mark.parametrize("file", sorted((ROOT / "recipes").rglob("*.yaml")), ids=lambda f: f.stem)
def test_recipes_and_suites_name_their_own_command(file):
    name = yaml.safe_load(file.read_text())["name"]
    assert name == file.stem
    head = file.read_text().split(f"name: {name}")[0]
    assert re.search(rf"#   .*(train --recipe|reproduce --suite) {name}\b", head)
