"""Exit statuses, errors in one line, nearest names, closed pipes, signals, start-up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from attndrop_repro import __version__
from attndrop_repro.cli import entry
from attndrop_repro.config.errors import AttndropError, UsageError

HEAVY = ("torch", "pandas", "timm", "matplotlib", "scipy", "sklearn", "pyarrow", "transformers")


@pytest.mark.parametrize("argv", [["--help"], ["train", "--help"], ["--version"]])
def test_help_needs_nothing_heavy(argv):
    program = (
        "import sys\n"
        "from attndrop_repro.cli import main\n"
        f"code = main({argv!r})\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
        "sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stderr.strip() == "[]"


def test_no_arguments_show_the_help(cli):
    ran = cli()
    assert ran.code == 0
    assert "Usage: attndrop" in ran.out


def test_version(cli):
    assert cli("--version").out == f"attndrop {__version__}\n"


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["trian"], "'train'"),
        (["train", "--recpie", "x"], "'--recipe'"),
        (["train"], "--recipe"),
        (["train", "--recipe", "digits-vit", "--seed", "x"], "should be a whole number"),
        (["train", "--recipe", "digits-vit", "--seed", "-1"], "should be at least 0"),
        (["train", "--recipe", "digits-vit", "--precision", "fp31"], "fp32"),
        (["train", "--recipe"], "--recipe"),
        (["train", "--recipe", "digits-vti"], "'digits-vit'"),
        (["train", "--recipe", "digits-vit", "--method", "nonne"], "'none'"),
        (["train", "--recipe", "digits-vit", "--set", "training.epcohs=3"], "training.epochs"),
        (["train", "--quiet", "--recipe", "digits-vit"], "before the command"),
        (["methods", "show", "nonne"], "'none'"),
        (["methods", "show", "blur"], "did you mean 'attentiondrop-blur'?"),
        (["recipes", "show", "digits"], "digits-vit"),
        (["datasets", "show", "digit"], "'digits'"),
        (["report", "--suite", "digit"], "'digits'"),
        (["reproduce", "--jobs", "0"], "--jobs"),
    ],
)
def test_wrong_usage_is_one_line_with_the_nearest_name(cli, argv, expected):
    ran = cli(*argv)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.startswith("attndrop: error: ")
    assert ran.err.count("\n") == 1
    assert expected in ran.err
    assert "Traceback" not in ran.err


def test_every_problem_of_a_recipe_has_its_line(cli, tmp_path):
    (tmp_path / "bad.yaml").write_text("name: bad\nmodle: {}\ndata: {name: 3}\n")
    ran = cli("train", "--recipe", "bad.yaml", "--dry-run")
    assert ran.code == 2
    lines = ran.err.splitlines()
    assert len(lines) > 1
    assert all(line.startswith("attndrop: error: ") for line in lines)
    assert "bad.yaml:2" in ran.err


def raising(monkeypatch, error):
    from attndrop_repro.cli import doctor
    from attndrop_repro.experiments import health

    def check(results):
        raise error

    monkeypatch.setattr(health, "check", check)
    return doctor


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (AttndropError("no room"), 1, "no room"),
        (UsageError("no such thing"), 2, "no such thing"),
        (OSError(28, "No space left on device", "/a/b"), 1, "No space left on device: /a/b"),
        (PermissionError(13, "Permission denied", "/a"), 1, "Permission denied: /a"),
        (MemoryError(), 1, "out of memory"),
        (ValueError("odd\nthing"), 1, "ValueError: odd thing"),
    ],
)
def test_errors_are_one_line_and_debug_shows_where(cli, monkeypatch, error, code, text):
    raising(monkeypatch, error)
    ran = cli("doctor")
    assert ran.code == code
    assert text in ran.err
    assert ran.err.count("\n") == 1
    assert "Traceback" not in ran.err
    ran = cli("--debug", "doctor")
    assert ran.code == code
    assert "Traceback" in ran.err


def test_interrupted_and_terminated_have_their_own_status(cli, monkeypatch):
    raising(monkeypatch, KeyboardInterrupt())
    ran = cli("doctor")
    assert ran.code == 130
    assert ran.err.count("\n") == 1

    from attndrop_repro.experiments import health

    monkeypatch.setattr(health, "check", lambda results: os.kill(os.getpid(), signal.SIGTERM))
    before = signal.getsignal(signal.SIGTERM)
    ran = cli("doctor")
    assert ran.code == 143
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_closed_pipe_is_quiet():
    command = f"{sys.executable} -m attndrop_repro --help | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stdout.strip() == "0"
    assert done.stderr == ""


def test_a_pipe_that_closes_while_a_table_is_written(monkeypatch, cli):
    monkeypatch.setattr(entry, "_silence", lambda: None)
    raising(monkeypatch, BrokenPipeError())
    ran = cli("doctor")
    assert (ran.code, ran.err) == (0, "")


def test_names_from_outside_cannot_steer_the_terminal(cli):
    for arguments in (
        ("--results", "re\x1b[31ms", "runs"),
        ("train", "--recipe", "ev\x1b[2Jil.yaml"),
        ("train", "--recipe", "digits-vit", "--set", "data.name=\x1b]0;x\x07"),
        ("train", "--recipe", "digits-vit", "--data-dir", "no\u202ewhere"),
    ):
        ran = cli(*arguments)
        assert ran.code in (1, 2)
        assert all(char.isprintable() for char in ran.err.rstrip("\n"))
