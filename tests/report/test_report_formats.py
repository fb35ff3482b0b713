import csv
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from attndrop_repro.report import latex, markdown
from attndrop_repro.report.delimited import csv_text
from attndrop_repro.report.prose import Code, count, listed, plain, say
from attndrop_repro.report.table import Cell, Column, Table

EVIL = (
    r"a|b `c` ``d`` *e* _f_ <script>alert(1)</script> &amp; [x](http://y) ![z](q) \end{table} $1 #2"
)

# What Markdown and LaTeX readers drop or replace by themselves is not asked of them.
texts = st.text(
    st.characters(min_codepoint=32, max_codepoint=0x24F, exclude_categories=("Cc", "Zs"))
    | st.just(" "),
    min_size=1,
    max_size=30,
).filter(lambda text: text.strip())


def one_cell(text, *, code=False, **fields):
    columns = (Column("a", "A", numeric=False), Column("b", "B"))
    rows = ((Cell(text, code=code, raw={"": text}, **fields), Cell("1", raw={"": 1})),)
    return Table("t", "Title", columns, rows)


def cell_of(source):
    """Text of the first cell of the body, and kinds of tokens in it, by an independent parser."""
    tokens = MarkdownIt("commonmark").enable("table").parse(source)
    at = next(i for i, token in enumerate(tokens) if token.type == "td_open")
    assert [t.type for t in tokens if t.type == "td_open"] == ["td_open"] * 2
    children = tokens[at + 1].children
    return "".join(child.content for child in children), {child.type for child in children}


@given(texts)
def test_markdown_text_is_text(text):
    content, kinds = cell_of(markdown.table(one_cell(text)))
    assert content == " ".join(text.split())
    assert kinds <= {"text", "text_special"}


@given(texts)
def test_markdown_code_is_code(text):
    content, kinds = cell_of(markdown.table(one_cell(text, code=True)))
    assert content.strip() == " ".join(text.split())
    assert kinds == {"code_inline"}


def test_markdown_evil_text_stays_one_cell():
    content, kinds = cell_of(markdown.table(one_cell(EVIL)))
    assert content == EVIL
    assert kinds <= {"text", "text_special"}


def test_markdown_table_with_groups_notes_and_intervals():
    columns = (Column("a", "A", numeric=False), Column("b", "B", "%", 1))
    rows = (
        (Cell("x", code=True), Cell("1.0", "[0.5, 1.5]", 3, strong=True)),
        (Cell("y", code=True), Cell("no run", missing=True)),
    )
    table = Table(
        "t", "T", columns, rows, {0: "first", 1: "second"}, (say("By {m}.", m=Code("m")),)
    )
    assert markdown.table(table) == "\n".join(
        [
            r"| A | B \(%\) ↑ |",
            "| --- | ---: |",
            "| **first** |  |",
            r"| `x` | **1.0** \[0.5, 1.5\] n=3 |",
            "| **second** |  |",
            "| `y` | *no run* |",
            "",
            "By `m`.",
        ]
    )


def unescaped(source):
    """What LaTeX prints for escaped text: an inverse that knows the commands, not the code."""
    commands = {
        r"\textbackslash{}": "\\", r"\textasciicircum{}": "^", r"\textasciitilde{}": "~",
        r"\textless{}": "<", r"\textgreater{}": ">", r"\textbar{}": "|", r"\textquotedbl{}": '"',
        r"\textquotesingle{}": "'", r"\textasciigrave{}": "`", r"\ldots{}": "…", r"$-$": "−",
        r"$\pm$": "±", r"$\times$": "×", r"\{": "{", r"\}": "}", r"\$": "$", r"\&": "&",
        r"\#": "#", r"\%": "%", r"\_": "_",
    }  # fmt: skip
    pattern = "|".join(sorted((re.escape(command) for command in commands), key=len, reverse=True))
    plain_parts = re.split(pattern, source)
    assert not any(sign in part for part in plain_parts for sign in "\\{}$&#%_^~<>|\"'`"), source
    return re.sub(pattern, lambda found: commands[found[0]], source)


@given(
    st.text(st.characters(max_codepoint=255, exclude_categories=("Cc", "Zs", "Cf")) | st.just(" "))
)
def test_latex_text_is_text(text):
    assert unescaped(latex.escaped(text)) == " ".join(text.split())


def test_latex_names_signs_that_its_fonts_lack():
    assert latex.escaped("π \N{SNOWMAN}") == "[U+03C0] [U+2603]"


def test_latex_table():
    columns = (
        Column("a", "A", numeric=False),
        Column("b", "Test accuracy", "%", 1),
        Column("c", "C", numeric=False, csv_only=True),
    )
    rows = (
        (Cell("[x_1", code=True), Cell("1.0", "[0.5, 1.5]", 3, strong=True), Cell("")),
        (Cell("[y"), Cell("failed: out of memory", missing=True), Cell("")),
    )
    table = Table("t", "Per cent %", columns, rows, {1: "G&H"}, (say("By {m}.", m=Code("a_b")),))
    text = latex.table(table, "tab:x")
    assert text.startswith("% Built by attndrop")
    lines = text.splitlines()
    assert r"\caption{Per cent \%}\label{tab:x}" in lines
    assert r"\begin{tabular}{lr}" in lines
    assert r"A & \shortstack[r]{Test\\accuracy\\(\%) $\uparrow$} \\" in lines
    assert (
        r"\texttt{[x\_1} & \shortstack[r]{\textbf{1.0} {\scriptsize (3)}\\"
        r"{\scriptsize [0.5, 1.5]}} \\"
    ) in lines
    assert r"\multicolumn{2}{l}{\textbf{G\&H}} \\" in lines
    assert r"{}[y & \shortstack[r]{\textit{failed: out of}\\\textit{memory}} \\" in lines
    assert r"{\footnotesize By \texttt{a\_b}. In parentheses: n.\par}" in lines


def test_latex_splits_what_does_not_fit_on_a_page():
    rows = tuple((Cell(f"r{index}"),) for index in range(65))
    text = latex.table(Table("t", "T", (Column("a", "A"),), rows, {0: "g", 31: "h"}), "tab:t")
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 3
    assert r"\caption{T (2 of 3)}\label{tab:t-2}" in text
    assert all(f"r{index} " in text for index in range(65))
    assert text.count(r"\multicolumn") == 2


@given(texts)
def test_csv_reads_back(text):
    rows = list(csv.reader(io.StringIO(csv_text(one_cell(text)))))
    guarded = f"'{text}" if text[0] in "=+-@" else text
    assert rows == [["a", "b"], [guarded, "1"]]


def test_csv_numbers_and_suffixes():
    columns = (Column("a", "A", suffixes=("", "low", "n")),)
    raw = {"": 0.1 + 0.2, "low": None, "n": 3}
    table = Table("t", "T", columns, ((Cell("0.3", raw=raw),), (Cell("", raw={"": float("nan")}),)))
    assert csv_text(table) == "a,a_low,a_n\n0.3,,3\n,,\n"


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\tx"])
def test_csv_text_is_no_formula(text):
    assert csv_text(one_cell(text)).splitlines()[1].startswith(("'", "\"'"))


def test_prose():
    text = say("{a} of {b}: {c}{{x}}", a=1, b=Code("m"), c=listed([Code("p"), "q", "r"]))
    assert plain(text) == "1 of m: p, q and r{x}"
    assert text[2] == Code("m")
    assert plain(listed([])) == ""
    assert (count(1, "run"), count(0, "run"), count(2, "is", "are")) == ("1 run", "0 runs", "2 are")
