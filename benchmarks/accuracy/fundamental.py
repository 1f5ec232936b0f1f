"""Accuracy of fundamental matrices on the posed graphs, beside PoseLib, OpenCV and pycolmap.

    python benchmarks/accuracy/fundamental.py --out out/accuracy

For every representation (sift, superpoint, effnet, sam2) and set: 1 px, 1,000 to 20,000 iterations,
confidence 0.9999. A matrix is judged by the pose that it has with the true cameras, ``E = K1^T F
K0``, of its four poses the one with most of the inliers in front of both cameras; the error is the
larger of that of the rotation and of the direction of the translation. OpenCV has no seed in this
call: repetitions after the first see the same candidates in another order. Writes
``fundamental.json`` with every error and ``fundamental.md`` with the tables; lines that are in
that file already, for as many pairs and seeds, are not computed again. PoseLib on all candidates
takes most of the time, a second a pair.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import manymatch
from benchmarks.accuracy import protocol
from manymatch import pose_error_deg
from manymatch_lab.evaluate.posed_graph import PosedGraph, read_posed_graph
from manymatch_lab.evaluate.statistics import macro_difference, macro_spread

REPRESENTATIONS = ("sift", "superpoint", "effnet", "sam2")
OPTIONS = protocol.OPTIONS
#: Sets on which constants may be chosen; the others judge.
TUNING_SETS = ("tum_fr3_office", "middlebury_temple", "metu_vistir_pseudo")
#: Name, estimator, whether it sees the rank-one candidates only.
METHODS = (
    ("PoseLib, rank one", "poselib", True),
    ("OpenCV MAGSAC, rank one", "magsac", True),
    ("pycolmap, rank one", "pycolmap", True),
    ("cm, rank one", "cm", True),
    ("auto, rank one", "auto", True),
    ("PoseLib, all", "poselib", False),
    ("hcm-mcm, all", "hcm-mcm", False),
    ("auto, all", "auto", False),
)
COMPARISONS = (
    ("cm, rank one", "PoseLib, rank one"),
    ("auto, rank one", "PoseLib, rank one"),
    ("auto, rank one", "OpenCV MAGSAC, rank one"),
    ("auto, rank one", "pycolmap, rank one"),
    ("auto, all", "PoseLib, rank one"),
    ("auto, all", "OpenCV MAGSAC, rank one"),
    ("auto, all", "pycolmap, rank one"),
    ("auto, all", "PoseLib, all"),
    ("auto, all", "auto, rank one"),
)
FAILED_DEG = 180.0


def solve(
    estimator: str, points0: np.ndarray, points1: np.ndarray, seed: int, graph: Any
) -> np.ndarray | None:
    """Fundamental matrix of the candidates, or None."""
    if estimator in ("poselib", "magsac", "pycolmap"):
        if len(points0) < 8:
            return None
        if seed and estimator == "magsac":
            order = np.random.default_rng(seed).permutation(len(points0))
            points0, points1 = points0[order], points1[order]
    if estimator == "poselib":
        import poselib

        settings = {
            "max_epipolar_error": OPTIONS.threshold_px,
            "min_iterations": OPTIONS.min_iterations,
            "max_iterations": OPTIONS.max_iterations,
            "success_prob": OPTIONS.confidence,
            "seed": seed,
        }
        return np.asarray(poselib.estimate_fundamental(points0, points1, settings, {})[0])
    if estimator == "magsac":
        import cv2

        F, _ = cv2.findFundamentalMat(
            points0,
            points1,
            cv2.USAC_MAGSAC,
            OPTIONS.threshold_px,
            OPTIONS.confidence,
            OPTIONS.max_iterations,
        )
        return None if F is None or F.shape != (3, 3) else F
    if estimator == "pycolmap":
        import pycolmap

        settings = pycolmap.RANSACOptions(
            max_error=OPTIONS.threshold_px,
            min_num_trials=OPTIONS.min_iterations,
            max_num_trials=OPTIONS.max_iterations,
            confidence=OPTIONS.confidence,
            random_seed=seed,
        )
        found = pycolmap.estimate_fundamental_matrix(points0, points1, settings)
        return None if found is None else found["F"]
    estimate = manymatch.estimate_fundamental(graph, estimator, OPTIONS.replace(seed=seed))
    return estimate.fundamental


def sampson2(F: np.ndarray, x0: np.ndarray, x1: np.ndarray) -> np.ndarray:
    """Squared Sampson distances of homogeneous points (N, 3)."""
    lines1, lines0 = x0 @ F.T, x1 @ F
    scale = np.sum(lines1[:, :2] ** 2, axis=1) + np.sum(lines0[:, :2] ** 2, axis=1)
    return np.sum(x1 * lines1, axis=1) ** 2 / np.maximum(scale, 1e-300)


def pose_of(
    F: np.ndarray, K0: np.ndarray, K1: np.ndarray, points0: np.ndarray, points1: np.ndarray
) -> manymatch.RelativePose | None:
    """Pose of a fundamental matrix with the true cameras, by the candidates it explains."""
    if not np.isfinite(F).all():
        return None
    x0, x1 = (np.column_stack([p, np.ones(len(p))]) for p in (points0, points1))
    near = sampson2(F, x0, x1) < OPTIONS.threshold_px**2
    rays0, rays1 = x0[near] @ np.linalg.inv(K0).T, x1[near] @ np.linalg.inv(K1).T
    U, _, Vt = np.linalg.svd(K1.T @ F @ K0)
    U, Vt = U * np.linalg.det(U), Vt * np.linalg.det(Vt)
    W = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    best, most = None, -1
    for R in (U @ W @ Vt, U @ W.T @ Vt):
        for t in (U[:, 2], -U[:, 2]):
            # Depths z with z1 rays1 = z0 R rays0 + t, by least squares.
            turned = rays0 @ R.T
            a, b, c = (turned * turned).sum(1), (turned * rays1).sum(1), (rays1 * rays1).sum(1)
            d, e = turned @ t, rays1 @ t
            front = np.count_nonzero((b * e - c * d > 0) & (a * e - b * d > 0))
            if front > most:
                best, most = manymatch.RelativePose(R, t), front
    return best


def error(pair: PosedGraph, F: np.ndarray | None, graph: manymatch.AssociationGraph) -> float:
    """Error of the pose of a matrix in degrees."""
    if F is None:
        return FAILED_DEG
    ends = graph.edges
    K0, K1 = pair.camera0.K, pair.camera1.K
    pose = pose_of(F, K0, K1, graph.points0[ends[:, 0]], graph.points1[ends[:, 1]])
    return FAILED_DEG if pose is None else float(pose_error_deg(pose, pair.pose.R, pair.pose.t))


def run(
    paths: list[Path], methods: list[tuple[str, str, bool]], seeds: int, known: dict[str, Any]
) -> dict[str, Any]:
    """Errors (S, N) by method; pair i, from 1, has seed i + b in repetition b."""
    shape = (seeds, len(paths))
    kept = {name: np.array(errors) for name, errors in known.items()}
    errors: dict[str, Any] = {
        name: kept[name] if name in kept and kept[name].shape == shape else np.zeros(shape)
        for name, *_ in methods
    }
    chosen = [m for m in methods if m[0] not in kept or kept[m[0]].shape != shape]
    for number, path in enumerate(paths, start=1):
        pair = read_posed_graph(path)
        for name, estimator, rank_one in chosen:
            graph = pair.graph.up_to_rank(1) if rank_one else pair.graph
            ends = graph.edges
            points = graph.points0[ends[:, 0]], graph.points1[ends[:, 1]]
            for repetition in range(seeds):
                seed = repetition if estimator == "magsac" else number + repetition
                F = solve(estimator, *points, seed, graph)
                errors[name][repetition, number - 1] = error(pair, F, graph)
    return errors


def tables(errors: dict[str, dict[str, dict[str, np.ndarray]]]) -> str:
    """Markdown by representation: AUC macro and by set; then differences with their intervals."""
    lines = []
    for representation, by_set in errors.items():
        names = list(next(iter(by_set.values())))
        judging = [s for s in by_set if s not in TUNING_SETS]
        groups = [("macro", list(by_set)), ("judging sets", judging), *((s, [s]) for s in by_set)]
        lines += [f"{representation}: AUC@5/10/20°, mean over seeds", ""]
        lines += ["| method | " + " | ".join(group for group, _ in groups) + " |"]
        lines += ["|---" * (len(groups) + 1) + "|"]
        for name in names:
            cells = [
                " / ".join(
                    f"{v:.1f}" for v in macro_spread([by_set[s][name] for s in members]).mean
                )
                for _, members in groups
                if members
            ]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
        lines += ["", "| | all sets | judging sets |", "|---|---|---|"]
        for first, second in COMPARISONS:
            if first not in names or second not in names:
                continue
            cells = []
            for members in (list(by_set), judging):
                if members:
                    d = macro_difference(
                        [by_set[s][first] for s in members], [by_set[s][second] for s in members]
                    )
                    cells.append(
                        " / ".join(
                            f"{m:+.1f} [{i.low:+.1f}, {i.high:+.1f}]"
                            for m, i in zip(d.mean, d.interval, strict=True)
                        )
                    )
            lines.append(f"| {first} − {second} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out/accuracy"), help="folder of results")
    parser.add_argument("--only", choices=REPRESENTATIONS, nargs="+", default=REPRESENTATIONS)
    parser.add_argument("--sets", nargs="+", help="default: all")
    parser.add_argument("--methods", nargs="+", help="names of lines; default: all")
    parser.add_argument("--again", nargs="+", default=[], help="names of lines not to be reused")
    parser.add_argument("--seeds", type=int, default=3, help="repetitions")
    parser.add_argument("--every", type=int, default=1, help="take every so-manieth pair")
    given = parser.parse_args()
    graphs = protocol.reference_data("graphs")
    if graphs is None:
        return
    chosen = [m for m in METHODS if not given.methods or m[0] in given.methods]
    known: dict[str, Any] = {}
    if (given.out / "fundamental.json").is_file():
        known = json.loads((given.out / "fundamental.json").read_text())["errors_deg"]
    for name in given.again:
        for by_method in (m for sets in known.values() for m in sets.values()):
            by_method.pop(name, None)
    errors: dict[str, dict[str, Any]] = {}
    for representation in given.only:
        folders = sorted(p for p in (graphs / representation).iterdir() if p.is_dir())
        folders = [p for p in folders if not given.sets or p.name in given.sets]
        errors[representation] = {
            folder.name: run(
                sorted(folder.glob("*.npz"))[:: given.every],
                chosen,
                given.seeds,
                known.get(representation, {}).get(folder.name, {}),
            )
            for folder in track(folders, representation, transient=True)
        }
    text = tables(errors)
    given.out.mkdir(parents=True, exist_ok=True)
    for representation, sets in errors.items():
        for name, by_method in sets.items():
            lines = known.setdefault(representation, {}).setdefault(name, {})
            lines |= {method: values.tolist() for method, values in by_method.items()}
    record = {"options": OPTIONS.to_dict(), "errors_deg": known}
    (given.out / "fundamental.json").write_text(json.dumps(record))
    (given.out / "fundamental.md").write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
