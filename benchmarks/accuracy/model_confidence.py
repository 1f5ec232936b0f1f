"""Fit and judge the probability that `assess` gives to the models of other problems than poses.

    python benchmarks/accuracy/model_confidence.py           # 5 minutes on one core

Estimates of "auto" on the data of homographies, fundamental matrices (posed graphs), absolute poses
and registration: all candidates and those of rank one, with the full and, for more wrong models,
with a small number of iterations; and the same graphs with the points of one side exchanged at
random, which have no model. The coefficients of every problem are fitted on some of its sets; the
others judge.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.progress import track

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import manymatch
from benchmarks.accuracy import protocol
from benchmarks.accuracy.fit_probability import fit
from manymatch.estimate import confidence
from manymatch.estimate.many import PROBLEMS
from manymatch_lab.evaluate.inputs import open_graphs
from manymatch_lab.evaluate.tables import Table
from tests.support.data_folder import data_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ITERATIONS = (10_000, 50)
#: Sets on which the coefficients are fitted.
FITTED = (
    *("oxford", "mm_RGB_NIR", "mm_remote", "strecha", "stanford_bunny"),
    *("tum_fr3_office", "middlebury_temple", "kitti_vo"),
)
# Errors between one and this many limits say little about the geometry that was searched.
UNCLEAR = 2.0

# Problem, set, graph, function that estimates, and the error of an estimate over its limit.
Case = tuple[
    str,
    str,
    manymatch.AssociationGraph,
    "Callable[..., manymatch.Estimate]",
    "Callable[[manymatch.Estimate], float]",
]


def homographies(data: Path) -> Iterator[Case]:
    for path in sorted((data / "homography").glob("*/*.npz")):
        with np.load(path) as file:
            graph = graph_of(file, "points0", "points1")
            H = file["H"]
        used = graph.points0[np.unique(graph.edges[:, 0])]
        low, high = used.min(axis=0), used.max(axis=0)
        corners = np.array([low, [low[0], high[1]], high, [high[0], low[1]]])

        def error(found: Any, H: Any = H, corners: Any = corners) -> float:
            gap = mapped(found.homography, corners) - mapped(H, corners)
            rms = np.sqrt(np.mean(np.sum(gap**2, axis=1)))
            return float(rms / (3.0 * found.threshold_px))

        def run(graph: Any, **settings: Any) -> manymatch.Estimate:
            return manymatch.estimate_homography(graph, threshold_px=3.0, **settings)

        yield "homography", path.parent.name, graph, run, error


def fundamentals(data: Path) -> Iterator[Case]:
    """Every fourth pair of the posed graphs of two representations."""
    folders = [str(data / "graphs" / name) for name in ("sift", "effnet")]
    for source in open_graphs(folders):
        for index in range(0, len(source), 4):
            posed = source[index]
            K0, K1 = posed.camera0.K, posed.camera1.K
            cross = np.cross(np.eye(3), -np.ravel(posed.t))
            F = np.linalg.inv(K1).T @ cross @ posed.R @ np.linalg.inv(K0)

            def error(found: Any, F: Any = F) -> float:
                frame = found._pair.frame
                into = [np.linalg.inv(frame.matrix(side)) for side in (1, 0)]
                true = into[0].T @ F @ into[1]
                true /= np.linalg.norm(true)
                gap = PROBLEMS["fundamental"].chart.error(found._pair, found._model, (true, None))
                return float(np.linalg.norm(gap))

            def run(graph: Any, **settings: Any) -> manymatch.Estimate:
                return manymatch.estimate_fundamental(graph, **settings)

            yield "fundamental", source.name, posed.graph, run, error


def absolute_poses(data: Path) -> Iterator[Case]:
    for path in sorted((data / "absolute_pose").glob("*/*.npz")):
        with np.load(path) as file:
            graph = graph_of(file, "points2D", "points3D")
            K, R, t = file["K"], file["R"], file["t"]
        depth = float(np.median((graph.points1[graph.edges[:, 1]] @ R.T + t)[:, 2]))

        def error(found: Any, R: Any = R, t: Any = t, depth: float = depth) -> float:
            cosine = 0.5 * (np.sum(found.pose.R * R) - 1.0)
            turned = np.degrees(np.arccos(np.clip(cosine, -1.0, 1.0)))
            away = np.linalg.norm(-found.pose.R.T @ found.pose.t + R.T @ t)
            return float(max(turned / 5.0, 20.0 * away / abs(depth)))

        def run(graph: Any, K: Any = K, **settings: Any) -> manymatch.Estimate:
            return manymatch.estimate_absolute_pose(graph, K, threshold_px=3.0, **settings)

        yield "absolute", path.parent.name, graph, run, error


def registrations(data: Path) -> Iterator[Case]:
    for path in sorted((data / "registration").glob("*/*.npz")):
        with np.load(path) as file:
            graph = graph_of(file, "points0", "points1")
            R, t, voxel = file["R"], file["t"], float(file["voxel"])
        used = graph.points0[np.unique(graph.edges[:, 0])]

        def error(found: Any, R: Any = R, t: Any = t, used: Any = used) -> float:
            transform = found.transform
            gap = used @ (transform[:3, :3] - R).T + transform[:3, 3] - t
            return float(np.sqrt(np.mean(np.sum(gap**2, axis=1))) / (3.0 * found.threshold))

        for problem, function in (
            ("rigid", manymatch.estimate_rigid_transform),
            ("similarity", manymatch.estimate_similarity),
        ):

            def run(
                graph: Any, function: Any = function, voxel: float = voxel, **settings: Any
            ) -> manymatch.Estimate:
                return function(graph, 1.5 * voxel, **settings)

            yield problem, path.parent.name, graph, run, error


def graph_of(file: Any, points0: str, points1: str) -> manymatch.AssociationGraph:
    return manymatch.AssociationGraph(
        file[points0], file[points1], file["edges"], file["similarity"], file["rank"]
    )


def mapped(H: np.ndarray, points: np.ndarray) -> np.ndarray:
    moved = np.column_stack([points, np.ones(len(points))]) @ H.T
    return np.asarray(moved[:, :2] / moved[:, 2:])


def exchanged(graph: manymatch.AssociationGraph, seed: int) -> manymatch.AssociationGraph:
    """Return the same graph with the points of side 1 at each other's places."""
    order = np.random.default_rng([seed, 23]).permutation(len(graph.points1))
    return manymatch.AssociationGraph(
        graph.points0, graph.points1[order], graph.edges, graph.similarity, graph.rank
    )


def rows_of(cases: list[Case]) -> list[dict[str, Any]]:
    rows = []
    for index, (problem, name, graph, run, error) in enumerate(track(cases, transient=True)):
        for iterations in ITERATIONS:
            settings = {
                "seed": index,
                "threads": 1,
                "max_iterations": iterations,
                "min_iterations": min(iterations, 1_000),
            }
            for kind, seen in (
                ("all", graph),
                ("rank one", graph.up_to_rank(1)),
                ("exchanged", exchanged(graph, index)),
            ):
                found = run(seen, **settings)
                if not found.success:
                    continue
                known = confidence.evidence(found)
                rows.append(
                    {
                        "problem": problem,
                        "set": name,
                        "kind": kind,
                        "error": np.inf if kind == "exchanged" else error(found),
                        "features": known.features,
                        "places": known.places - PROBLEMS[problem].sample_size,
                        "most": (1.0 - known.rival.any) * known.accurate,
                    }
                )
    return rows


def main() -> None:
    parser = protocol.arguments(__doc__.splitlines()[0])
    arguments = parser.parse_args()
    console = Console()
    data = data_folder()
    if data is None:
        console.print("The reference data is not here; set MANYMATCH_DATA to its folder.")
        return
    cases = [
        *homographies(data),
        *fundamentals(data),
        *absolute_poses(data),
        *registrations(data),
    ]
    rows = rows_of(cases)
    column = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    spare, error = column["places"] > 0, column["error"]
    fitted = np.isin(column["set"], FITTED) & spare & ~((error >= 1.0) & (error < UNCLEAR))
    right = (error < 1.0).astype(float)
    p, theta = np.zeros(len(rows)), {}
    for problem in np.unique(column["problem"]):
        own = column["problem"] == problem
        used = fitted & own
        # Right and wrong ones count alike.
        weight = np.where(right == 1.0, 0.5 / right[used].sum(), 0.5 / (1.0 - right[used]).sum())
        features, most = column["features"], column["most"]
        theta[problem] = fit_growing(features[used], right[used], weight[used], most[used])
        odds = theta[problem][0] + features[own] @ theta[problem][1:]
        p[own] = most[own] * spare[own] / (1.0 + np.exp(-odds))
    judged = ~np.isin(column["set"], FITTED)
    table = []
    for problem in [*np.unique(column["problem"]), "all"]:
        own = judged & ((column["problem"] == problem) | (problem == "all"))
        cells = [problem, str(int(own.sum())), str(int((own & (error < 1.0)).sum()))]
        for limit in (confidence.LIKELY, confidence.SOLVED):
            groups = [own & (error < 1.0), own & (error >= UNCLEAR)]
            cells.append(" / ".join(f"{100 * np.mean(p[g] >= limit):.1f}" for g in groups))
        table.append(cells)
    header = ["problem", "estimates", "right", "likely or solved, % of right / wrong", "solved, %"]
    arguments.out.mkdir(parents=True, exist_ok=True)
    protocol.write(
        arguments.out, "model_confidence", [Table("On sets that were not fitted", header, table)]
    )
    for problem, values in theta.items():
        console.print(f"{problem}: ({', '.join(f'{value:.3f}' for value in values)})")


def fit_growing(
    x: np.ndarray, true: np.ndarray, weight: np.ndarray, most: np.ndarray
) -> np.ndarray:
    """Fit with slopes of at least zero: columns whose slope would be negative are left out."""
    used = np.ones(x.shape[1], dtype=bool)
    while True:
        found = fit(x[:, used], true, weight, most)
        theta = np.zeros(x.shape[1] + 1)
        theta[0], theta[1:][used] = found[0], found[1:]
        if (theta[1:] >= 0.0).all():
            return theta
        used &= theta[1:] >= 0.0


if __name__ == "__main__":
    main()
