"""Fit and measure `Estimate.match_probability` of rigid transforms and similarities.

    python benchmarks/accuracy/registration_probability.py

Matches of "auto" at 1.5 voxels on the sets of the reference data, rank-one and all candidates,
after 10,000 and, for more wrong transforms, after 10 iterations. A match is true if it is within 3
voxels under the true transform, since the truth itself is only good to a voxel or two. Prints the
coefficients of a logistic regression on the tuning sets, in which every run counts alike, and the
reliability on the other sets of these coefficients and of those in the package.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.accuracy.fit_probability import fit
from benchmarks.accuracy.homography_probability import joined, reliability
from benchmarks.accuracy.registration import TUNING_SETS, VOXELS, Pair, load_sets, moved
from manymatch import AssociationGraph, Options, _core
from manymatch.estimate.rigid import RIGID, SIMILARITY
from manymatch.options import core_options
from tests.support.data_folder import data_folder

ITERATIONS = (10, 10_000)
TRUTH_VOXELS = 3.0
Run = tuple[np.ndarray, np.ndarray]


def matches_of(
    pair: Pair, graph: AssociationGraph, iterations: int, seed: int, similarity: bool
) -> Run | None:
    """Features and truth of the matches of one run; None where there are none."""
    options = Options(
        min_iterations=min(iterations, 1_000), max_iterations=iterations, seed=seed, threads=1
    )
    problem = SIMILARITY if similarity else RIGID
    prepared = problem.prepare(graph, VOXELS * pair.voxel, options)
    core = getattr(_core, problem.core)
    result = core([prepared.for_core()], "auto", [core_options(options)], 1)[0]
    if not len(result.matched):
        return None
    features = problem.match_features(prepared, result)
    ends = graph.edges[result.matched]
    off = moved(pair.truth, graph.points0[ends[:, 0]]) - graph.points1[ends[:, 1]]
    return features, np.linalg.norm(off, axis=1) < TRUTH_VOXELS * pair.voxel


def runs(folder: Path, tuning: bool) -> list[Run]:
    """Features and truth of every run on these sets."""
    found = []
    for similarity in (False, True):
        for name, pairs in load_sets(folder, None, similarity).items():
            if (name in TUNING_SETS) != tuning:
                continue
            found += [
                matches_of(pair, graph, iterations, seed, similarity)
                for seed, pair in enumerate(pairs, start=1)
                for graph in (pair.graph.up_to_rank(1), pair.graph)
                for iterations in ITERATIONS
            ]
    return [run for run in found if run is not None]


def main() -> None:
    data = data_folder()
    if data is None or not (data / "registration").is_dir():
        sys.stdout.write("registration: not here, set MANYMATCH_DATA to the folder that has it\n")
        return
    x, true, weight = joined(runs(data / "registration", tuning=True))
    fitted = tuple(fit(x, true, weight))
    sys.stdout.write(f"{len(true)} matches of the tuning sets, {true.mean():.2f} right\n")
    sys.stdout.write("constant, competition, excess, size, prior, share:\n")
    sys.stdout.write("(" + ", ".join(f"{value:.3f}" for value in fitted) + ")\n\n")
    judged = joined(runs(data / "registration", tuning=False))
    for name, theta in (("fitted here", fitted), ("in the package", RIGID.match_coefficients)):
        sys.stdout.write(f"Judging sets, coefficients {name}\n\n")
        sys.stdout.write(reliability(theta, *judged) + "\n\n")


if __name__ == "__main__":
    main()
