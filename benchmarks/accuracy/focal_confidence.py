"""Reliability of `assess` where focal lengths are unknown: said against observed.

    python benchmarks/accuracy/focal_confidence.py sift --pairs 10
    python benchmarks/accuracy/focal_confidence.py effnet --pairs 6
    python benchmarks/accuracy/focal_confidence.py zoom --pairs 400

A representation of the posed graphs: pairs spread over every set whose cameras are known, each with
a shared, one unknown and two unknown focal lengths. "zoom": synthetic pairs in which a zoom can be
taken for motion. A pose is right if rotation and direction of translation, its sign included, are
off by less than 5 degrees.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import manymatch
from benchmarks.accuracy.protocol import reference_data
from benchmarks.accuracy.unknown_focal import cameras_of
from manymatch.associate.candidates import Association
from manymatch_lab.evaluate.inputs import open_graphs

if TYPE_CHECKING:
    from collections.abc import Iterator

    Case = tuple[Any, Any, Any]  # an estimate, and the true R and t

SETTINGS = {"min_iterations": 1000, "max_iterations": 20_000, "threads": 1}
SHARED = {"shared": True, "one unknown": None, "both unknown": False}
EDGES = (0.0, 0.1, 0.35, 0.65, 0.9, 1.01)
SIZE = np.array([1000, 750])


def real_cases(folder: Path, pairs: int) -> Iterator[Case]:
    for source in open_graphs([str(folder)]):
        if source.name == "metu_vistir_pseudo":  # its two cameras differ
            continue
        for index in np.unique(np.linspace(0, len(source) - 1, pairs).round().astype(int)).tolist():
            pair = source[index]
            graph = Association().for_method("auto").apply(pair.graph, **pair.sizes)
            for name, shared in SHARED.items():
                cameras = cameras_of(pair, name, centre=False)
                yield (
                    manymatch.estimate_relative_pose(
                        graph, *cameras, seed=0, shared_focal=shared, **SETTINGS
                    ),
                    pair.R,
                    pair.t,
                )


def zoom_cases(pairs: int) -> Iterator[Case]:
    """Yield pairs of one scene with a zoom, and motion along the viewing direction or none."""
    centre = (SIZE - 1) / 2
    for seed in range(pairs):
        rng = np.random.default_rng([7, seed])
        focal = float(900.0 * np.exp(0.3 * rng.normal()))
        zoom = float(np.exp(rng.uniform(-0.8, 0.8)))
        depth = rng.uniform(5.0, rng.choice([5.3, 6.0, 9.0, 30.0]), 1200)
        t = np.array([0.15, 0.05, 1.0]) * rng.normal(size=3) * rng.choice([0.1, 1.0])
        turn = np.radians(rng.uniform(-5.0, 5.0))
        R = np.array([[np.cos(turn), 0, np.sin(turn)], [0, 1, 0], [-np.sin(turn), 0, np.cos(turn)]])
        x0 = rng.uniform((0, 0), SIZE, (1200, 2))
        space = np.column_stack([(x0 - centre) / focal, np.ones(1200)]) * depth[:, None]
        moved = space @ R.T + t
        x1 = moved[:, :2] / moved[:, 2:] * (zoom * focal) + centre
        seen = (moved[:, 2] > 0.5) & (x1 >= 0).all(1) & (x1 < SIZE).all(1)
        number = int(rng.integers(60, 300))
        x0, x1 = (x[seen][:number] for x in (x0, x1))
        x0, x1 = (x + 0.5 * rng.normal(size=x.shape) for x in (x0, x1))
        wrong = rng.random(len(x1)) < 0.3
        x1[wrong] = rng.uniform((0, 0), SIZE, (int(wrong.sum()), 2))
        graph = manymatch.AssociationGraph.from_matches(x0, x1)
        camera = manymatch.Camera.unknown(*SIZE.tolist())
        found = manymatch.estimate_relative_pose(
            graph, camera, camera, seed=seed, shared_focal=False, **SETTINGS
        )
        yield found, R, t / np.linalg.norm(t)


def is_right(estimate: Any, R: Any, t: Any) -> bool:
    if estimate.pose is None:
        return False
    cosines = 0.5 * (float(np.sum(R * estimate.pose.R)) - 1.0), float(np.dot(t, estimate.pose.t))
    return float(np.degrees(np.arccos(np.clip(cosines, -1.0, 1.0))).max()) < 5.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", help="zoom, or a representation of the posed graphs such as sift")
    parser.add_argument("--pairs", type=int, default=6, help="of a set, or scenes")
    given = parser.parse_args()
    cases = zoom_cases(given.pairs)
    if given.what != "zoom":
        folder = reference_data(f"graphs/{given.what}")
        if folder is None:
            return
        cases = real_cases(folder, given.pairs)
    said, right, verdicts = [], [], Counter[str]()
    for estimate, R, t in cases:
        sure = manymatch.assess(estimate)
        said.append(sure.pose_probability)
        right.append(is_right(estimate, R, t))
        verdicts[sure.verdict] += 1
        verdicts[f"{sure.verdict} and right"] += right[-1]
    p, truth = np.array(said), np.array(right)
    print(f"{len(p)} estimates, {truth.mean():.3f} right, Brier {np.mean((p - truth) ** 2):.3f}")
    print("| said | estimates | mean said | right |\n|---|---|---|---|")
    for low, high in itertools.pairwise(EDGES):
        some = (p >= low) & (p < high)
        if some.any():
            row = [f"{low:g} to {min(high, 1.0):g}", str(some.sum())]
            row += [f"{values[some].mean():.2f}" for values in (p, truth)]
            print(f"| {' | '.join(row)} |")
    print(", ".join(f"{number} {name}" for name, number in sorted(verdicts.items())))


if __name__ == "__main__":
    main()
