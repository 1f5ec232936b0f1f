"""One table, three ways to show it: in a terminal, as Markdown, as LaTeX."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Group

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "→": r"$\rightarrow$",
    "°": r"$^\circ$",
    "Δ": r"$\Delta$",
    "δ": r"$\delta$",
    "µ": r"\textmu{}",
    "×": r"$\times$",
    "≥": r"$\ge$",
    "≤": r"$\le$",
    "−": r"$-$",
    "–": "--",
    "†": r"$^\dagger$",
}


@dataclasses.dataclass(frozen=True)
class Cell:
    """Text of a cell, and how it stands out.

    Parameters
    ----------
    text : str
        What it says.
    bold : bool
        The best of its column.
    underline : bool
        The second best.
    dim : bool
        For orientation only, such as a number of the paper.
    """

    text: str
    bold: bool = False
    underline: bool = False
    dim: bool = False


@dataclasses.dataclass(frozen=True)
class Table:
    """A titled table.

    Parameters
    ----------
    title : str
        What it shows.
    header : sequence of str
        One per column; the first column is left-aligned, the others right-aligned.
    rows : sequence of sequence of str or Cell
        As many cells as the header has.
    notes : sequence of str
        Sentences below it.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.header):
                raise ValueError(
                    f"rows must have {len(self.header)} cells as the header of {self.title!r} "
                    f"does, got {len(row)}"
                )

    def cells(self) -> list[list[Cell]]:
        """Return the rows, every cell as a `Cell`."""
        return [[c if isinstance(c, Cell) else Cell(c) for c in row] for row in self.rows]

    def markdown(self) -> str:
        """Return the table as Markdown, with its title and notes."""
        rule = [":---", *["---:"] * (len(self.header) - 1)]
        lines = [_line(map(_escape_markdown, self.header)), _line(rule)]
        lines += [_line(_markdown(cell) for cell in row) for row in self.cells()]
        notes = "".join(f"\n{note}\n" for note in self.notes)
        return f"### {self.title}\n\n" + "\n".join(lines) + "\n" + notes

    def latex(self) -> str:
        """Return the table as a LaTeX `table` that needs the packages booktabs and textcomp."""
        columns = "l" + "r" * (len(self.header) - 1)
        body = [" & ".join(_latex(cell) for cell in row) + r" \\" for row in self.cells()]
        caption = " ".join([_escape_latex(self.title) + ".", *map(_escape_latex, self.notes)])
        return "\n".join(
            [
                r"\begin{table}",
                r"\centering",
                rf"\caption{{{caption}}}",
                rf"\begin{{tabular}}{{{columns}}}",
                r"\toprule",
                " & ".join(map(_escape_latex, self.header)) + r" \\",
                r"\midrule",
                *body,
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
                "",
            ]
        )

    def rich(self) -> Group:
        """Return the title and the table for a terminal."""
        from rich.console import Group
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(box=None, header_style="bold", pad_edge=False)
        for i, name in enumerate(self.header):
            table.add_column(Text(name), justify="right" if i else "left")
        for row in self.cells():
            table.add_row(*(Text(cell.text, style=_style(cell)) for cell in row))
        return Group(Text(self.title, style="italic"), table)


def _style(cell: Cell) -> str:
    words = [name for name in ("bold", "underline", "dim") if getattr(cell, name)]
    return " ".join(words)


def _line(cells: object) -> str:
    return "| " + " | ".join(cells) + " |"  # type: ignore[arg-type]


def _escape_markdown(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")


def _markdown(cell: Cell) -> str:
    text = _escape_markdown(cell.text)
    if not text:
        return text
    if cell.bold:
        text = f"**{text}**"
    if cell.underline:
        text = f"<u>{text}</u>"
    return f"*{text}*" if cell.dim else text


def _escape_latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def _latex(cell: Cell) -> str:
    text = _escape_latex(cell.text)
    if cell.bold:
        text = rf"\textbf{{{text}}}"
    if cell.underline:
        text = rf"\underline{{{text}}}"
    return rf"\textit{{{text}}}" if cell.dim and text else text
