"""The help of every command, frozen: `pytest tests/cli --freeze` writes it anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main

from attndrop_repro.cli.app import COMMANDS, app

SNAPSHOTS = Path(__file__).parent / "snapshots"


def paths() -> Iterator[tuple[str, ...]]:
    yield ()
    for name, command in typer.main.get_command(app).commands.items():
        yield (name,)
        for inner in getattr(command, "commands", {}):
            yield (name, inner)


@pytest.mark.parametrize("path", list(paths()), ids=" ".join)
def test_help_is_as_frozen_and_has_an_example(cli, path, request):
    ran = cli(*path, "--help")
    assert ran.code == 0
    text = "\n".join(line.rstrip() for line in ran.out.splitlines()).strip() + "\n"
    assert max(map(len, text.splitlines())) <= 80
    assert " ".join(["Example: attndrop", *path]).strip() in " ".join(text.split())
    snapshot = SNAPSHOTS / f"{'-'.join(path) or 'attndrop'}.txt"
    if request.config.getoption("--freeze", default=False):
        snapshot.parent.mkdir(exist_ok=True)
        snapshot.write_text(text)
    assert text == snapshot.read_text()


def test_no_snapshot_of_a_command_that_is_gone():
    frozen = {file.stem for file in SNAPSHOTS.glob("*.txt")}
    assert frozen == {"-".join(path) or "attndrop" for path in paths()}


def test_commands_are_listed_once_each():
    listed = [name for names in COMMANDS.values() for name in names]
    assert len(set(listed)) == len(listed)
