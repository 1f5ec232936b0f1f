"""Lists with several candidates for a keypoint: the same call, before and after the switch.

    python benchmarks/accuracy/candidate_lists.py [--calls PoseLib pycolmap]

Absolute poses of the reference data: five map points for every keypoint, one row each, as the
localizer of hloc lists them. Rows of a keypoint are listed best first, or at random. Every library
gets the same rows, with a threshold of 3 px and at most 10,000 iterations. Where they are best
first, `manymatch.compat` gets them as `edges=`, which says so. The error is the larger of the
rotation error in degrees and the error of the camera centre in per cent of the median depth; AUC at
0.5, 1 and 5, and a 95 % interval of the difference at 5 over queries. Some minutes on one core.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import poselib
import pycolmap
from rich.progress import track

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import manymatch.compat
from tests.support.data_folder import data_folder

SETS = ("strecha", "middlebury", "rgbd")
LIMITS = (0.5, 1.0, 5.0)
FAILED = 1e6
THRESHOLD_PX, ITERATIONS = 3.0, 10_000
Pose = tuple[np.ndarray, np.ndarray]


def by_poselib(
    module: Any, pixels: np.ndarray, world: np.ndarray, K: np.ndarray, **edges: np.ndarray
) -> Pose:
    params = [K[0, 0], K[1, 1], K[0, 2], K[1, 2]]
    camera = {"model": "PINHOLE", "width": -1, "height": -1, "params": params}
    options = {"max_reproj_error": THRESHOLD_PX, "max_iterations": ITERATIONS}
    pose, _ = module.estimate_absolute_pose(pixels, world, camera, options, {}, **edges)
    return pose.R, pose.t


def by_pycolmap(
    module: Any, pixels: np.ndarray, world: np.ndarray, K: np.ndarray, **edges: np.ndarray
) -> Pose:
    params = [K[0, 0], K[1, 1], K[0, 2], K[1, 2]]
    camera = pycolmap.Camera(model="PINHOLE", width=1, height=1, params=params)
    options = {"ransac": {"max_error": THRESHOLD_PX, "max_num_trials": ITERATIONS}}
    result = module.estimate_and_refine_absolute_pose(pixels, world, camera, options, **edges)
    if result is None:
        return np.eye(3), np.full(3, np.inf)
    pose = result["cam_from_world"]
    return pose.rotation.matrix(), pose.translation


CALLS = {
    "PoseLib": (by_poselib, poselib, manymatch.compat.poselib),
    "pycolmap": (by_pycolmap, pycolmap, manymatch.compat.pycolmap),
}


def error(pose: Pose, query: dict[str, np.ndarray]) -> float:
    """Degrees of rotation or per cent of the median depth, whichever is more."""
    (R, t), R_true, t_true = pose, query["R"], query["t"]
    if not (np.isfinite(t).all() and np.abs(t).max() < FAILED):
        return FAILED
    turn = np.degrees(np.arccos(np.clip((np.trace(R.T @ R_true) - 1) / 2, -1, 1)))
    depths = query["points3D"] @ R_true[2] + t_true[2]
    gap = np.linalg.norm(R.T @ t - R_true.T @ t_true) / np.median(depths[depths > 0])
    return float(min(max(turn, 100 * gap), FAILED))


def auc(errors: np.ndarray, limit: float) -> float:
    return float(100 * np.mean(np.clip(1 - errors / limit, 0, 1)))


def interval(first: np.ndarray, second: np.ndarray) -> str:
    """Difference of the AUC at the last limit, with its 95 % interval over queries."""
    rng = np.random.default_rng(0)
    gain = np.clip(1 - first / LIMITS[-1], 0, 1) - np.clip(1 - second / LIMITS[-1], 0, 1)
    means = 100 * gain[rng.integers(0, len(gain), (2000, len(gain)))].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return f"{100 * gain.mean():+.1f} [{low:.1f}, {high:.1f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="only every N-th query")
    parser.add_argument("--calls", nargs="+", default=["PoseLib"], choices=CALLS)
    given = parser.parse_args()
    every, calls = given.every, {name: CALLS[name] for name in given.calls}
    print("| set, queries | list | call | original | switched | difference at 5 |")
    print("|:--|:--|:--|--:|--:|--:|")
    for name in SETS:
        files = sorted((data_folder() / "absolute_pose" / name).glob("*.npz"))[::every]
        errors: dict[tuple[str, str, int], list[float]] = {}
        for number, file in enumerate(track(files, name)):
            query = dict(np.load(file))
            edges = query["edges"].astype(np.int64)
            mixed = np.random.default_rng(number).permutation(len(edges))
            lists = {
                "best first": edges[np.lexsort((query["rank"], edges[:, 0]))],
                "at random": edges[mixed[np.argsort(edges[mixed, 0], kind="stable")]],
            }
            points = query["points2D"].astype(np.float64), query["points3D"].astype(np.float64)
            for order, rows in lists.items():
                pixels, world = points[0][rows[:, 0]], points[1][rows[:, 1]]
                for call, (run, *modules) in calls.items():
                    for k, module in enumerate(modules):
                        if k == 1 and order == "best first":
                            pose = run(module, *points, query["K"], edges=rows)
                        else:
                            pose = run(module, pixels, world, query["K"])
                        errors.setdefault((order, call, k), []).append(error(pose, query))
        for order, call in dict.fromkeys((key[0], key[1]) for key in errors):
            pair = [np.array(errors[order, call, k]) for k in (0, 1)]
            cells = [" / ".join(f"{auc(e, limit):.1f}" for limit in LIMITS) for e in pair]
            gain = interval(pair[1], pair[0])
            row = (f"{name}, {len(files)}", order, call, *cells, gain)
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
