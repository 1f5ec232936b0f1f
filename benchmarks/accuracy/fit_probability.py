"""Fit the coefficients of `Estimate.match_probability`.

    python benchmarks/accuracy/fit_probability.py

Matches of "auto" on two posed sets (indoor desk and turntable, every representation) and on every
other synthetic graph of the reference data, after 20,000 and, for more wrong poses, after 300
iterations. A match is true if the synthetic graph says so, or if it lies within 5 px of the true
epipolar geometry. Logistic regression in which every pair counts alike; prints the coefficients.
`manymatch experiment calibration` measures the result on other sets.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.progress import Progress

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import manymatch
from manymatch import _core
from manymatch.associate.candidates import Association
from manymatch.estimate.match_probability import match_features
from manymatch.estimate.options import core_options
from manymatch.estimate.relative_pose import prepare, sampson_distances
from manymatch.evaluate.sources import open_sources
from tests.support.data_folder import data_folder

if TYPE_CHECKING:
    from manymatch.estimate.prepare import PreparedPair

SETS = ("tum_fr3_office", "middlebury_temple")
ITERATIONS = (300, 20_000)
TRUTH_PX = 5.0
# Keeps slopes finite where the data would allow any.
RIDGE = 1e-4


def matches_of(pair: PreparedPair, true: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Features and truth of the matches of one pair; None where there are none."""
    result = _core.estimate_relative_pose(
        [pair.for_core()], "auto", [core_options(pair.options)], 1
    )[0]
    if not len(result.matched):
        return None
    distance = sampson_distances(pair, result.R, result.t) / pair.eps
    rank, matched = pair.graph.rank, result.matched
    features = match_features(pair.edges, rank, result.kept, distance, result.inliers, matched)
    return features, true[matched]


def problems(data: Path, iterations: int) -> list[tuple[PreparedPair, np.ndarray]]:
    """All pairs, each with the truth of its candidates."""
    options = manymatch.Options(
        min_iterations=min(iterations, 1_000), max_iterations=iterations, threads=1
    )
    found = []
    folders = [path for path in sorted((data / "graphs").glob("*/*")) if path.name in SETS]
    for source in open_sources([str(folder) for folder in folders]):
        for index in range(len(source)):
            posed = source[index]
            seen = Association().for_method("auto")
            graph = seen.apply(posed.graph, **posed.sizes)
            pair = prepare(graph, posed.camera0, posed.camera1, options)
            off = sampson_distances(pair, posed.R, posed.t) / pair.eps
            found.append((pair, off < TRUTH_PX))
    for path in sorted((data / "graphs" / "made").glob("g_*.npz"))[::2]:
        with np.load(path) as file:
            edges = np.column_stack([file["idx1"], file["idx2"]])
            graph = manymatch.AssociationGraph(
                file["kp1"], file["kp2"], edges, file["similarity"], file["first_k"]
            )
            pair = prepare(graph, file["K1"], file["K2"], options)
            found.append((pair, file["kind"] == 0))
    return found


def fit(x: np.ndarray, true: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Coefficients of a weighted logistic regression, by Newton's method."""
    design = np.column_stack([np.ones(len(x)), x])
    penalty = RIDGE * np.diag([0.0] + [1.0] * x.shape[1])
    theta = np.zeros(design.shape[1])
    for _ in range(50):
        p = 1.0 / (1.0 + np.exp(-design @ theta))
        gradient = design.T @ (weight * (p - true)) + penalty @ theta
        hessian = (design * (weight * p * (1.0 - p))[:, None]).T @ design + penalty
        step = np.linalg.solve(hessian, gradient)
        theta -= step
        if np.abs(step).max() < 1e-9:
            break
    return theta


def main() -> None:
    console = Console()
    data = data_folder()
    if data is None:
        console.print("The reference data is not here; set MANYMATCH_DATA to its folder.")
        return
    pairs = []
    with Progress(console=console, transient=True) as progress:
        for iterations in ITERATIONS:
            listed = problems(data, iterations)
            for problem, true in progress.track(listed, description=f"{iterations} iterations"):
                pairs.append(matches_of(problem, true))
    found = [pair for pair in pairs if pair is not None]
    x = np.concatenate([features for features, _ in found])
    true = np.concatenate([truth for _, truth in found]).astype(float)
    weight = np.concatenate([np.full(len(truth), 1.0 / len(truth)) for _, truth in found])
    theta = fit(x, true, weight / weight.sum())
    console.print(f"{len(found)} runs, {len(true):,} matches, {true.mean():.3f} true")
    console.print("constant, competition, excess, size, prior:")
    console.print("(" + ", ".join(f"{value:.3f}" for value in theta) + ")")


if __name__ == "__main__":
    main()
