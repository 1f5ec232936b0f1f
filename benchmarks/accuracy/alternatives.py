"""Scenes with two exact poses: whether both are found, each as probable as stated.

    python benchmarks/accuracy/alternatives.py --out out/accuracy

Planes, which two poses show alike, and facades that repeat, which fit to themselves shifted by a
period, 200 of each. How often both poses are listed, the probability that is stated for the true
one beside how often it is chosen, and a reliability table. With the reference data also the graphs
of real images, and over everything the number of nats of support that should make a pose e times
as likely (``kNatsPerOdds`` of the core), with its standard deviation. Writes ``alternatives.md``.
"""

from __future__ import annotations

import math
import re
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import minimize_scalar

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import manymatch
from benchmarks.accuracy import protocol
from manymatch import pose_error_deg
from manymatch.estimate.uncertainty import planar_twin
from manymatch_lab.evaluate.inputs import open_graphs
from manymatch_lab.evaluate.tables import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

FOCAL, CENTRE = 800.0, np.array([512.0, 384.0])
K = np.array([[FOCAL, 0.0, CENTRE[0]], [0.0, FOCAL, CENTRE[1]], [0.0, 0.0, 1.0]])
NOISE_PX = 0.3
# Poses farther apart than this, in degrees, are two; one that is closer to the truth is right.
LIMIT_DEG = 5.0
# `kNatsPerOdds` of the core.
NATS_PER_ODDS = float(
    re.search(
        r"kNatsPerOdds = ([\d.]+)",
        (Path(__file__).parents[2] / "cpp/include/manymatch/estimator.h").read_text("utf-8"),
    )[1]
)
EDGES_OF_BINS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


@dataclass(frozen=True)
class TwoPoses:
    """A graph in pixels (both cameras have `K`), its true pose and the other that explains it."""

    graph: manymatch.AssociationGraph
    true: manymatch.RelativePose
    other: manymatch.RelativePose


def plane_scene(seed: int, points: int = 120) -> TwoPoses:
    """Show points of one plane only; a keypoint has three candidates, often the true one."""
    for attempt in range(1000):
        rng = np.random.default_rng([seed, attempt, 1])
        true = _random_pose(rng, 0.3)
        tilt = rng.uniform(-0.8, 0.8, 2)
        plane = np.append(tilt, 1.0) / rng.uniform(3.0, 6.0)
        x0 = rng.uniform(-0.55, 0.55, (points, 2)) * [1.0, 0.75]
        depth = 1.0 / (np.column_stack([x0, np.ones(points)]) @ plane)
        X0 = np.column_stack([x0, np.ones(points)]) * depth[:, None]
        X1 = X0 @ true.R.T + true.t
        if depth.min() < 1.0 or X1[:, 2].min() < 1.0:
            continue
        x1 = X1[:, :2] / X1[:, 2:]
        twin = planar_twin(true.R, true.t, plane, x0)
        if twin is None or np.abs(x1).max() > 1.0:
            continue
        other = manymatch.RelativePose(*twin)
        edges = np.repeat(np.arange(points), 2).reshape(-1, 2)
        exact = manymatch.AssociationGraph(*map(_pixels, (x0, x1)), edges)
        seen = manymatch.score_pose(exact, K, K, other, threshold_px=0.01).num_inliers
        if seen < points or pose_error_deg(other, true.R, true.t) < 3.0 * LIMIT_DEG:
            continue
        candidates: list[list[int]] = []
        for i in range(points):
            listed = [int(j) for j in rng.choice(points, 3, replace=False) if j != i]
            if rng.random() < 0.7:
                listed.insert(0 if rng.random() < 0.6 else 1, i)
            candidates.append(listed)
        return TwoPoses(_graph(rng, x0, x1, candidates), true, other)
    raise RuntimeError("no plane was seen alike by two poses")


def facade_scene(seed: int, periods: int = 6, per_period: int = 16) -> TwoPoses:
    """Make a facade on two depths that repeats, and up to four points that do not.

    A keypoint of image 0 has a wrong candidate and, nearly always, the true one and that of the
    next period, in any order. Image 1 sees one period more.
    """
    rng = np.random.default_rng([seed, 2])
    apart = 0.0
    while apart < 3.0 * LIMIT_DEG:
        true = _random_pose(rng, 0.15)
        period = rng.choice([-1.0, 1.0]) * rng.uniform(0.6, 0.9) * np.array([1.0, 0.0, 0.0])
        # Where the next period is taken for this one, the camera seems to have moved so.
        other = manymatch.RelativePose(true.R, true.t + true.R @ period)
        apart = pose_error_deg(other, true.R, true.t)
    motif = np.column_stack(
        [
            rng.uniform(0.0, 0.8, per_period),
            rng.uniform(-1.6, 1.6, per_period),
            rng.choice([4.5, 5.5], per_period),
        ]
    )
    first = -0.5 * (periods - 1) * period
    cells = [motif + first + k * period for k in range(periods + 1)]
    unique = rng.uniform([-2.0, -1.5, 4.0], [2.0, 1.5, 7.0], (rng.integers(0, 5), 3))
    X1 = np.concatenate([*cells, unique]) @ true.R.T + true.t
    X0 = np.concatenate([*cells[:periods], unique])
    shown = periods * per_period
    candidates: list[list[int]] = []
    for i in range(len(X0)):
        alike = [i, i + per_period] if i < shown else [i + per_period]
        listed = rng.permutation(alike).tolist() if rng.random() < 0.85 else []
        candidates.append(list(dict.fromkeys([*listed, int(rng.integers(len(X1)))])))
    graph = _graph(rng, X0[:, :2] / X0[:, 2:], X1[:, :2] / X1[:, 2:], candidates)
    return TwoPoses(graph, true, other)


def _random_pose(rng: np.random.Generator, angle: float) -> manymatch.RelativePose:
    axis = rng.normal(size=3)
    w = axis / np.linalg.norm(axis) * rng.uniform(0.0, angle)
    cross = np.cross(np.eye(3), -w)
    size = float(np.linalg.norm(w))
    R = np.eye(3) + math.sin(size) / size * cross
    R += (1.0 - math.cos(size)) / size**2 * cross @ cross
    t = rng.normal(size=3) * [1.0, 1.0, 0.4]
    return manymatch.RelativePose(R, t / np.linalg.norm(t))


def _pixels(x: FloatArray) -> FloatArray:
    return np.asarray(FOCAL * x + CENTRE)


def _graph(
    rng: np.random.Generator, x0: FloatArray, x1: FloatArray, candidates: Sequence[Sequence[int]]
) -> manymatch.AssociationGraph:
    rows = [
        (rank, rng.random(), i, j)
        for i, listed in enumerate(candidates)
        for rank, j in enumerate(listed, start=1)
    ]
    rows.sort()
    points = [_pixels(x) + rng.normal(scale=NOISE_PX, size=x.shape) for x in (x0, x1)]
    edges = np.array([(i, j) for _, _, i, j in rows])
    return manymatch.AssociationGraph(*points, edges, rank=np.array([row[0] for row in rows]))


SCENES: dict[str, Callable[[int], TwoPoses]] = {"plane": plane_scene, "facade": facade_scene}


@dataclass(frozen=True)
class Case:
    """What was found, the chosen pose first: probabilities and errors in degrees."""

    probability: FloatArray
    error: FloatArray
    both: bool = False

    @property
    def right(self) -> int:
        """Index of the right pose, -1 if none is."""
        return int(np.argmin(self.error)) if self.error.min() < LIMIT_DEG else -1


def case_of(
    estimate: manymatch.Estimate,
    true: tuple[FloatArray, FloatArray],
    other: manymatch.RelativePose | None = None,
) -> Case:
    """Compare an estimate with the true pose (R, t) and, if there is one, the other."""
    others = estimate.alternatives
    poses = [estimate.pose, *(a.model for a in others)]
    listed = np.array([a.probability for a in others])
    error = np.array([pose_error_deg(pose, *true) for pose in poses])
    both = False
    if other is not None:
        second = min(pose_error_deg(pose, other.R, other.t) for pose in poses)
        both = bool(error.min() < LIMIT_DEG and second < LIMIT_DEG)
    return Case(np.append(1.0 - listed.sum(), listed), error, both)


def scene_cases(kind: str, count: int) -> Iterator[Case]:
    """Run "auto" on scenes of a kind."""
    for seed in range(count):
        scene = SCENES[kind](seed)
        estimate = manymatch.estimate_relative_pose(
            scene.graph, K, K, "auto", protocol.OPTIONS, seed=seed
        )
        yield case_of(estimate, (scene.true.R, scene.true.t), scene.other)


def real_cases(folder: Path, seeds: int) -> Iterator[Case]:
    """Run "auto" on the graphs of a representation."""
    for source in open_graphs([str(folder)]):
        for index in range(len(source)):
            pair = source[index]
            for seed in range(seeds):
                estimate = manymatch.estimate_relative_pose(
                    pair.graph.head(2048),
                    pair.camera0,
                    pair.camera1,
                    "auto",
                    protocol.OPTIONS,
                    seed=seed,
                )
                if estimate.success:
                    yield case_of(estimate, (pair.R, pair.t))


def fit_nats(cases: Sequence[Case], repeated: int = 1) -> tuple[float, float]:
    """Nats of support that make a pose e times as likely, and their standard deviation.

    Of the largest likelihood of the right poses, where there are several and one is right; each
    counts by one over the number of its repetitions. The supports follow from the odds.
    """
    usable = [case for case in cases if case.right >= 0 and len(case.probability) > 1]

    def cost(log_nats: float) -> float:
        total = 0.0
        for case in usable:
            nats = NATS_PER_ODDS * np.log(case.probability / case.probability[case.right])
            total += float(np.logaddexp.reduce(nats / math.exp(log_nats)))
        return total / repeated

    best = minimize_scalar(cost, bounds=(math.log(0.1), math.log(1000.0)), method="bounded").x
    step = 0.05
    curvature = (cost(best + step) - 2.0 * cost(best) + cost(best - step)) / step**2
    nats = math.exp(best)
    return nats, nats / math.sqrt(max(curvature, 1e-12))


def summary(name: str, cases: Sequence[Case]) -> list[str]:
    """One line: what is listed, what is chosen, and the probability of the true pose."""
    solved = [case for case in cases if case.right >= 0]
    stated = np.mean([case.probability[case.right] for case in solved])
    chosen = np.mean([case.right == 0 for case in solved])
    claimed = np.mean([case.probability[0] for case in solved])
    both = f"{100 * np.mean([case.both for case in cases]):.0f} %" if name in SCENES else "–"
    numbers = [f"{value:.2f}" for value in (stated, claimed, chosen)]
    return [name, str(len(cases)), both, f"{100 * len(solved) / len(cases):.0f} %", *numbers]


def reliability(name: str, cases: Sequence[Case]) -> list[str]:
    """One line: in every bin of stated probability, how often the pose is the right one."""
    stated = np.concatenate([case.probability for case in cases if case.right >= 0])
    right = np.concatenate(
        [np.arange(len(case.error)) == case.right for case in cases if case.right >= 0]
    )
    cells = []
    for low, high in pairwise(EDGES_OF_BINS):
        inside = (stated >= low) & ((stated < high) | (high == 1.0))
        cells.append(
            f"{stated[inside].mean():.2f} → {right[inside].mean():.2f} ({inside.sum()})"
            if inside.any()
            else "–"
        )
    return [name, *cells]


def main() -> None:
    parser = protocol.arguments(__doc__.splitlines()[0])
    parser.add_argument("--scenes", type=int, default=200, help="scenes of each kind")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    groups = {kind: list(scene_cases(kind, given.scenes)) for kind in SCENES}
    fits = {kind: fit_nats(cases) for kind, cases in groups.items()}
    graphs = protocol.reference_data("graphs")
    if graphs is not None:
        for name in ("sift", "superpoint", "effnet", "sam2"):
            groups[name] = list(real_cases(graphs / name, given.seeds))
            fits[name] = fit_nats(groups[name], given.seeds)
    # A real pair appears once per repetition; together its repetitions count once.
    every = [case for kind in SCENES for case in groups[kind]]
    every += [
        case for name in groups if name not in SCENES for case in groups[name][:: given.seeds]
    ]
    fits["all"] = fit_nats(every)
    bins = [f"{low:g}–{high:g}" for low, high in pairwise(EDGES_OF_BINS)]
    protocol.write(
        given.out,
        "alternatives",
        [
            Table(
                "Poses that are listed",
                [
                    *("", "pairs", "both listed", "true one listed", "stated for the true one"),
                    *("stated for the chosen", "chosen is true"),
                ],
                [summary(name, cases) for name, cases in groups.items()],
                [],
            ),
            Table(
                "Stated probability of a pose → how often it is right (poses)",
                ["", *bins],
                [reliability(name, cases) for name, cases in groups.items()],
                [],
            ),
            Table(
                "Nats of support that make a pose e times as likely",
                ["", "nats"],
                [[name, f"{nats:.1f} ± {sd:.1f}"] for name, (nats, sd) in fits.items()],
                [],
            ),
        ],
    )


if __name__ == "__main__":
    main()
