"""`errata`, `bound`: what they print and refuse."""

from __future__ import annotations

import json


def test_one_erratum_by_any_case(cli):
    ran = cli("errata", "e6")
    assert ran.code == 0
    assert ran.out.startswith("E6  ")
    assert "confirmed" in ran.out
    assert "0.212" in ran.out


def test_errata_as_json(cli):
    ran = cli("errata", "X7", "E10", "--json")
    assert [row["id"] for row in json.loads(ran.out)] == ["X7", "E10"]


def test_a_wrong_erratum_is_one_line(cli):
    ran = cli("errata", "E18")
    assert ran.code == 2
    assert ran.out == ""
    assert "unknown erratum 'E18'" in ran.err
    assert len(ran.err.strip().splitlines()) == 1


def test_markdown_is_the_whole_page(cli):
    assert cli("errata", "E1", "--markdown").code == 2


def test_bound_shows_where_the_printed_one_fails(cli):
    ran = cli("bound", "--sigma", "0.2", "--sigma", "0.3")
    assert ran.code == 0
    assert "0.992" in ran.out
    assert "root of a negative number" in ran.out
    assert "0.241975" in ran.out


def test_bound_as_json(cli):
    found = json.loads(cli("bound", "--sigma", "0.3", "--json").out)
    assert found["printed"][0]["fails"] is True
    assert found["printed"][0]["bound"] is None
    assert found["valid"] == []


def test_bad_sigma_and_unknown_run(cli):
    assert cli("bound", "--sigma", "0").code == 2
    assert cli("bound", "--run", "nosuch").code != 0
