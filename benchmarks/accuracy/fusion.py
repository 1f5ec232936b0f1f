"""Pose AUC of several features in one graph, beside each of them alone.

    python benchmarks/accuracy/fusion.py --out out/accuracy --seeds 2

For every set of real graphs, 1,000 to 20,000 iterations, 1 px: SIFT, SuperPoint and EfficientNet
alone, and stacked by `merge_graphs`: with their sources, with sources but without the part "trust",
and without sources, as one graph. Differences have paired 95 % intervals over pairs; the verdicts
are those of the first seed. Writes ``fusion.md``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.accuracy import protocol
from manymatch.associate.merge import merge_graphs
from manymatch.estimate.confidence import assess
from manymatch.estimate.many import estimate_many
from manymatch.estimate.words import RELIABLE
from manymatch.geometry.pose import pose_error_deg
from manymatch.graph import AssociationGraph
from manymatch_lab.evaluate.posed_graph import read_posed_graph
from manymatch_lab.evaluate.statistics import auc_by_seed, macro_difference
from manymatch_lab.evaluate.tables import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from manymatch._validate import FloatArray
    from manymatch_lab.evaluate.posed_graph import PosedGraph

SOURCES = ("sift", "superpoint", "effnet")
# Sets on which trust was tuned; the others were in view too (benchmarks/results/fusion.md).
TUNED = ("metu_vistir_pseudo", "middlebury_temple", "tum_fr3_office")
ONE_GRAPH, NO_TRUST, STACKED = "stacked, as one graph", "stacked, without trust", "stacked"

Errors = dict[str, list["FloatArray"]]


def graph_of(method: str, posed: Mapping[str, PosedGraph]) -> AssociationGraph:
    """Make the graph that a method takes."""
    if method in posed:
        return posed[method].graph
    merged = merge_graphs([posed[name].graph for name in SOURCES], SOURCES)
    if method != ONE_GRAPH:
        return merged
    return AssociationGraph(
        merged.points0, merged.points1, merged.edges, merged.similarity, merged.rank
    )


def errors_of(
    method: str, pairs: Sequence[Mapping[str, PosedGraph]], seeds: int
) -> tuple[FloatArray, list[bool]]:
    """Return errors (seeds, pairs) in degrees, and which estimates of the first seed pass."""
    first = [posed[SOURCES[0]] for posed in pairs]
    problems = [
        (graph_of(method, posed), one.camera0, one.camera1)
        for posed, one in zip(pairs, first, strict=True)
    ]
    options = protocol.OPTIONS.replace(disable=("trust",) if method == NO_TRUST else ())
    rows, passing = [], []
    for seed in range(seeds):
        found = estimate_many(problems, options=options.replace(seed=seed))
        rows.append(
            [pose_error_deg(e.pose, one.R, one.t) for e, one in zip(found, first, strict=True)]
        )
        passing = passing or [assess(e).verdict in RELIABLE for e in found]
    return np.array(rows), passing


def verdict_row(name: str, errors: list[FloatArray], passing: list[bool]) -> list[str]:
    """How many poses of the first seed are solved or likely, by their error."""
    off, known = np.concatenate([rows[0] for rows in errors]), np.array(passing)
    limits = ((0.0, 5.0), (5.0, 20.0), (20.0, np.inf))
    groups = [(off >= low) & (off < high) for low, high in limits]
    return [name, *(f"{np.sum(known & own)} of {np.sum(own)}" for own in groups)]


def difference_row(name: str, first: list[FloatArray], second: list[FloatArray]) -> list[str]:
    """Differences of the AUC with their intervals."""
    spread = macro_difference(first, second)
    cells = [
        f"{mean:+.1f} [{interval.low:.1f}, {interval.high:.1f}]"
        for mean, interval in zip(spread.mean, spread.interval, strict=True)
    ]
    return [name, *cells]


def main() -> None:
    parser = protocol.arguments(__doc__.splitlines()[0])
    parser.add_argument("--limit", type=int, help="pairs of a set, the first ones")
    given = parser.parse_args()
    graphs = protocol.reference_data("graphs")
    if graphs is None:
        return
    sets = sorted(path.name for path in (graphs / SOURCES[0]).iterdir())
    errors: Errors = {name: [] for name in (*SOURCES, ONE_GRAPH, NO_TRUST, STACKED)}
    passing: dict[str, list[bool]] = {name: [] for name in errors}
    for name in sets:
        files = sorted(path.name for path in (graphs / SOURCES[0] / name).glob("*.npz"))
        pairs = [
            {source: read_posed_graph(graphs / source / name / file) for source in SOURCES}
            for file in files[: given.limit]
        ]
        for method, rows in errors.items():
            found, pass_ = errors_of(method, pairs, given.seeds)
            rows.append(found)
            passing[method] += pass_
    lines = []
    for method, rows in errors.items():
        by_set = [auc_by_seed(row) for row in rows]
        lines.append([method, *map(protocol.auc_text, [np.mean(by_set, axis=0), *by_set])])
    count = sum(row.shape[1] for row in errors[STACKED])
    title = f"AUC@5 / 10 / 20, {count} pairs"
    tables = [Table(title, ["graph", "macro average", *sets], lines, [])]
    header = ["solved or likely", "below 5°", "5° to 20°", "beyond 20°"]
    verdicts = [verdict_row(method, rows, passing[method]) for method, rows in errors.items()]
    tables.append(Table("Verdicts, first seed", header, verdicts))
    kept = [i for i, name in enumerate(sets) if name not in TUNED]
    for label, which in (("all sets", range(len(sets))), ("sets not used for tuning", kept)):
        rows = [
            difference_row(
                f"stacked − {other}", *([errors[m][i] for i in which] for m in (STACKED, other))
            )
            for other in errors
            if other != STACKED
        ]
        tables.append(Table(label, ["difference", "at 5°", "at 10°", "at 20°"], rows, []))
    given.out.mkdir(parents=True, exist_ok=True)
    protocol.write(given.out, "fusion", tables)


if __name__ == "__main__":
    main()
