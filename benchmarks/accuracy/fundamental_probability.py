"""Fit and measure `Estimate.match_probability` of fundamental matrices.

    python benchmarks/accuracy/fundamental_probability.py --every 3

Matches of "auto" at 1 px on the posed graphs, rank-one and all candidates, after 10,000 and, for
more wrong matrices, after 100 iterations. A match is true if its Sampson distance under the true
pose is below 5 px. Prints the coefficients of a logistic regression on the tuning sets, in which
every run counts alike, and the reliability on the other sets of these coefficients and of those in
the package.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.accuracy import protocol
from benchmarks.accuracy.fit_probability import fit
from benchmarks.accuracy.fundamental import OPTIONS, TUNING_SETS, sampson2
from benchmarks.accuracy.homography_probability import ITERATIONS, joined, reliability
from manymatch import AssociationGraph, _core
from manymatch.estimate.fundamental import FUNDAMENTAL, prepare
from manymatch.options import core_options
from manymatch_lab.evaluate.posed_graph import PosedGraph, read_posed_graph

TRUTH_PX = 5.0


def matches_of(
    posed: PosedGraph, graph: AssociationGraph, iterations: int, seed: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Features and truth of the matches of one run; None where there are none."""
    options = OPTIONS.replace(
        min_iterations=min(iterations, OPTIONS.min_iterations), max_iterations=iterations, seed=seed
    )
    pair = prepare(graph, options)
    result = _core.estimate_fundamental([pair.for_core()], "auto", [core_options(options)], 1)[0]
    if not len(result.matched):
        return None
    features = FUNDAMENTAL.match_features(pair, result)
    ends = graph.edges[result.matched]
    x0, x1 = (
        np.column_stack([points[ends[:, side]], np.ones(len(ends))])
        for side, points in enumerate((graph.points0, graph.points1))
    )
    K0, K1 = (np.linalg.inv(camera.K) for camera in (posed.camera0, posed.camera1))
    return features, sampson2(K1.T @ posed.pose.essential() @ K0, x0, x1) < TRUTH_PX**2


def runs(folders: list[Path], every: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Features and truth of every run on these sets."""
    found = []
    for folder in folders:
        for seed, path in enumerate(sorted(folder.glob("*.npz"))[::every], start=1):
            posed = read_posed_graph(path)
            for graph in (posed.graph.up_to_rank(1), posed.graph):
                found += [matches_of(posed, graph, n, seed) for n in ITERATIONS]
    return [run for run in found if run is not None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--every", type=int, default=1, help="take every so-manieth pair")
    given = parser.parse_args()
    graphs = protocol.reference_data("graphs")
    if graphs is None:
        return
    folders = [
        folder
        for representation in ("sift", "superpoint", "effnet")
        for folder in sorted((graphs / representation).iterdir())
    ]
    x, true, weight = joined(runs([f for f in folders if f.name in TUNING_SETS], given.every))
    fitted = tuple(fit(x, true, weight))
    sys.stdout.write(f"{len(true)} matches of the tuning sets, {true.mean():.2f} right\n")
    sys.stdout.write("(" + ", ".join(f"{value:.3f}" for value in fitted) + ")\n\n")
    judged = joined(runs([f for f in folders if f.name not in TUNING_SETS], given.every))
    stored = FUNDAMENTAL.match_coefficients
    for name, theta in (("fitted here", fitted), ("in the package", stored)):
        sys.stdout.write(f"Judging sets, coefficients {name}\n\n")
        sys.stdout.write(reliability(theta, *judged) + "\n\n")


if __name__ == "__main__":
    main()
