"""Two runs on the same pairs, pair by pair."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._files import as_path
from manymatch.evaluate.run import RunResult
from manymatch.evaluate.statistics import (
    THRESHOLDS,
    Spread,
    auc_spread,
    macro_difference,
    paired_difference,
)
from manymatch.runs.journal import NAME

if TYPE_CHECKING:
    from manymatch._validate import FloatArray

# A pair counts as better or worse when its median error moves by more than this.
NOTICEABLE_DEG = 1.0
# Larger errors count as this: the pose is of no use beyond it.
_LARGEST_DEG = 20.0


@dataclasses.dataclass(frozen=True, eq=False)
class SetComparison:
    """Two runs on one set: errors in degrees, (S, N), repetitions by pairs that both have.

    `left_out` counts the pairs that only one of the runs has.
    """

    title: str
    names: list[tuple[str, str]]
    first: FloatArray
    second: FloatArray
    left_out: int = 0

    @property
    def auc(self) -> tuple[Spread, Spread]:
        """AUC of either run on the common pairs."""
        return auc_spread(self.first), auc_spread(self.second)

    @property
    def difference(self) -> Spread:
        """AUC of the first minus that of the second."""
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
        change = self.change_deg
        return {
            "better": int((change < -NOTICEABLE_DEG).sum()),
            "worse": int((change > NOTICEABLE_DEG).sum()),
            "alike": int((np.abs(change) <= NOTICEABLE_DEG).sum()),
        }

    def largest_changes(self, count: int = 5) -> list[tuple[str, str, float, float]]:
        """Pairs that differ most: their names and median errors in either run, in degrees."""
        order = np.argsort(-np.abs(self.change_deg), kind="stable")[:count]
        a, b = np.median(self.first, axis=0), np.median(self.second, axis=0)
        return [
            (*self.names[i], float(a[i]), float(b[i])) for i in order if self.change_deg[i] != 0
        ]


@dataclasses.dataclass(frozen=True, eq=False)
class Comparison:
    """Two runs on one or more sets."""

    first: str
    second: str
    sets: list[SetComparison]

    @property
    def macro(self) -> Spread:
        """Mean over the sets of the difference of the AUC."""
        return macro_difference([s.first for s in self.sets], [s.second for s in self.sets])

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        return {
            "first": self.first,
            "second": self.second,
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


def compare_runs(first: object, second: object) -> Comparison:
    """Compare two runs, given by their folders, or two folders with one run on every set.

    Raises
    ------
    ValueError
        If a folder has no run or several on one set, or if the two have no set, no pair or not
        the same number of repetitions in common.
    """
    a, b = _runs(first, "first"), _runs(second, "second")
    common = [name for name in a if name in b]
    if not common:
        raise ValueError(f"second must have a set of first ({', '.join(a)}), got {', '.join(b)}")
    return Comparison(
        str(first), str(second), [_compare(name, a[name], b[name]) for name in common]
    )


def _runs(folder: object, name: str) -> dict[str, RunResult]:
    """Find the runs at or below a folder, by set."""
    place = as_path(folder, name)
    found: dict[str, RunResult] = {}
    for path in sorted(place.rglob(NAME)) if place.is_dir() else []:
        run = RunResult.load(path.parent)
        key = run.header["source"]["set"]
        if key in found:
            raise ValueError(
                f"{name} must have one run on every set, got two on {key}: "
                f"{found[key].folder.relative_to(place)} and {run.folder.relative_to(place)}"
            )
        found[key] = run
    if not found:
        raise ValueError(f"{name} must be the folder of a run, got {str(place)!r}")
    return found


def _compare(name: str, a: RunResult, b: RunResult) -> SetComparison:
    if a.header["config"]["seeds"] != b.header["config"]["seeds"]:
        raise ValueError(
            f"second must have as many repetitions as first on {name}, "
            f"{a.header['config']['seeds']}, got {b.header['config']['seeds']}"
        )
    keys = [list(zip(run.indices, run.names, strict=True)) for run in (a, b)]
    where = {key: row for row, key in enumerate(keys[1])}
    kept = [(row, where[key]) for row, key in enumerate(keys[0]) if key in where]
    if not kept:
        raise ValueError(f"second must have pairs of first on {name}, got none of them")
    rows0, rows1 = (list(rows) for rows in zip(*kept, strict=True))
    return SetComparison(
        title=a.header["title"],
        names=[a.names[i] for i in rows0],
        first=a.errors[:, rows0],
        second=b.errors[:, rows1],
        left_out=len(a) + len(b) - 2 * len(kept),
    )
