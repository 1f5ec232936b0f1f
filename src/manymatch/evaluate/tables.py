"""Tables of runs and comparisons, for a terminal, as Markdown and as LaTeX."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from manymatch.evaluate.statistics import THRESHOLDS, Spread, auc_spread, macro_spread

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import Group

    from manymatch.evaluate.compare import Comparison
    from manymatch.evaluate.run import RunResult

_HEADER = [f"AUC@{limit}°" for limit in THRESHOLDS]
_INTERVAL = "In brackets the 95 % interval when pairs are resampled; "

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

    By convention the best of a column is bold and the second best is underlined; what serves for
    orientation only, such as a number of the paper, is dim.
    """

    text: str
    bold: bool = False
    underline: bool = False
    dim: bool = False


@dataclasses.dataclass(frozen=True)
class Table:
    """A titled table, its first column left-aligned, the others right-aligned.

    Every row has as many cells as the header. The notes are sentences below the table.
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


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


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


def run_table(title: str, runs: Mapping[tuple[str, str], RunResult], *notes: str) -> Table:
    """Pose AUC of runs by (representation, set), with bins below their set and macro averages."""
    rows: list[list[str | Cell]] = []
    several = len({representation for representation, _ in runs}) > 1
    for (representation, _), run in runs.items():
        label = run.header["title"]
        summary = run.summary()
        seconds = summary["mean_seconds"]
        rows.append(
            [
                f"{representation}, {label}" if several else label,
                str(summary["pairs"]),
                *_intervals(auc_spread(run.errors)),
                str(summary["failed_trials"]),
                "" if seconds is None else f"{1e3 * seconds:.0f}",
            ]
        )
        for name in dict.fromkeys(filter(None, run.bins)):
            kept = [other == name for other in run.bins]
            spread = auc_spread(run.errors[:, kept])
            rows.append(
                [Cell(f"  {name}", dim=True), Cell(str(sum(kept)), dim=True)]
                + [Cell(text, dim=True) for text in _intervals(spread)]
                + ["", ""]
            )
    for representation in dict.fromkeys(representation for representation, _ in runs):
        own = [run for (other, _), run in runs.items() if other == representation]
        if len(own) > 1:
            spread = macro_spread([run.errors for run in own])
            label = f"{representation}, macro" if several else "macro"
            rows.append(
                [label, str(sum(map(len, own))), *(Cell(t) for t in _intervals(spread)), "", ""]
            )
    seeds = next(iter(runs.values())).header["config"]["seeds"]
    note = f"mean over {seeds} repetitions." if seeds > 1 else "one repetition."
    header = ["set", "pairs", *_HEADER, "failed", "ms a pair"]
    return Table(title, header, rows, [_INTERVAL + note, *notes])


def comparison_table(comparison: Comparison) -> Table:
    """Difference of the AUC of two runs by set."""
    rows: list[list[str | Cell]] = []
    for one in comparison.sets:
        counts = one.counts()
        first, second = one.auc
        rows.append(
            [
                one.title,
                str(len(one.names)),
                _triplet(first),
                _triplet(second),
                *_differences(one.difference),
                f"{counts['better']} / {counts['alike']} / {counts['worse']}",
            ]
        )
    if len(comparison.sets) > 1:
        pairs = sum(len(one.names) for one in comparison.sets)
        rows.append(["macro", str(pairs), "", "", *_differences(comparison.macro), ""])
    differences = [f"Δ {name}" for name in _HEADER]
    header = ["set", "pairs", "first", "second", *differences, "better / alike / worse"]
    note = (
        "a difference whose interval leaves out 0 is in bold. A pair is better or worse when its "
        "median error moves by more than 1°."
    )
    title = f"{comparison.first} minus {comparison.second}"
    return Table(title, header, rows, [_INTERVAL + note])


def _triplet(spread: Spread) -> str:
    return " / ".join(f"{value:.1f}" for value in spread.mean)


def _intervals(spread: Spread) -> list[str]:
    return [f"{interval:.1f}" for interval in spread.interval]


def _differences(spread: Spread) -> list[str | Cell]:
    return [Cell(f"{i:+.1f}", bold=i.low > 0.0 or i.high < 0.0) for i in spread.interval]
