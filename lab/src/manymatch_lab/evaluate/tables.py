"""Tables of runs and comparisons, for a terminal, as Markdown and as LaTeX."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from manymatch.features.config import NO_DETECTOR
from manymatch_lab.checks import count
from manymatch_lab.evaluate.compare import Comparison
from manymatch_lab.evaluate.run import RunResult
from manymatch_lab.evaluate.statistics import THRESHOLDS, Spread, auc_spread, macro_spread

if TYPE_CHECKING:
    from rich.console import Group

_HEADER = [f"AUC@{limit}°" for limit in THRESHOLDS]
_INTERVAL = "In brackets the 95 % interval when pairs are resampled; "
# Columns of a table that goes to a file, a pipe or a text.
WIDE = 240

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

    def __str__(self) -> str:
        from rich.console import Console

        text = io.StringIO()
        Console(file=text, width=WIDE, highlight=False, color_system=None).print(self.rich())
        lines = [line.rstrip() for line in text.getvalue().splitlines()]
        return "\n".join([*lines, *self.notes])


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


def run_table(runs: Mapping[tuple[str, str], RunResult], *notes: str) -> Table:
    """Pose AUC of one configuration by (representation, set), with bins and macro averages.

    Title and notes say what was run: features, method, iterations and seeds, and what failed.
    """
    rows: list[list[str | Cell]] = []
    representations = list(dict.fromkeys(representation for representation, _ in runs))
    several = len(representations) > 1
    config = next(iter(runs.values())).header["config"]
    hidden = config.get("unknown_focal", False)
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
                *([_focal_text(summary)] if hidden else []),
            ]
        )
        for name in dict.fromkeys(filter(None, run.bins)):
            kept = [other == name for other in run.bins]
            spread = auc_spread(run.errors[:, kept])
            rows.append(
                [Cell(f"  {name}", dim=True), Cell(str(sum(kept)), dim=True)]
                + [Cell(text, dim=True) for text in _intervals(spread)]
                + [""] * (3 if hidden else 2)
            )
    for representation in representations:
        own = [run for (other, _), run in runs.items() if other == representation]
        if len(own) > 1:
            spread = macro_spread([run.errors for run in own])
            label = f"{representation}, macro" if several else "macro"
            row: list[str | Cell] = [label, str(sum(map(len, own)))]
            rows.append([*row, *map(Cell, _intervals(spread)), *[""] * (3 if hidden else 2)])
    seeds = config["seeds"]
    title = f"{_candidates_text(config)} of {', '.join(representations)}"
    note = f"mean over {seeds} repetitions." if seeds > 1 else "one repetition."
    header = ["set", "pairs", *_HEADER, "failed", "ms a pair"]
    header += ["focal error %, quartiles"] if hidden else []
    faults = [sentence for run in runs.values() for sentence in run.fault_sentences()]
    about = _run_notes(list(runs.values()))
    return Table(title, header, rows, [*faults, *about, _INTERVAL + note, *notes])


def _focal_text(summary: Mapping[str, Any]) -> str:
    """Quartiles of the relative errors of focal lengths in percent; those of failures are "-"."""
    quartiles = summary.get("focal_error_quartiles", ())
    return " / ".join("-" if error is None else f"{100.0 * error:.1f}" for error in quartiles)


def _candidates_text(config: Mapping[str, Any]) -> str:
    association = config["association"]
    seen = "rank-one" if association["k"] == 1 else f"mutual {association['k']}-nearest"
    return f"{config['estimator']} on {seen} candidates{', GMS,' if association['gms'] else ''}"


def _run_notes(runs: Sequence[RunResult]) -> list[str]:
    """Say with what runs of one configuration were made, from their headers."""
    config = runs[0].header["config"]
    sources = [run.header["source"] for run in runs]
    sizes = [f"{_side_text(s['longest'])} in {s['set']}" for s in sources if _any_size(s)]
    # Sources of one graph may be cut in different ways.
    each = (config["association"], *config.get("further", ()))
    seen = dict.fromkeys(map(association_text, each))
    return [
        *dict.fromkeys(map(_features_text, sources)),
        f"Method {config['estimator']}: {' or '.join(seen)}; "
        f"{budget_text(config)}; {seeds_text(config)}.",
        *_hidden_notes(config),
        *([f"Working size by set: {'; '.join(dict.fromkeys(sizes))}."] if sizes else []),
    ]


def _hidden_notes(config: Mapping[str, Any]) -> list[str]:
    """Say of which images the focal length was hidden and shared."""
    if not config.get("unknown_focal", False):
        return []
    shared = {
        "pair": "each pair finds its own",
        "image": "each image has one in all of its pairs",
        "folder": "images of one size in a folder have one",
        "all": "all images of one size have one",
    }[config["camera_per"]]
    return [f"Cameras are hidden; of the focal lengths, {shared}."]


def _source_text(source: Mapping[str, Any]) -> str:
    """Say what one of several sources is, by its settings."""
    matcher, longest = source.get("matcher"), source["longest"]
    if source["detector"] == NO_DETECTOR:
        made = str(matcher)
    else:
        made = f"{source['detector']} + {matcher or source['descriptor']}"
        made += f", at most {source['max_keypoints']:,} keypoints"
    return f"{made}, longer edge {longest} px" if longest else made


def _features_text(source: Mapping[str, Any]) -> str:
    """Say where the candidates of a run come from; a source of a user's own may hold anything."""
    name = source.get("representation", "another source")
    if "scene" in source:
        return "Candidates of synthetic scenes."
    features = source.get("features")
    if features is None and isinstance(source.get("sources"), list):
        return f"Candidates of {name}: {'; '.join(map(_source_text, source['sources']))}."
    if features is None:
        return f"Candidates of {name}."
    parts = [f"{features['detector']} + {features['descriptor']}"]
    parts += [] if features["layer"] is None else [f"layer {features['layer']}"]
    parts += [f"at most {count(features['max_keypoints'], 'keypoint')}"]
    longest = features["longest"]
    parts += [f"longer edge {longest} px" if longest else "images in their own size"]
    return f"Preset {name}: {', '.join(parts)}."


def _any_size(source: Mapping[str, Any]) -> bool:
    """Whether a set has another working size than its preset."""
    return any(length is not None for length in source.get("longest", ()))


def _side_text(longest: Sequence[int | None]) -> str:
    """Say the working sizes of images 0 and 1 where they are not the preset's."""
    return " and ".join(
        f"image {side} {f'{length} px' if length else 'as it is'}"
        for side, length in enumerate(longest)
        if length is not None
    )


def association_text(association: Mapping[str, Any]) -> str:
    """Say what the estimator sees of the candidates, from the settings of an `Association`."""
    parts = [f"mutual {association['k']} nearest neighbours"]
    if association["max_edges"] is not None:
        parts.append(f"the first {association['max_edges']} edges")
    parts.append("many-to-many GMS" if association["gms"] else "no GMS")
    if association["keep"] is not None:
        parts.append(f"the first {association['keep']}")
    return ", ".join(parts)


def budget_text(settings: Mapping[str, Any]) -> str:
    """Say iterations and threshold of a run."""
    options = settings["options"]
    threshold = options["threshold_px"]
    at = "an automatic threshold" if isinstance(threshold, str) else f"{threshold:g} px"
    return f"{options['min_iterations']:,} to {options['max_iterations']:,} iterations at {at}"


def seeds_text(settings: Mapping[str, Any]) -> str:
    """Say how many seeds a run has."""
    return count(settings["seeds"], "seed")


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
    alone = [
        f"Left out, as only the {which} has {'it' if len(names) == 1 else 'them'}: "
        f"{', '.join(names)}."
        for which, names in (("first", comparison.only_first), ("second", comparison.only_second))
        if names
    ]
    unpaired = [
        f"{one.title}: {count(one.left_out, 'pair')} left out, which only one of the two has."
        for one in comparison.sets
        if one.left_out
    ]
    return Table(title, header, rows, [*alone, *unpaired, _INTERVAL + note])


def _triplet(spread: Spread) -> str:
    return " / ".join(f"{value:.1f}" for value in spread.mean)


def _intervals(spread: Spread) -> list[str]:
    return [f"{interval:.1f}" for interval in spread.interval]


def _differences(spread: Spread) -> list[str | Cell]:
    return [Cell(f"{i:+.1f}", bold=i.low > 0.0 or i.high < 0.0) for i in spread.interval]


def show_table(table: Table) -> None:
    """Print a table of results and its notes; where there is no terminal, no line is broken."""
    from rich.console import Console

    from manymatch.cli.console import console

    target = console()
    wide = target if target.is_terminal else Console(highlight=False, width=WIDE)
    wide.print(table.rich())
    for note in table.notes:
        target.print(note, style="dim", markup=False)
