"""Tables as LaTeX with booktabs; they compile with the preamble that the file names."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace

from attndrop_repro.report.prose import Code, Text
from attndrop_repro.report.table import Cell, Column, Table

_SIGNS = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    "\N{MINUS SIGN}": r"$-$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "→": r"$\rightarrow$",
    "←": r"$\leftarrow$",
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
    "σ": r"$\sigma$",
    "λ": r"$\lambda$",
    "\N{NO-BREAK SPACE}": "~",
}

_PREAMBLE = r"""% Built by attndrop; rebuilding the report overwrites it. Needs in the preamble:
% \usepackage[T1]{fontenc} \usepackage{booktabs,graphicx,textcomp}"""
_LONGEST = 30  # rows; more do not fit on a page


def escaped(text: str) -> str:
    """Text in which nothing is a command; signs that LaTeX's default fonts lack are named."""
    return "".join(_sign(sign) for sign in " ".join(text.split()))


def _sign(sign: str) -> str:
    if sign in _SIGNS:
        return _SIGNS[sign]
    if sign.isascii() or "\N{NO-BREAK SPACE}" < sign <= "ÿ":
        return sign
    return f"[U+{ord(sign):04X}]"


def prose(text: Text) -> str:
    """A sentence; spaces at the ends of its parts are kept."""
    found = []
    for part in text:
        plain = part.text if isinstance(part, Code) else part
        body = escaped(plain)
        if isinstance(part, Code):
            found.append(rf"\texttt{{{body}}}")
        else:
            lead = " " if plain[:1].isspace() else ""
            trail = " " if plain[-1:].isspace() and body else ""
            found.append(f"{lead}{body}{trail}")
    return "".join(found)


def table(given: Table, label: str) -> str:
    """A float with a table; several where one would not fit on a page.

    Args:
        given: The table.
        label: For references; letters, digits, hyphens, colons. Of several floats, each but the
            first has its number behind it.
    """
    given = given.shown()
    starts = range(0, max(len(given.rows), 1), _LONGEST)
    floats = []
    for number, start in enumerate(starts, 1):
        part = replace(
            given,
            title=given.title if len(starts) == 1 else f"{given.title} ({number} of {len(starts)})",
            rows=given.rows[start : start + _LONGEST],
            groups={row - start: name for row, name in given.groups.items() if row >= start},
            notes=given.notes if number == len(starts) else (),
        )
        floats.append(_float(part, label if number == 1 else f"{label}-{number}"))
    return "\n".join([_PREAMBLE, *floats]) + "\n"


def _float(given: Table, label: str) -> str:
    notes = [prose(note) for note in given.notes]
    if notes and any(cell.n is not None for row in given.rows for cell in row):
        notes.append("In parentheses: n.")
    below = [r"\par\smallskip", rf"{{\footnotesize {' '.join(notes)}\par}}"] if notes else []
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escaped(given.title)}}}\label{{{label}}}",
            r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
            rf"\begin{{tabular}}{{{''.join(_alignment(column) for column in given.columns)}}}",
            r"\toprule",
            _row([_heading(column) for column in given.columns]),
            r"\midrule",
            *_body(given),
            r"\bottomrule",
            r"\end{tabular}}",
            *below,
            r"\end{table}",
        ]
    )


def _body(given: Table) -> list[str]:
    lines = []
    for index, row in enumerate(given.rows):
        if index in given.groups:
            if index:
                lines.append(r"\addlinespace")
            heading = escaped(given.groups[index])
            width = len(given.columns)
            lines.append(rf"\multicolumn{{{width}}}{{l}}{{\textbf{{{heading}}}}} \\")
        lines.append(_row([_cell(cell) for cell in row]))
        if "shortstack" in lines[-1]:
            lines.append(r"\addlinespace[2pt]")
    return lines


def _alignment(column: Column) -> str:
    if column.wide:
        return r"p{0.3\linewidth}"
    return "r" if column.numeric else "l"


def _row(cells: Sequence[str]) -> str:
    # A row that begins with [ or * would be read as an argument of the \\ before it.
    first, *rest = cells
    protected = f"{{}}{first}" if first.startswith(("[", "*")) else first
    return " & ".join([protected, *rest]) + r" \\"


def _heading(column: Column) -> str:
    if not column.numeric:
        return escaped(column.heading)
    below = f"({column.unit}){column.arrow}" if column.unit else column.arrow.strip()
    return _stacked([*_lines(column.title, 12), *([below] if below else [])])


def _lines(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False) or [""]


def _stacked(lines: Sequence[str], command: str = "") -> str:
    """Lines above each other, set to the right."""
    written = [f"{command}{{{escaped(line)}}}" if command else escaped(line) for line in lines]
    if len(written) == 1:
        return written[0]
    return r"\shortstack[r]{" + r"\\".join(written) + "}"


def _cell(cell: Cell) -> str:
    if cell.missing:
        return _stacked(_lines(cell.text, 18), r"\textit")
    text = escaped(cell.text)
    if cell.code and text:
        text = rf"\texttt{{{text}}}"
    if cell.strong:
        text = rf"\textbf{{{text}}}"
    if cell.n is not None:
        text += rf" {{\scriptsize ({cell.n})}}"
    if cell.interval:
        text = rf"\shortstack[r]{{{text}\\{{\scriptsize {escaped(cell.interval)}}}}}"
    return text
