import dataclasses
import json
import os
import re
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.report import build
from attndrop_repro.report.build import build_report, render
from attndrop_repro.report.check import check_report, same_picture
from attndrop_repro.store import Store

VOID = {"meta", "input", "br", "link", "img", "wbr", "hr"}
EVIL = "<script>alert('x')</script>|`&\\end{table}%$"


class Page(HTMLParser):
    """Checks that tags are closed in order, and collects what tests ask about."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links, self.headings, self.tags = [], [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.tags.append((tag, given))
        if "id" in given:
            self.ids.append(given["id"])
        self.links += [given[name] for name in ("href", "src", "xlink:href") if name in given]
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        if tag not in VOID:
            self.handle_starttag(tag, attrs)
            self.open.pop()
        else:
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page(report):
    return Page(report["report.html"].decode())


def one_run_store(root, syn, methods=("none", "dropout"), seeds=(0, 1)):
    """A real store with synthetic numbers."""
    store = Store(root)
    fields = (
        "metric", "value", "split", "n", "epoch", "attack", "norm", "eps", "eps_label", "steps",
        "step_size", "restarts",
    )  # fmt: skip
    for method in methods:
        for seed in seeds:
            run = syn.run(method, seed)
            folder = store.begin_run(run.spec, {**run.provenance, "cwd": "/home/somebody"})
            for row in run.history:
                folder.append_history(row)
            if (method, seed) == ("dropout", 1):
                folder.set_status("failed", message="the loss is not finite")
                continue
            folder.set_status("finished", epoch=40)
            rows = [
                {key: row[key] for key in fields if key in row}
                | ({"detail": json.loads(row["detail"])} if "detail" in row else {})
                for row in syn.run_rows(run)
            ]
            store.write(run.run_id, rows, suite="synthetic")
    return store


def test_page_is_well_formed(page):
    assert len(page.ids) == len(set(page.ids))
    assert page.headings[0] == 1
    assert page.headings.count(1) == 1
    steps = zip(page.headings, page.headings[1:], strict=False)
    assert all(after - before <= 1 for before, after in steps)
    targets = [link[1:] for link in page.links if link.startswith("#")]
    assert set(targets) <= set(page.ids)


def test_page_needs_nothing_else(report, page):
    text = report["report.html"].decode()
    outside = [link for link in page.links if not link.startswith(("#", "figures/"))]
    assert outside == []
    assert not re.search(r"@import|@font-face|url\((?!#)", text)
    policy = next(a["content"] for t, a in page.tags if a.get("http-equiv"))
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-")
    assert len(text) < 1_500_000


def test_page_lets_only_its_own_script_run(report, page):
    import base64
    import hashlib

    text = report["report.html"].decode()
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = next(a["content"] for t, a in page.tags if a.get("http-equiv"))
    assert f"'sha256-{digest}'" in policy


def test_page_is_told_to_those_who_do_not_see_it(page):
    drawings = [a for t, a in page.tags if t == "svg" and a.get("role") == "img"]
    assert len(drawings) == 7
    assert all(len(a["aria-label"]) > 40 for a in drawings)
    marks = [a for t, a in page.tags if t == "svg" and a.get("class") == "mark"]
    assert marks
    assert all(a["aria-hidden"] == "true" for a in marks)
    regions = [a for t, a in page.tags if a.get("class", "").startswith("scroll")]
    assert all(a["tabindex"] == "0" and a["aria-label"] for a in regions)


def test_figures_on_the_page_follow_its_theme(report):
    text = report["report.html"].decode()
    drawings = re.findall(r"<!--figure-->(.*?)<!--/figure-->", text, re.DOTALL)
    assert len(drawings) == 7
    plain_colours = {colour for one in drawings for colour in re.findall(r": (#[0-9a-f]{6})", one)}
    assert plain_colours == set()
    variables = {name for one in drawings for name in re.findall(r"var\((--c[0-9a-f]{6}),", one)}
    dark = text[text.index("prefers-color-scheme: dark") :]
    assert all(f"{name}:" in dark for name in variables)


def test_report_has_every_format(report):
    names = set(report)
    tables = {"main", "differences", "robustness", "runs", "settings", "provenance"}
    for table in tables:
        assert {f"tables/{table}.csv", f"tables/{table}.tex"} <= names
    assert {"report.html", "report.md", "measurements.csv", "manifest.json"} <= names
    text = report["report.md"].decode()
    for name in re.findall(r"\]\((figures/[^)]+)\)", text):
        assert name in names
    assert text.index("## Summary") < text.index("## Results") < text.index("## Runs")
    assert "| `attentiondrop-blur+consistency` | 2 | 9" in text


def test_same_store_same_bytes_in_whatever_order_it_is_read(syn, report):
    source = syn.source()
    shuffled = dataclasses.replace(
        source, rows=tuple(reversed(source.rows)), runs=tuple(reversed(source.runs))
    )
    again = render(syn.suite(), shuffled)
    assert set(again) == set(report)
    assert [name for name in report if again[name] != report[name]] == []


def test_names_from_outside_are_text_everywhere(syn):
    runs = [syn.run("none", 0), syn.run(EVIL, 0), syn.run("x", 0, status="failed", message=EVIL)]
    suite = syn.suite(("none", EVIL, "x"), (0,)).model_copy(update={"title": EVIL})
    found = render(suite, syn.source(runs=runs))
    text = found["report.html"].decode()
    Page(text)
    assert "<script>alert" not in text
    assert text.count("<script>") == 1
    tokens = MarkdownIt("commonmark").enable("table").parse(found["report.md"].decode())
    kinds = {child.type for token in tokens for child in [token, *(token.children or ())]}
    assert not kinds & {"html_block", "html_inline"}
    for name, content in found.items():
        if name.endswith(".tex"):
            assert content.count(b"\\end{table}") == content.count(b"\\begin{table}")


def test_several_recipes_are_chapters_with_folders_of_their_own(syn):
    other = syn.RECIPE.model_copy(update={"name": "other-vit"})
    runs = [syn.run(m, s, recipe) for recipe in (syn.RECIPE, other) for m in ("none", "dropout")
            for s in (0, 1)]  # fmt: skip
    suite = syn.suite(("none", "dropout"), (0, 1), recipes=["synthetic-vit", "other-vit"])
    source = syn.source(
        runs=runs,
        recipes={one.name: one for one in (syn.RECIPE, other)},
        names=("synthetic-vit", "other-vit"),
    )
    found = render(suite, source)
    assert "synthetic-vit/tables/main.csv" in found
    assert "other-vit/figures/robustness.svg" in found
    parsed = Page(found["report.html"].decode())
    assert len(parsed.ids) == len(set(parsed.ids))
    assert parsed.headings.count(1) == 1


@pytest.mark.parametrize("case", ["empty", "failed", "one method", "nan"])
def test_edges_build_and_say_so(syn, case):
    suite, source, words = {
        "empty": (syn.suite(), syn.source((), ()), "There are no runs of this suite"),
        "failed": (
            syn.suite(("none", "dropout"), (0,)),
            syn.source(
                runs=[syn.run(m, 0, status="failed", message="boom") for m in ("none", "dropout")]
            ),
            "failed: boom",
        ),
        "one method": (
            syn.suite(("none",), (0, 1)), syn.source(("none",), (0, 1)), "No method has runs that"
        ),
        "nan": (
            syn.suite(("none",), (0,)),
            syn.source(("none",), (0,), change=lambda row: row | {"value": float("nan")}),
            "not a number (NaN)",
        ),
    }[case]  # fmt: skip
    found = render(suite, source)
    Page(found["report.html"].decode())
    assert words in found["report.html"].decode()
    assert words.split("(")[0] in found["report.md"].decode()


def test_build_from_a_real_store(syn, tmp_path):
    store = one_run_store(tmp_path / "results", syn)
    suite = syn.suite(("none", "dropout"), (0, 1))
    out = tmp_path / "report"
    paths = build_report(store.root, suite, out)
    assert paths.html == out / "report.html"
    assert all(path.is_file() for path in paths.files)
    on_disk = {path for path in out.rglob("*") if path.is_file()}
    assert on_disk == set(paths.files)
    text = paths.html.read_text()
    assert "the loss is not finite" in text
    assert "3 of 4 runs finished; 1 failed" in text
    assert "/home/somebody" not in text
    assert check_report(store.root, suite, out) == []

    (out / "tables/main.csv").write_text("method\n")
    (out / "report.md").unlink()
    manifest = json.loads((out / "manifest.json").read_text())
    manifest["files"]["figures/old.png"] = "0"
    (out / "manifest.json").write_text(json.dumps(manifest))
    (out / "figures/old.png").write_bytes(b"")
    (out / "figures/robustness.png").write_bytes((out / "figures/reliability.png").read_bytes())
    assert check_report(store.root, suite, out) == [
        "figures/robustness.png: differs",
        "report.md: missing",
        "tables/main.csv: differs",
        "figures/old.png: no longer part of the report",
    ]


def test_pictures_are_compared_by_tolerance(report):
    import io

    from PIL import Image, ImageFilter

    png = report["figures/robustness.png"]
    image = Image.open(io.BytesIO(png))
    smoothed = io.BytesIO()
    image.convert("RGB").filter(ImageFilter.GaussianBlur(0.3)).save(smoothed, "PNG")
    assert smoothed.getvalue() != png
    assert same_picture(smoothed.getvalue(), png)
    assert not same_picture(report["figures/gradient-variance.png"], png)
    assert not same_picture(b"no picture", png)


def test_a_build_that_dies_leaves_the_old_report(tmp_path, monkeypatch):
    first = {"report.html": b"old", "tables/a.csv": b"old", "gone.csv": b"old"}
    build._put(tmp_path, first | {"manifest.json": build._manifest(first)})
    (tmp_path / "notes.txt").write_text("mine")
    second = {"report.html": b"new", "tables/a.csv": b"new"}
    contents = second | {"manifest.json": build._manifest(second)}

    def dies(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", dies)
        with pytest.raises(KeyboardInterrupt):
            build._put(tmp_path, contents)
    assert (tmp_path / "report.html").read_bytes() == b"old"
    assert (tmp_path / "tables/a.csv").read_bytes() == b"old"
    assert not list(tmp_path.glob(".report-*"))

    build._put(tmp_path, contents)
    assert (tmp_path / "report.html").read_bytes() == b"new"
    assert not (tmp_path / "gone.csv").exists()
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_what_a_killed_build_left_is_swept_after_a_while(tmp_path):
    old, fresh = tmp_path / ".report-old", tmp_path / ".report-fresh"
    for folder in (old, fresh):
        folder.mkdir()
    long_ago = time.time() - 2 * 3600
    os.utime(old, (long_ago, long_ago))
    build._put(tmp_path, {"report.html": b"x", "manifest.json": b"{}"})
    assert not old.exists()
    assert fresh.exists()


def test_a_manifest_cannot_remove_files_elsewhere(tmp_path):
    outside = tmp_path / "precious.txt"
    outside.write_text("keep")
    out = tmp_path / "out"
    out.mkdir()
    (out / "manifest.json").write_text(json.dumps({"files": {"../precious.txt": "0"}}))
    build._put(out, {"report.html": b"x", "manifest.json": b"{}"})
    assert outside.read_text() == "keep"


def test_an_unwritable_folder_is_one_line(syn, tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setattr(build, "render", lambda *_: {"report.html": b"x"})
    with pytest.raises(AttndropError, match=r"cannot write the report to .*file") as caught:
        build_report(tmp_path / "results", syn.suite(), blocked)
    assert "\n" not in str(caught.value)


def test_no_torch_is_imported(tmp_path):
    code = (
        "import sys, attndrop_repro.report.build as b, attndrop_repro.report.check\n"
        "from attndrop_repro.config.suite import Suite\n"
        "suite = Suite(name='s', title='S', recipes=('r',), methods=('none',))\n"
        f"b.build_report({str(tmp_path / 'none')!r}, suite, {str(tmp_path / 'out')!r})\n"
        "bad = {'torch', 'timm', 'transformers', 'matplotlib.pyplot'} & set(sys.modules)\n"
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
    assert (tmp_path / "out/report.html").is_file()
    assert not (tmp_path / "none").exists()
