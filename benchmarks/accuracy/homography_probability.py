"""Fit and measure `Estimate.match_probability` of homographies.

    python benchmarks/accuracy/homography_probability.py

Matches of "auto" at 3 px on the sets of the reference data, rank-one and all candidates, after
10,000 and, for more wrong homographies, after 100 iterations. A match is true if its symmetric
transfer error under the true homography is below 6 px, since the truth itself is only good to one
or two pixels. Prints the coefficients of a logistic regression on the tuning sets, in which every
run counts alike, and the reliability on the other sets of these coefficients and of those in the
package.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.accuracy.fit_probability import fit
from benchmarks.accuracy.homography import OPTIONS, TUNING_SETS, Pair, load_sets, transfer
from manymatch import AssociationGraph, _core
from manymatch.estimate.homography import HOMOGRAPHY, prepare
from manymatch.options import core_options
from tests.support.data_folder import data_folder

ITERATIONS = (100, 10_000)
TRUTH_PX = 6.0
BINS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97, 1.0)


def matches_of(
    pair: Pair, graph: AssociationGraph, iterations: int, seed: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Features and truth of the matches of one run; None where there are none."""
    options = OPTIONS.replace(
        min_iterations=min(iterations, OPTIONS.min_iterations), max_iterations=iterations, seed=seed
    )
    prepared = prepare(graph, options)
    result = _core.estimate_homography([prepared.for_core()], "auto", [core_options(options)], 1)[0]
    if not len(result.matched):
        return None
    features = HOMOGRAPHY.match_features(prepared, result)
    ends = graph.edges[result.matched]
    points0, points1 = graph.points0[ends[:, 0]], graph.points1[ends[:, 1]]
    forward = transfer(pair.H, points0) - points1
    back = transfer(np.linalg.inv(pair.H), points1) - points0
    error2 = 0.5 * (np.sum(forward**2, axis=1) + np.sum(back**2, axis=1))
    return features, error2 < TRUTH_PX**2


def runs(sets: dict[str, list[Pair]]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Features and truth of every run on these sets."""
    found = [
        matches_of(pair, graph, iterations, seed)
        for pairs in sets.values()
        for seed, pair in enumerate(pairs, start=1)
        for graph in (pair.graph.up_to_rank(1), pair.graph)
        for iterations in ITERATIONS
    ]
    return [run for run in found if run is not None]


def joined(found: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, ...]:
    """Features, truth, and weights by which every run counts alike."""
    weight = np.concatenate([np.full(len(true), 1.0 / len(true)) for _, true in found])
    x, true = (np.concatenate(columns) for columns in zip(*found, strict=True))
    return x, true.astype(float), weight / weight.sum()


def reliability(
    theta: tuple[float, ...], x: np.ndarray, true: np.ndarray, weight: np.ndarray
) -> str:
    """Lines: share of right matches among those of about the same probability."""
    p = 1.0 / (1.0 + np.exp(-theta[0] - x @ np.array(theta[1:])))
    index = np.clip(np.digitize(p, BINS) - 1, 0, len(BINS) - 2)
    lines, gap = ["| said | right | matches |", "|---|---|---|"], 0.0
    for b in range(len(BINS) - 1):
        here = index == b
        if not here.any():
            continue
        said, right = (np.average(v[here], weights=weight[here]) for v in (p, true))
        gap += weight[here].sum() * abs(said - right)
        lines.append(f"| {said:.2f} | {right:.2f} | {here.sum()} |")
    brier = np.average((p - true) ** 2, weights=weight)
    lines.append(f"Calibration error {gap:.3f}, Brier score {brier:.3f}")
    return "\n".join(lines)


def main() -> None:
    data = data_folder()
    if data is None or not (data / "homography").is_dir():
        sys.stdout.write("homography: not here, set MANYMATCH_DATA to the folder that has it\n")
        return
    sets = load_sets(data / "homography", None)
    x, true, weight = joined(runs({s: p for s, p in sets.items() if s in TUNING_SETS}))
    fitted = tuple(fit(x, true, weight))
    sys.stdout.write(f"{len(true)} matches of the tuning sets, {true.mean():.2f} right\n")
    sys.stdout.write("constant, competition, excess, size, prior:\n")
    sys.stdout.write("(" + ", ".join(f"{value:.3f}" for value in fitted) + ")\n\n")
    judged = joined(runs({s: p for s, p in sets.items() if s not in TUNING_SETS}))
    for name, theta in (("fitted here", fitted), ("in the package", HOMOGRAPHY.match_coefficients)):
        sys.stdout.write(f"Judging sets, coefficients {name}\n\n")
        sys.stdout.write(reliability(theta, *judged) + "\n\n")


if __name__ == "__main__":
    main()
