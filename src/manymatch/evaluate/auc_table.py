"""Runs and comparisons as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from manymatch.evaluate.statistics import THRESHOLDS, Spread, auc_spread, macro_spread
from manymatch.evaluate.tables import Cell, Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from manymatch.evaluate.compare import Comparison
    from manymatch.evaluate.run_result import RunResult

_HEADER = [f"AUC@{limit}°" for limit in THRESHOLDS]
_INTERVAL = "In brackets the 95 % interval when pairs are resampled; "


def run_table(title: str, runs: Mapping[tuple[str, str], RunResult]) -> Table:
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
    return Table(
        title,
        ["set", "pairs", *_HEADER, "failed", "ms a pair"],
        rows,
        [_INTERVAL + note],
    )


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
    return Table(
        f"{comparison.first} minus {comparison.second}",
        [
            "set",
            "pairs",
            "first",
            "second",
            *(f"Δ AUC@{limit}°" for limit in THRESHOLDS),
            "better / alike / worse",
        ],
        rows,
        [
            _INTERVAL + "a difference whose interval leaves out 0 is in bold. A pair is better or "
            "worse when its median error moves by more than 1°."
        ],
    )


def _triplet(spread: Spread) -> str:
    return " / ".join(f"{value:.1f}" for value in spread.mean)


def _intervals(spread: Spread) -> list[str]:
    return [f"{interval:.1f}" for interval in spread.interval]


def _differences(spread: Spread) -> list[str | Cell]:
    return [
        Cell(
            f"{i.value:+.1f} [{i.low:+.1f}, {i.high:+.1f}]",
            bold=i.low > 0.0 or i.high < 0.0,
        )
        for i in spread.interval
    ]
