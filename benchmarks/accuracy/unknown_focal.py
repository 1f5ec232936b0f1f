"""Accuracy of relative poses whose focal lengths are unknown, on the posed graphs, beside PoseLib.

    python benchmarks/accuracy/unknown_focal.py --out out/accuracy

At most 20,000 iterations, 1 px, all pairs of the sets whose two cameras are equal. The focal length
is hidden, and the principal point is either the true one or, as for a photograph of which nothing
is known, the centre of the image. Errors are the larger of those of rotation and of direction of
translation, AUC@5/10/20 degrees. PoseLib sees the rank-one candidates. "ceiling" is no method: the
result with known focal lengths, whose matches then refine pose and focal length together. Writes
``unknown_focal.json`` with every error and ``unknown_focal.md`` with the tables.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from rich.progress import track

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import manymatch
from benchmarks.accuracy.protocol import OPTIONS, arguments, reference_data
from manymatch import _core, pose_error_deg
from manymatch.associate.candidates import Association
from manymatch.geometry.camera import Camera
from manymatch.geometry.pose import RelativePose
from manymatch_lab.evaluate.inputs import open_graphs
from manymatch_lab.evaluate.statistics import macro_difference, macro_spread

if TYPE_CHECKING:
    from manymatch_lab.evaluate.posed_graph import PosedGraph

THRESHOLDS = (5, 10, 20)
#: The sets where the images determine the focal length for the most part.
DETERMINED = ("7scenes_tsdf", "ngp_fox", "strecha_fountain_herzjesu", "tum_fr3_office")
METHODS = (
    *("known", "ceiling", "guess", "shared", "one unknown", "both unknown"),
    *("PoseLib, shared", "PoseLib, F and focal lengths"),
)
COMPARISONS = (("shared", "guess"), ("shared", "PoseLib, shared"), ("shared", "known"))

# A pose (None for a failure), the relative error of the second focal length, and that over its
# standard deviation.
Result: TypeAlias = tuple[RelativePose | None, float, float]
# By method and set: errors in degrees, relative errors of the focal length, and these over their
# standard deviations, each (S, N).
Results: TypeAlias = dict[str, dict[str, np.ndarray]]


def cameras_of(pair: PosedGraph, method: str, centre: bool) -> tuple[Camera, Camera]:
    """Return what a method knows of the two cameras."""
    known = method in ("known", "ceiling")
    made = []
    for side, (camera, size) in enumerate(((pair.camera0, pair.size0), (pair.camera1, pair.size1))):
        width, height = map(int, size)
        if known or (method == "one unknown" and side == 0):
            made.append(camera)
            continue
        middle = ((width - 1) / 2, (height - 1) / 2) if centre else (camera.cx, camera.cy)
        prior = Camera.unknown(width, height)
        focal, sigma = prior.focal, prior.focal_sigma
        if method == "guess":
            focal, sigma = 1.2 * max(width, height), None
        made.append(Camera("SIMPLE_PINHOLE", width, height, (focal, *middle), focal_sigma=sigma))
    return made[0], made[1]


def ours(pair: PosedGraph, method: str, centre: bool, seed: int) -> Result:
    """Estimate with method "auto"."""
    graph = Association().for_method("auto").apply(pair.graph, size0=pair.size0, size1=pair.size1)
    cameras = cameras_of(pair, method, centre)
    options = OPTIONS.replace(seed=seed, threads=1)
    shared = {"shared": True, "both unknown": False}.get(method)
    estimate = manymatch.estimate_relative_pose(
        graph, *cameras, options=options, shared_focal=shared
    )
    if estimate.pose is None or estimate.camera1 is None:
        return None, np.nan, np.nan
    if method == "ceiling":
        return refined_with_focal(estimate, pair)
    off = estimate.camera1.focal / pair.camera1.focal - 1.0
    deviation = estimate.focal_sd_px[1] if estimate.focal_sd_px else np.nan
    return estimate.pose, off, off * pair.camera1.focal / deviation


def refined_with_focal(estimate: manymatch.Estimate, pair: PosedGraph) -> Result:
    """Refine pose and focal length on the matches of an estimate with known focal lengths."""
    i, j = estimate.matches.T
    x0, x1 = estimate._pair.x0[i], estimate._pair.x1[j]
    noise = (estimate.noise_px or 1.0) / pair.camera1.focal
    weak = np.array([1.0, 2.0, 1.0, 2.0, 1.0])
    pose = estimate.pose
    assert pose is not None
    R, t, f, *_ = _core.refine_focal(
        *(x0, x1, np.ones(len(x0)), pose.R, pose.t, np.ones(2), weak, noise, "cauchy", 100)
    )
    return RelativePose(R, t), float(f[1]) - 1.0, np.nan


def poselib_result(pair: PosedGraph, method: str, centre: bool, seed: int) -> Result:
    """Estimate with PoseLib from the rank-one candidates."""
    import poselib

    graph = pair.graph.up_to_rank(1)
    cameras = cameras_of(pair, "guess", centre)
    x0, x1 = graph.points0[graph.edges[:, 0]], graph.points1[graph.edges[:, 1]]
    if len(x0) < 8:
        return None, np.nan, np.nan
    centres = [np.array([camera.cx, camera.cy]) for camera in cameras]
    settings = {
        "max_iterations": OPTIONS.max_iterations,
        "min_iterations": OPTIONS.min_iterations,
        "max_epipolar_error": OPTIONS.threshold_px,
        "success_prob": OPTIONS.confidence,
        "seed": seed,
    }
    if method == "PoseLib, shared":
        found, _ = poselib.estimate_shared_focal_relative_pose(
            x0 - centres[0], x1 - centres[1], np.zeros(2), settings, {}
        )
        pose, focal = found.pose, found.camera1.focal()
    else:
        F, info = poselib.estimate_fundamental(x0, x1, settings, {})
        guessed = cameras[1].focal
        focals = [c.focal() for c in poselib.focals_from_fundamental(F, *centres)]
        if not all(np.isfinite(f) and f > 0 for f in focals):
            focals = [guessed, guessed]
        inside = np.asarray(info["inliers"])
        made = [
            {"model": "SIMPLE_PINHOLE", "width": 0, "height": 0, "params": [f, *c]}
            for f, c in zip(focals, centres, strict=True)
        ]
        if inside.sum() < 8:
            return None, np.nan, np.nan
        pose, _ = poselib.estimate_relative_pose(x0[inside], x1[inside], *made, settings, {})
        focal = focals[1]
    R, t = np.asarray(pose.R), np.asarray(pose.t)
    norm = np.linalg.norm(t)
    if not (np.isfinite(R).all() and np.isfinite(norm) and norm > 0):
        return None, np.nan, np.nan
    return RelativePose(R, t / norm), focal / pair.camera1.focal - 1.0, np.nan


def run(pairs: list[PosedGraph], method: str, centre: bool, seeds: int) -> np.ndarray:
    """Errors, relative errors of the focal length and those over sd (3, S, N); pair i from 1."""
    solve = poselib_result if method.startswith("PoseLib") else ours
    rows = []
    for repetition in range(seeds):
        row = []
        for number, pair in enumerate(pairs, start=1):
            pose, *focal = solve(pair, method, centre, number + repetition)
            row.append((180.0 if pose is None else pose_error_deg(pose, pair.R, pair.t), *focal))
        rows.append(row)
    return np.array(rows).transpose(2, 0, 1)


def tables(results: Results, seconds: dict[str, float], sets: list[str]) -> str:
    """Markdown: AUC by method, macro and by set; differences; errors of the focal lengths."""
    lines = ["| | macro | " + " | ".join(sets) + " | s |", "|:--|" + "--:|" * (len(sets) + 2)]
    for name, by_set in results.items():
        groups = [list(by_set.values()), *([errors] for errors in by_set.values())]
        cells = [triple(macro_spread([e[0] for e in group], THRESHOLDS).mean) for group in groups]
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {seconds[name]:.1f} |")
    lines += ["", "Differences of the macro average, 95 % intervals over pairs", ""]
    for first, second in COMPARISONS:
        if first in results and second in results:
            pairs = ([e[0] for e in results[name].values()] for name in (first, second))
            found = macro_difference(*pairs, THRESHOLDS)
            lines.append(
                f"- {first} − {second}: "
                + " / ".join(
                    f"{m:+.1f} [{i.low:+.1f}, {i.high:+.1f}]"
                    for m, i in zip(found.mean, found.interval, strict=True)
                )
            )
    lines += ["", "Relative error of the focal length: quartiles; share within 1 and 2 sd", ""]
    for name, by_set in results.items():
        if name in ("known", "guess"):
            continue
        cells = []
        for errors in by_set.values():
            off = np.abs(errors[1][np.isfinite(errors[1])])
            text = " / ".join(f"{100 * q:.1f}" for q in np.quantile(off, (0.25, 0.5, 0.75)))
            scaled = np.abs(errors[2][np.isfinite(errors[2])])
            if len(scaled):
                text += f"; {100 * np.mean(scaled < 1):.0f}, {100 * np.mean(scaled < 2):.0f} %"
            cells.append(text)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def triple(values: tuple[float, ...]) -> str:
    return " / ".join(f"{value:.1f}" for value in values)


def main() -> None:
    parser = arguments(__doc__.partition("\n")[0])
    parser.add_argument("--methods", nargs="+", default=METHODS, help="names of lines")
    parser.add_argument("--only", nargs="+", help="representations, default: all four")
    parser.add_argument("--sets", nargs="+", help="names of sets, default: all")
    parser.add_argument("--pairs", type=int, help="only the first N pairs of every set")
    parser.add_argument(
        "--principal-point", nargs="+", choices=("true", "centre"), default=("true", "centre")
    )
    given = parser.parse_args()
    data = reference_data("graphs")
    if data is None:
        return
    text, record = [], {}
    names = given.only or ("sift", "superpoint", "effnet", "sam2")
    for representation in names:
        sets = {
            source.name: [source[i] for i in range(len(source))][: given.pairs]
            for source in open_graphs([str(data / representation)])
            if not given.sets or source.name in given.sets
        }
        # A focal length that is shared needs equal cameras.
        sets = {
            name: pairs
            for name, pairs in sets.items()
            if all(np.allclose(p.camera0.params, p.camera1.params) for p in pairs)
        }
        for point in given.principal_point:
            results: Results = {}
            seconds = {}
            for method in track(given.methods, f"{representation}, {point}", transient=True):
                start = time.process_time()
                results[method] = {
                    name: run(pairs, method, point == "centre", given.seeds)
                    for name, pairs in sets.items()
                }
                seconds[method] = (time.process_time() - start) / given.seeds
            title = f"{representation}, principal point: {point}, {given.seeds} seeds"
            text.append(f"## {title}\n\n{tables(results, seconds, list(sets))}")
            sys.stdout.write(text[-1])
            sys.stdout.flush()
            record[title] = {
                m: {s: e.tolist() for s, e in by_set.items()} for m, by_set in results.items()
            }
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "unknown_focal.json").write_text(json.dumps(record))
    (given.out / "unknown_focal.md").write_text("\n".join(text))


if __name__ == "__main__":
    main()
