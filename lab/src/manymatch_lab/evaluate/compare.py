"""Two runs on the same pairs, pair by pair."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from manymatch.batch.parts import RUN, read_run
from manymatch.io.files import local_path
from manymatch_lab.checks import FloatArray, choice, count
from manymatch_lab.evaluate.run import RunResult
from manymatch_lab.evaluate.run_tables import AUC_HEADER, INTERVAL
from manymatch_lab.evaluate.statistics import (
    THRESHOLDS,
    Spread,
    auc_spread,
    macro_difference,
    paired_difference,
)
from manymatch_lab.evaluate.tables import Cell, Table

# A pair counts as better or worse when its median error moves by more than this.
NOTICEABLE_DEG = 1.0
# Larger errors count as this: the pose is of no use beyond it.
_LARGEST_DEG = 20.0


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class SetComparison:
    """Two runs on one set: errors in degrees, (S, N), repetitions by pairs that both have.

    `left_out` counts the pairs that only one of the runs has.
    """

    title: str
    names: list[tuple[str, str]]
    first: FloatArray
    second: FloatArray
    left_out: int = 0

    def __repr__(self) -> str:
        pairs = count(len(self.names), "pair")
        return f"SetComparison({self.title}: {pairs}; {_short(self.difference)})"

    @property
    def auc(self) -> tuple[Spread, Spread]:
        """AUC of either run on the common pairs."""
        return auc_spread(self.first), auc_spread(self.second)

    @property
    def difference(self) -> Spread:
        """AUC of the first run minus AUC of the second."""
        return paired_difference(self.first, self.second)

    @property
    def change_deg(self) -> FloatArray:
        """Median error of each pair in the first run minus that in the second, (N,).

        Errors beyond 20 degrees count as 20.
        """
        a, b = (np.minimum(np.median(e, axis=0), _LARGEST_DEG) for e in (self.first, self.second))
        return np.asarray(a - b)

    def counts(self) -> dict[str, int]:
        """Pairs on which the first run is noticeably better, worse, or neither."""
        better = int((self.change_deg < -NOTICEABLE_DEG).sum())
        worse = int((self.change_deg > NOTICEABLE_DEG).sum())
        return {"better": better, "worse": worse, "alike": len(self.names) - better - worse}

    def largest_changes(self, count: int = 5) -> list[tuple[str, str, float, float]]:
        """Pairs that differ most: their names and median errors in either run, in degrees."""
        change = self.change_deg
        order = np.argsort(-np.abs(change), kind="stable")[:count]
        a, b = np.median(self.first, axis=0), np.median(self.second, axis=0)
        return [(*self.names[i], float(a[i]), float(b[i])) for i in order if change[i] != 0]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Two runs on one or more sets; printed, it is a table.

    `only_first` and `only_second` are the sets that only one of the two has, which are left out.
    """

    first: str
    second: str
    sets: list[SetComparison]
    only_first: tuple[str, ...] = ()
    only_second: tuple[str, ...] = ()

    def __repr__(self) -> str:
        pairs = count(sum(len(one.names) for one in self.sets), "pair")
        sets = count(len(self.sets), "set")
        difference = _short(self.macro)
        return f"Comparison({self.first} minus {self.second}: {sets}, {pairs}; {difference})"

    def __str__(self) -> str:
        return str(comparison_table(self))

    @property
    def macro(self) -> Spread:
        """Mean over the sets of the difference of the AUC."""
        return macro_difference([s.first for s in self.sets], [s.second for s in self.sets])

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        return {
            "first": self.first,
            "second": self.second,
            "only_first": list(self.only_first),
            "only_second": list(self.only_second),
            "thresholds_deg": list(THRESHOLDS),
            "sets": {
                s.title: {
                    "pairs": len(s.names),
                    "left_out": s.left_out,
                    "first": s.auc[0].to_dict(),
                    "second": s.auc[1].to_dict(),
                    "difference": s.difference.to_dict(),
                    **s.counts(),
                    "largest_changes": [
                        {"name0": a, "name1": b, "first_deg": x, "second_deg": y}
                        for a, b, x, y in s.largest_changes()
                    ],
                }
                for s in self.sets
            },
            "macro_difference": self.macro.to_dict(),
        }


def compare_runs(
    first: object,
    second: object,
    *,
    methods: tuple[str | None, str | None] = (None, None),
    presets: tuple[str | None, str | None] = (None, None),
) -> Comparison:
    """Compare two runs, or two folders of runs on several sets, over the sets that both have.

    The folders are those of runs, or folders above them, and may be the same. `methods` (as folders
    call them, such as "rank-one-poselib") and `presets` choose runs of either folder where there
    are several. A folder without such a run or with several on one set, and two without a common
    set or pair or with different numbers of repetitions, are a `ValueError`.
    """
    asked = zip((first, second), ("first", "second"), methods, presets, strict=True)
    a, b = (_runs(*one) for one in asked)
    common = [name for name in a if name in b]
    if not common:
        raise ValueError(f"second must have a set of first ({', '.join(a)}), got {', '.join(b)}")

    def label(folder: object, runs: dict[str, RunResult]) -> str:
        kinds = dict.fromkeys(_preset(runs[name]) for name in common)
        names = dict.fromkeys(_method(runs[name].folder) for name in common)
        return f"{folder} ({', '.join(kinds)}; {', '.join(names)})"

    return Comparison(
        label(first, a),
        label(second, b),
        [_compare(name, a[name], b[name]) for name in common],
        tuple(a[name].header["title"] for name in a if name not in b),
        tuple(b[name].header["title"] for name in b if name not in a),
    )


def _runs(
    folder: object, name: str, method: str | None, preset: str | None
) -> dict[str, RunResult]:
    """Find the runs at or below a folder, by set."""
    place = local_path(folder, name)
    every = [path.parent for path in sorted(place.rglob(RUN))] if place.is_dir() else []
    folders = [one for one in every if "source" in (read_run(one) or ())]
    if not folders:
        batch = ", which manymatch batch wrote; manymatch eval LIST runs its pairs with true poses"
        raise ValueError(
            f"{name} must be a folder of manymatch eval, got {str(place)!r}{batch if every else ''}"
        )
    if method is not None:
        choice(method, f"method of {name}", dict.fromkeys(map(_method, folders)))
        folders = [one for one in folders if _method(one) == method]
    runs = [RunResult.load(one) for one in folders]
    if preset is not None:
        choice(preset, f"preset of {name}", dict.fromkeys(map(_preset, runs)))
        runs = [run for run in runs if _preset(run) == preset]
    found: dict[str, RunResult] = {}
    for run in runs:
        key = run.header["source"]["set"]
        if key in found:
            kinds = {
                "method": dict.fromkeys(_method(one.folder) for one in runs),
                "preset": dict.fromkeys(map(_preset, runs)),
            }
            hints = [
                f"--{what} chooses one of {', '.join(several)}"
                for what, several in kinds.items()
                if len(several) > 1
            ]
            raise ValueError(
                f"{name} must have one run on every set, got two on {key}: "
                f"{found[key].folder.relative_to(place)} and {run.folder.relative_to(place)}"
                f"{'; ' if hints else ''}{', '.join(hints)}"
            )
        found[key] = run
    return found


def _method(folder: Path) -> str:
    """Name a method as the folder of its run does: "rank-one-" marks rank-one candidates."""
    return folder.resolve().name


def _preset(run: RunResult) -> str:
    """Name what the candidates of a run come from; synthetic scenes name nothing."""
    return str(run.header["source"].get("representation", "synthetic"))


def _short(difference: Spread) -> str:
    """Write a difference in a few characters."""
    limits = "/".join(map(str, THRESHOLDS))
    return f"AUC@{limits} " + "/".join(f"{value:+.1f}" for value in difference.mean)


def _compare(name: str, a: RunResult, b: RunResult) -> SetComparison:
    if a.header["config"]["seeds"] != b.header["config"]["seeds"]:
        raise ValueError(
            f"second must have the number of repetitions of first on {name}, "
            f"{a.header['config']['seeds']}, got {b.header['config']['seeds']}"
        )
    # The names guard against another list; a pair that could not be read may lack them.
    where = {index: row for row, index in enumerate(b.indices)}
    kept = [
        (row, other)
        for row, index in enumerate(a.indices)
        if (other := where.get(index)) is not None
        and (a.names[row] == b.names[other] or ("", "") in (a.names[row], b.names[other]))
    ]
    if not kept:
        raise ValueError(f"second must have pairs of first on {name}, got none of them")
    rows0, rows1 = (list(rows) for rows in zip(*kept, strict=True))
    return SetComparison(
        title=a.header["title"],
        names=[a.names[i] if any(a.names[i]) else b.names[j] for i, j in kept],
        first=a.errors[:, rows0],
        second=b.errors[:, rows1],
        left_out=len(a) + len(b) - 2 * len(kept),
    )


def comparison_table(comparison: Comparison) -> Table:
    """Difference of the AUC of two runs by set."""
    rows: list[list[str | Cell]] = []
    for one in comparison.sets:
        counts = one.counts()
        changed = " / ".join(str(counts[name]) for name in ("better", "alike", "worse"))
        both = [" / ".join(f"{value:.1f}" for value in spread.mean) for spread in one.auc]
        about = [one.title, str(len(one.names)), *both]
        rows.append([*about, *_differences(one.difference), changed])
    if len(comparison.sets) > 1:
        pairs = sum(len(one.names) for one in comparison.sets)
        rows.append(["macro", str(pairs), "", "", *_differences(comparison.macro), ""])
    differences = [f"Δ {name}" for name in AUC_HEADER]
    header = ["set", "pairs", "first", "second", *differences, "better / alike / worse"]
    note = (
        f"{INTERVAL}a difference whose interval leaves out 0 is in bold. A pair is better or worse "
        "when its median error moves by more than 1°."
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
    return Table(title, header, rows, [*alone, *unpaired, note])


def _differences(spread: Spread) -> list[str | Cell]:
    return [Cell(f"{i:+.1f}", bold=i.low > 0.0 or i.high < 0.0) for i in spread.interval]
