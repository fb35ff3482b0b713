"""Tables as LaTeX with booktabs; they compile with the preamble that the file names."""

from __future__ import annotations

from collections.abc import Sequence

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
    """A float with a table.

    Args:
        given: The table.
        label: For references; letters, digits, hyphens, colons.
    """
    given = given.shown()
    columns = given.columns
    lines = [
        _PREAMBLE,
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escaped(given.title)}. {' '.join(prose(note) for note in given.notes)}}}",
        rf"\label{{{label}}}",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{{''.join(_alignment(column) for column in columns)}}}",
        r"\toprule",
        _row([escaped(column.heading) for column in columns]),
        r"\midrule",
    ]
    for index, row in enumerate(given.rows):
        if index in given.groups:
            if index:
                lines.append(r"\addlinespace")
            heading = escaped(given.groups[index])
            lines.append(rf"\multicolumn{{{len(columns)}}}{{l}}{{\textbf{{{heading}}}}} \\")
        lines.append(_row([_cell(cell) for cell in row]))
    lines += [r"\bottomrule", r"\end{tabular}}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def _alignment(column: Column) -> str:
    return "r" if column.numeric else "l"


def _row(cells: Sequence[str]) -> str:
    # A row that begins with [ would be read as an argument of the \\ before it.
    first, *rest = cells
    protected = f"{{}}{first}" if first.startswith("[") else first
    return " & ".join([protected, *rest]) + r" \\"


def _cell(cell: Cell) -> str:
    if cell.missing:
        return rf"\textit{{{escaped(cell.text)}}}"
    text = escaped(cell.text)
    if cell.code and text:
        text = rf"\texttt{{{text}}}"
    if cell.strong:
        text = rf"\textbf{{{text}}}"
    if cell.interval:
        text += rf" {{\scriptsize {escaped(cell.interval)}}}"
    if cell.n is not None:
        text += rf" {{\scriptsize $n={cell.n}$}}"
    return text
