"""Tables for a terminal, as Markdown and as LaTeX."""

from __future__ import annotations

import dataclasses
import html
import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Group

_BETWEEN = " / "
# Columns of a table that goes to a file, a pipe or a text.
WIDE = 240

_LATEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "Δ": r"$\Delta$", "δ": r"$\delta$", "µ": r"\textmu{}", "°": r"$^\circ$", "†": r"$^\dagger$",
    "‡": r"$^\ddagger$",
    "±": r"$\pm$", "×": r"$\times$", "≥": r"$\ge$", "≤": r"$\le$", "→": r"$\rightarrow$",
    "−": r"$-$", "–": "--",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Cell:
    """Text of a cell, and how it stands out.

    By convention the best of a column is bold and the second best is underlined; what serves for
    orientation only, such as a number of the paper, is dim.
    """

    text: str
    bold: bool = False
    underline: bool = False
    dim: bool = False
    parts: tuple[Cell, ...] = ()  # numbers of one cell that stand out by themselves

    @classmethod
    def of_parts(cls, parts: Sequence[Cell]) -> Cell:
        """Make a cell of several, as the paper writes AUC at three thresholds: ``a / b / c``."""
        return cls(_BETWEEN.join(part.text for part in parts), parts=tuple(parts))

    @property
    def style(self) -> str:
        """What rich calls it."""
        return " ".join(name for name in ("bold", "underline", "dim") if getattr(self, name))


@dataclasses.dataclass(frozen=True)
class Table:
    """A titled table, its first column left-aligned, the others right-aligned.

    Every row has one cell a column of the header. The notes are sentences below the table.
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

    def html(self) -> str:
        """Return the table as HTML, with its title and notes."""
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.header)
        rows = (
            "<tr>" + "".join(f"<td>{_html(cell)}</td>" for cell in row) + "</tr>"
            for row in self.cells()
        )
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        title = f"<h3>{html.escape(self.title)}</h3>"
        return f"{title}<table><tr>{head}</tr>{''.join(rows)}</table>{notes}\n"

    def rich(self) -> Group:
        """Return the title and the table for a terminal."""
        from rich.console import Group
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(box=None, header_style="bold", pad_edge=False)
        for i, name in enumerate(self.header):
            table.add_column(Text(name), justify="right" if i else "left")
        for row in self.cells():
            parts = ([Text(p.text, style=p.style) for p in c.parts or (c,)] for c in row)
            table.add_row(*map(Text(_BETWEEN).join, parts))
        return Group(Text(self.title, style="italic"), table)

    def __str__(self) -> str:
        from rich.console import Console

        text = io.StringIO()
        Console(file=text, width=WIDE, highlight=False, color_system=None).print(self.rich())
        lines = [line.rstrip() for line in text.getvalue().splitlines()]
        return "\n".join([*lines, *self.notes])


def _html(cell: Cell) -> str:
    if cell.parts:
        return "&nbsp;/&nbsp;".join(map(_html, cell.parts))
    text = html.escape(cell.text)
    for tag, on in (("b", cell.bold), ("u", cell.underline), ("i", cell.dim)):
        text = f"<{tag}>{text}</{tag}>" if on and text else text
    return text


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _escape_markdown(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")


def _markdown(cell: Cell) -> str:
    if cell.parts:
        return _BETWEEN.join(map(_markdown, cell.parts))
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
    if cell.parts:
        return _BETWEEN.join(map(_latex, cell.parts))
    text = _escape_latex(cell.text)
    if cell.bold:
        text = rf"\textbf{{{text}}}"
    if cell.underline:
        text = rf"\underline{{{text}}}"
    return rf"\textit{{{text}}}" if cell.dim and text else text


def show_table(table: Table) -> None:
    """Print a table of results and its notes; lines are broken on a terminal only."""
    from rich.console import Console

    from manymatch.cli.console import console

    target = console()
    wide = target if target.is_terminal else Console(highlight=False, width=WIDE)
    wide.print(table.rich())
    for note in table.notes:
        target.print(note, style="dim", markup=False)
