"""Bars on a terminal, few plain lines without; whole names; nothing that steers a terminal."""

from __future__ import annotations

import io
import json
import math
import sys

import pytest

from attndrop_repro.cli import output, progress
from attndrop_repro.cli.board import board
from attndrop_repro.cli.output import Column


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _plain(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("FORCE_COLOR", raising=False)


def test_plain_lines_are_rate_limited_and_end_with_the_last(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.show("work", quiet=False) as reporter:
        for step in range(1, 101):
            now[0] = step / 10
            reporter.update(step, 100, loss=1 / step, images_per_second=100.0)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("  ")[0] for line in lines] == [
        "work: 1/100",
        "work: 51/100",
        "work: 100/100",
    ]
    assert lines[1] == "work: 51/100  loss 0.01961  100 images/s  5 s left"


def test_quiet_shows_nothing(capsys):
    with progress.show("work", quiet=True) as reporter:
        reporter.update(1, 2)
        reporter.say("hello")
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_bar_and_markup_from_outside_is_text(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress.show("[red]run[/red]", quiet=False) as reporter:
        reporter.update(1, 2, loss=0.5)
        reporter.say("[bold]said[/bold]")
    shown = terminal.getvalue()
    assert "[red]run[/red]" in shown
    assert "[bold]said[/bold]" in shown
    assert "━" in shown


def test_what_matters_fits_beside_long_names_in_80_columns(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress.bars() as live:
        live.add_task("train attentiondrop-blur+consistency s0", total=None, fields="")
        fields = {"epoch": 3, "epochs": 40, "loss": 0.5, "images_per_second": 1500.0}
        shown = progress.fitting(live, fields)
    assert shown == "loss 0.5  epoch 3/40"
    assert len("train attentiondrop-blur+consistency s0") + len(shown) + 8 + 7 + 3 <= 80


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (-1, "0 s"), (59.4, "59 s"), (200, "3 min 20 s"), (18600, "5 h 10 min")],
)
def test_durations(seconds, text):
    assert progress.duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        (3.0, "3"),
        (0.123456, "0.1235"),
        (math.nan, "nan"),
        (1e20, "1e+20"),
        ("a", "a"),
        (9999.4, "9999"),
        (9999.5, "10,000"),
        (10849.7, "10,850"),
        (10850.0, "10,850"),
        (1234567.8, "1,234,568"),
    ],
)
def test_numbers(value, text):
    assert progress.number(value) == text


def test_names_are_never_cut_and_prose_wraps_within_80_columns(capsys):
    name = "digits-vit--attentiondrop-blur+consistency--s0--1a2b3c4d"
    output.emit_table([Column("run"), Column("what", prose=True)], [(name, "word " * 40)])
    lines = capsys.readouterr().out.splitlines()
    assert name in lines[1]
    assert len(lines) > 5
    assert all(line == line.rstrip() for line in lines)

    output.emit_table([Column("run"), Column("state"), Column("age")], [(name, "f" * 20, "9 min")])
    assert capsys.readouterr().out.splitlines()[1] == f"{name}  {'f' * 20}  9 min"

    output.emit_table([Column("name"), Column("what", prose=True)], [("x", "word " * 40)])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_control_characters_and_markup_of_a_name_stay_text(capsys):
    output.emit_table([Column("name")], [("\x1b[31mred\x07 [bold]b[/bold]",)])
    output.emit_fields([("name", "\x1b]0;title\x07")])
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "[bold]b[/bold]" in shown


def test_no_colour_without_a_terminal_or_where_it_is_not_wanted(monkeypatch):
    for wanted in ("1", ""):
        monkeypatch.setenv("NO_COLOR", wanted)
        stream = Terminal() if wanted else io.StringIO()
        monkeypatch.setattr(sys, "stdout", stream)
        output.emit_table([Column("name")], [("x",)])
        assert "\x1b[3" not in stream.getvalue()


def test_json_has_no_nan(capsys):
    output.emit_json({"a": [math.nan, math.inf, 1.5, None], 1: (2,)})
    assert json.loads(capsys.readouterr().out) == {"a": [None, None, 1.5, None], "1": [2]}


class Job:
    def __init__(self, key: str) -> None:
        self.key = key
        self.label = self.short = f"train {key}"


@pytest.mark.parametrize("terminal", [False, True])
def test_a_board_counts_jobs_and_names_failures(monkeypatch, tmp_path, terminal):
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    first, second = Job("a"), Job("b")
    with board(2, quiet=False) as shown:
        shown.started(first)
        shown.progress(first, 1, 2, {"loss": 0.25})
        shown.said(first, "resumed")
        shown.finished(first, 61)
        shown.started(second)
        shown.failed(second, "no room", tmp_path)
    text = stream.getvalue()
    assert "train a: resumed" in text
    assert "train b failed: no room" in text
    if not terminal:
        assert "[1/2] train a: 1 min 1 s" in text
        assert "[2/2] train b failed: no room" in text


def test_a_quiet_board_names_failures_only(capsys, tmp_path):
    with board(1, quiet=True) as shown:
        shown.started(Job("a"))
        shown.progress(Job("a"), 1, 2, {})
        shown.said(Job("a"), "resumed")
        shown.finished(Job("a"), 1)
        shown.failed(Job("a"), "no room", tmp_path)
    assert capsys.readouterr().err == "train a failed: no room\n"
