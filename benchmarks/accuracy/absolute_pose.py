"""Accuracy of absolute poses on the three sets of the reference data, beside other libraries.

    python benchmarks/accuracy/absolute_pose.py --out out/accuracy

At most 10,000 iterations, 3 px, confidence 0.9999, two seeds. The error of a pose is the larger of
the angle of its rotation in degrees and the distance of its centre in per cent of the median depth
of the map points in the image; AUC at 0.5, 1 and 5. A graph is named by its ranks: "one-way" has
the K nearest map points of every keypoint, "mutual" those edges that are mutual, with the first K
at which they are as their rank. With an unknown focal length (its prior is that of
`Camera.unknown`, the principal point is the true one) the errors of the focal length are quartiles
in per cent. OpenCV has no seed in its call: repetitions after the first see the candidates in
another order. Writes ``absolute_pose.json`` with every error and ``absolute_pose.md`` with the
tables; three minutes on one core, most of them PoseLib's with five candidates.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from rich.progress import track

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import manymatch
from manymatch_lab.evaluate.statistics import macro_difference, macro_spread
from tests.support.data_folder import data_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

THRESHOLDS = (0.5, 1, 5)
OPTIONS = manymatch.Options(threshold_px=3.0, max_iterations=10_000)
FAILED = 180.0
#: Estimator, ranks of the graph, K.
METHODS = (
    ("PoseLib", "one-way", 1),
    ("PoseLib", "mutual", 1),
    ("OpenCV MAGSAC", "mutual", 1),
    ("pycolmap", "mutual", 1),
    ("cm", "one-way", 1),
    ("cm", "mutual", 1),
    ("auto", "one-way", 1),
    ("auto", "mutual", 1),
    ("auto", "one-way", 5),
    ("auto", "mutual", 3),
    ("auto", "mutual", 5),
    ("PoseLib", "mutual", 5),
)
COMPARISONS = (
    (("cm", "one-way", 1), ("PoseLib", "one-way", 1)),
    (("cm", "mutual", 1), ("PoseLib", "mutual", 1)),
    (("auto", "one-way", 1), ("PoseLib", "one-way", 1)),
    (("auto", "mutual", 1), ("PoseLib", "mutual", 1)),
    (("auto", "one-way", 5), ("PoseLib", "mutual", 1)),
    (("auto", "mutual", 3), ("PoseLib", "mutual", 1)),
    (("auto", "mutual", 5), ("PoseLib", "mutual", 1)),
    (("auto", "mutual", 5), ("PoseLib", "mutual", 5)),
    (("auto", "mutual", 5), ("auto", "mutual", 1)),
)
FOCAL_METHODS = (
    ("pycolmap", "mutual", 1),
    ("cm", "mutual", 1),
    ("auto", "mutual", 1),
    ("auto", "mutual", 5),
)

Line: TypeAlias = tuple[str, str, int]
# By method and set.
Errors: TypeAlias = dict[Line, dict[str, np.ndarray]]


class Query:
    """A query with its map and true pose; `edges` by (ranks, similarity, rank)."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as file:
            self.points0 = file["points2D"].astype(float)
            self.points1 = file["points3D"].astype(float)
            self.K, self.size = file["K"], file["size"]
            self.pose = nearest_pose(file["R"], file["t"])
            self._edges = file["edges"].astype(np.int64), file["similarity"].astype(np.float32)
            self._ranks = {"one-way": file["rank"], "mutual": file["rank_mutual"]}
        seen = self.points1 @ self.pose.R.T + self.pose.t
        pixels = seen @ self.K.T
        with np.errstate(divide="ignore", invalid="ignore"):
            pixels = pixels[:, :2] / pixels[:, 2:]
        inside = (seen[:, 2] > 0) & (pixels > 0).all(axis=1) & (pixels < self.size).all(axis=1)
        self.depth = float(np.median(seen[inside, 2]))

    def graph(self, ranks: str, k: int) -> manymatch.AssociationGraph:
        """Candidates up to a rank, best first."""
        edges, similarity = self._edges
        rank = self._ranks[ranks].astype(np.int32)
        kept = np.flatnonzero(rank <= k)
        kept = kept[np.lexsort((-similarity[kept], rank[kept]))]
        return manymatch.AssociationGraph(
            self.points0, self.points1, edges[kept], similarity[kept], rank[kept]
        )

    def error(self, R: np.ndarray, t: np.ndarray) -> float:
        """Degrees or per cent of the depth, whichever is more."""
        cosine = 0.5 * (float(np.sum(R * self.pose.R)) - 1.0)
        angle = float(np.degrees(np.arccos(np.clip(cosine, -1.0, 1.0))))
        return max(angle, 100.0 * float(np.linalg.norm(-R.T @ t - self.pose.center)) / self.depth)


def nearest_pose(R: np.ndarray, t: np.ndarray) -> manymatch.AbsolutePose:
    """Pose of a matrix that may be a rotation to six digits only."""
    left, _, right = np.linalg.svd(R)
    return manymatch.AbsolutePose(left @ right, t)


def load_sets(folder: Path) -> dict[str, list[Query]]:
    """All queries by set."""
    names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    return {name: [Query(path) for path in sorted((folder / name).glob("*.npz"))] for name in names}


def solve(
    estimator: str,
    query: Query,
    graph: manymatch.AssociationGraph,
    seed: int,
    unknown: bool = False,
) -> tuple[np.ndarray, np.ndarray, float] | None:
    """Pose and focal length of one query, or None."""
    if graph.num_edges < 4:
        return None
    i, j = graph.edges.T
    points0, points1 = graph.points0[i], graph.points1[j]
    width, height = (int(n) for n in query.size)
    K, limit = query.K, OPTIONS.max_iterations
    if estimator == "PoseLib":
        import poselib

        camera = {"model": "PINHOLE", "width": width, "height": height}
        camera["params"] = [K[0, 0], K[1, 1], K[0, 2], K[1, 2]]
        settings = {"max_reproj_error": OPTIONS.threshold_px, "max_iterations": limit}
        settings |= {"success_prob": OPTIONS.confidence, "seed": seed}
        pose, _ = poselib.estimate_absolute_pose(points0, points1, camera, settings, {})
        return pose.R, pose.t, K[0, 0]
    if estimator == "OpenCV MAGSAC":
        return opencv(points0, points1, K, seed)
    if estimator == "pycolmap":
        return colmap(points0, points1, query, seed, unknown)
    given: Any = K
    if unknown:
        params = [float(max(width, height)), K[0, 2], K[1, 2]]
        given = manymatch.Camera("SIMPLE_PINHOLE", width, height, params, focal_sigma=0.5)
    found = manymatch.estimate_absolute_pose(graph, given, estimator, OPTIONS, seed=seed)  # type: ignore[arg-type]
    return (found.pose.R, found.pose.t, found.camera0.focal) if found.success else None


def opencv(points0: np.ndarray, points1: np.ndarray, K: np.ndarray, seed: int) -> Any:
    import cv2

    order = np.arange(len(points0))
    if seed:
        order = np.random.default_rng(seed).permutation(len(points0))
    settings = cv2.UsacParams()
    settings.threshold, settings.confidence = OPTIONS.threshold_px, OPTIONS.confidence
    settings.maxIterations = OPTIONS.max_iterations
    settings.score, settings.sampler = cv2.SCORE_METHOD_MAGSAC, cv2.SAMPLING_UNIFORM
    settings.loMethod = cv2.LOCAL_OPTIM_INNER_AND_ITER_LO
    found, _, turn, t, _ = cv2.solvePnPRansac(
        points1[order], points0[order], K.astype(float), None, params=settings
    )
    return (cv2.Rodrigues(turn)[0], t.ravel(), K[0, 0]) if found else None


def colmap(
    points0: np.ndarray, points1: np.ndarray, query: Query, seed: int, unknown: bool
) -> tuple[np.ndarray, np.ndarray, float] | None:
    import pycolmap

    width, height = (int(n) for n in query.size)
    K = query.K
    focal = [1.2 * max(width, height)] if unknown else [K[0, 0], K[1, 1]]
    camera = pycolmap.Camera(
        model="SIMPLE_PINHOLE" if unknown else "PINHOLE",
        width=width,
        height=height,
        params=[*focal, K[0, 2] + 0.5, K[1, 2] + 0.5],
    )
    search = pycolmap.AbsolutePoseEstimationOptions()
    search.estimate_focal_length = unknown
    search.ransac.max_error, search.ransac.confidence = OPTIONS.threshold_px, OPTIONS.confidence
    search.ransac.max_num_trials = OPTIONS.max_iterations
    search.ransac.min_inlier_ratio, search.ransac.random_seed = 0.01, seed
    refine = pycolmap.AbsolutePoseRefinementOptions()
    refine.refine_focal_length = unknown
    found = pycolmap.estimate_and_refine_absolute_pose(
        points0 + 0.5, points1, camera, search, refine
    )
    if found is None:
        return None
    pose, camera = found["cam_from_world"], found.get("camera", camera)
    return pose.rotation.matrix(), pose.translation, float(camera.params[0])


def run(queries: list[Query], line: Line, seeds: int, unknown: bool = False) -> np.ndarray:
    """Errors (2, S, N) of pose and of the logarithm of the focal length.

    Query i, from 1, has seed i + b in repetition b.
    """
    estimator, ranks, k = line
    rows = []
    for repetition in range(seeds):
        row = []
        for number, query in enumerate(queries, start=1):
            seed = repetition if estimator == "OpenCV MAGSAC" else number + repetition
            found = solve(estimator, query, query.graph(ranks, k), seed, unknown)
            if found is None:
                row.append((FAILED, np.inf))
            else:
                gap = abs(np.log(max(found[2], 1e-9) / query.K[0, 0]))
                row.append((query.error(*found[:2]), gap))
        rows.append(row)
    return np.array(rows).transpose(2, 0, 1)


def numbers(values: Sequence[float]) -> str:
    return " / ".join(f"{value:.1f}" for value in values)


def name_of(line: Line) -> str:
    return f"{line[0]}, {line[1]} {line[2]}"


def pose_table(errors: Errors, sets: Sequence[str]) -> list[str]:
    """AUC by method, macro and by set."""
    lines = ["| | macro | " + " | ".join(sets) + " |", "|:--|" + "--:|" * (len(sets) + 1)]
    for line, by_set in errors.items():
        groups = [list(by_set.values()), *([by_set[s]] for s in sets)]
        cells = [numbers(macro_spread([e[0] for e in g], THRESHOLDS).mean) for g in groups]
        lines.append(f"| {name_of(line)} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def difference_table(errors: Errors, comparisons: Sequence[tuple[Line, Line]]) -> list[str]:
    """Differences of the macro AUC with 95 % intervals over queries."""
    heads = " | ".join(f"@{t}" for t in THRESHOLDS)
    lines = [f"| | {heads} |", "|:--|" + "--:|" * len(THRESHOLDS)]
    for first, second in comparisons:
        if first in errors and second in errors:
            a, b = ([e[0] for e in errors[line].values()] for line in (first, second))
            spread = macro_difference(a, b, THRESHOLDS)
            cells = [
                f"{m:+.1f} [{i.low:+.1f}, {i.high:+.1f}]"
                for m, i in zip(spread.mean, spread.interval, strict=True)
            ]
            names = f"{name_of(first)} − {name_of(second)}"
            lines.append(f"| {names} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def focal_table(errors: Errors, sets: Sequence[str]) -> list[str]:
    """Quartiles of the error of the focal length in per cent."""
    lines = ["| | " + " | ".join(sets) + " |", "|:--|" + "--:|" * len(sets)]
    for line, by_set in errors.items():
        cells = []
        for s in sets:
            quartiles = np.quantile(by_set[s][1], (0.25, 0.5, 0.75))
            cells.append(" / ".join(f"{100 * np.expm1(q):.2f}" for q in quartiles))
        lines.append(f"| {name_of(line)} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out/accuracy"), help="folder of results")
    parser.add_argument("--seeds", type=int, default=2, help="repetitions")
    arguments = parser.parse_args()
    data = data_folder()
    if data is None or not (data / "absolute_pose").is_dir():
        sys.stdout.write("absolute_pose: not here, set MANYMATCH_DATA to the folder that has it\n")
        return
    sets = load_sets(data / "absolute_pose")
    jobs = [(line, False) for line in METHODS] + [(line, True) for line in FOCAL_METHODS]
    known: Errors = {}
    unknown: Errors = {}
    for line, hidden in track(jobs, transient=True):
        by_set = {s: run(queries, line, arguments.seeds, hidden) for s, queries in sets.items()}
        (unknown if hidden else known)[line] = by_set
    lines = ["AUC@0.5/1/5, mean over seeds", "", *pose_table(known, list(sets))]
    lines += ["Differences of the macro AUC, 95 % intervals over queries", ""]
    lines += difference_table(known, COMPARISONS)
    lines += ["Unknown focal length, AUC@0.5/1/5", "", *pose_table(unknown, list(sets))]
    lines += ["Quartiles of its error, per cent", "", *focal_table(unknown, list(sets))]
    text = "\n".join(lines)
    arguments.out.mkdir(parents=True, exist_ok=True)
    kept = [
        {"line": line, "unknown_focal": hidden, "errors": {s: e.tolist() for s, e in found.items()}}
        for hidden, errors in ((False, known), (True, unknown))
        for line, found in errors.items()
    ]
    record = {"options": OPTIONS.to_dict(), "results": kept}
    (arguments.out / "absolute_pose.json").write_text(json.dumps(record))
    (arguments.out / "absolute_pose.md").write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
