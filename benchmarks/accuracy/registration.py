"""Accuracy of rigid transforms and similarities on the registration sets, beside pycolmap.

    python benchmarks/accuracy/registration.py --out out/accuracy
    python benchmarks/accuracy/registration.py --similarity

Threshold 1.5 voxels, at most 100,000 iterations, confidence 0.9999, five seeds. The error is the
root mean square distance between the found and the true place of the points of cloud 0 that have a
partner within 1.5 voxels, in voxels; the AUC is taken at 2, 4 and 8 voxels. For similarities
points1 are multiplied by the scales of ``similarity_scales.json``. What the reference data says of
Open3D and KISS-Matcher, one run each, is printed below the tables. Writes ``registration.json``
with every error and ``registration.md`` with the tables.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TypeAlias

import numpy as np
from rich.progress import track

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import manymatch
from manymatch_lab.evaluate.statistics import macro_difference, macro_spread
from tests.support.data_folder import data_folder

THRESHOLDS = (2, 4, 8)
VOXELS = 1.5
OPTIONS = manymatch.Options(max_iterations=100_000)
FAILED = 1e6
#: Sets on which constants were chosen; the others judge.
TUNING_SETS = ("stanford_bunny", "fgr_range")
#: Name, estimator, whether it sees the rank-one candidates only.
METHODS = (
    ("pycolmap, rank one", "pycolmap", True),
    ("cm, rank one", "cm", True),
    ("auto, rank one", "auto", True),
    ("pycolmap, all", "pycolmap", False),
    ("cm, all", "cm", False),
    ("hcm-mcm, all", "hcm-mcm", False),
    ("auto, all", "auto", False),
    ("auto, all, without filter", "auto -filter", False),
    ("auto, all, without residuals", "auto -residuals", False),
    ("auto, all, without overlap", "auto -overlap", False),
    ("auto, rank one, without overlap", "auto -overlap", True),
)
COMPARISONS = (
    ("cm, rank one", "pycolmap, rank one"),
    ("auto, rank one", "pycolmap, rank one"),
    ("auto, all", "pycolmap, all"),
    ("auto, all", "pycolmap, rank one"),
    ("auto, all", "auto, rank one"),
    ("auto, all", "auto, all, without filter"),
    ("auto, all", "auto, all, without residuals"),
    ("auto, all", "auto, all, without overlap"),
    ("auto, rank one", "auto, rank one, without overlap"),
)

# By method and set, (seeds, pairs).
Errors: TypeAlias = dict[str, dict[str, np.ndarray]]


class Pair:
    """A graph with the true transform, in the unit of cloud 1."""

    def __init__(self, path: Path, scale: float) -> None:
        from scipy.spatial import cKDTree

        with np.load(path) as file:
            points0, points1 = file["points0"].astype(float), file["points1"].astype(float)
            self.truth = np.eye(4)
            self.truth[:3, :3], self.truth[:3, 3] = file["R"], file["t"]
            voxel = float(file["voxel"])
            mapped = moved(self.truth, points0)
            near = cKDTree(points1).query(mapped)[0] < VOXELS * voxel
            self.graph = manymatch.AssociationGraph(
                points0,
                scale * points1,
                file["edges"].astype(np.int64),
                file["similarity"].astype(np.float32),
                file["rank"].astype(np.int32),
            )
        self.overlap = points0[near]
        self.truth[:3] *= scale
        self.voxel = scale * voxel

    def error(self, transform: np.ndarray | None) -> float:
        """Root mean square error over the overlap, in voxels."""
        if transform is None:
            return FAILED
        off = moved(transform, self.overlap) - moved(self.truth, self.overlap)
        return min(float(np.sqrt(np.mean(np.sum(off**2, axis=1)))) / self.voxel, FAILED)


def moved(transform: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Map points (N, 3) by a transform (4, 4)."""
    return points @ transform[:3, :3].T + transform[:3, 3]


def solve(
    estimator: str,
    graph: manymatch.AssociationGraph,
    threshold: float,
    seed: int,
    options: manymatch.Options,
    similarity: bool,
) -> np.ndarray | None:
    """Transform of one graph, or None."""
    if estimator == "pycolmap":
        return pycolmap_transform(graph, threshold, seed, options, similarity)
    if estimator == "Open3D":
        return open3d_transform(graph, threshold, seed, options)
    if estimator == "KISS":
        return kiss_transform(graph, threshold)
    method, _, disabled = estimator.partition(" -")
    function = manymatch.estimate_similarity if similarity else manymatch.estimate_rigid_transform
    options = options.replace(seed=seed, disable=tuple(disabled.split(",")) if disabled else ())
    return function(graph, threshold, method, options).transform  # type: ignore[arg-type]


def pycolmap_transform(
    graph: manymatch.AssociationGraph,
    threshold: float,
    seed: int,
    options: manymatch.Options,
    similarity: bool,
) -> np.ndarray | None:
    """Transform by pycolmap's LO-RANSAC, with the same threshold, budget and confidence."""
    import pycolmap

    settings = pycolmap.RANSACOptions(
        max_error=threshold,
        min_num_trials=options.min_iterations,
        max_num_trials=options.max_iterations,
        confidence=options.confidence,
        random_seed=seed,
    )
    ends = graph.edges.T
    function = pycolmap.estimate_sim3d_robust if similarity else pycolmap.estimate_rigid3d_robust
    found = function(graph.points0[ends[0]], graph.points1[ends[1]], settings)
    if found is None:
        return None
    model = found["tgt_from_src"] if isinstance(found, dict) else found
    return np.vstack([model.matrix(), [0.0, 0.0, 0.0, 1.0]])


def open3d_transform(
    graph: manymatch.AssociationGraph, threshold: float, seed: int, options: manymatch.Options
) -> np.ndarray | None:
    """Transform by Open3D's RANSAC with three points and its check of edge lengths."""
    import open3d

    steps = open3d.pipelines.registration
    open3d.utility.random.seed(seed)
    clouds = [
        open3d.geometry.PointCloud(open3d.utility.Vector3dVector(points.copy()))
        for points in (graph.points0, graph.points1)
    ]
    found = steps.registration_ransac_based_on_correspondence(
        *clouds,
        open3d.utility.Vector2iVector(graph.edges.astype(np.int32)),
        threshold,
        steps.TransformationEstimationPointToPoint(),
        3,
        [steps.CorrespondenceCheckerBasedOnEdgeLength(0.9)],
        steps.RANSACConvergenceCriteria(options.max_iterations, 0.999),
    )
    return np.asarray(found.transformation) if len(found.correspondence_set) >= 3 else None


def kiss_transform(graph: manymatch.AssociationGraph, threshold: float) -> np.ndarray | None:
    """Transform by KISS-Matcher, which has no seed; it expects clouds of some metres."""
    import kiss_matcher

    size = max(float(np.ptp(graph.points0, axis=0).max()), 1e-12)
    scale = 1.0 if size > 1.0 else 100.0
    solver = kiss_matcher.KISSMatcher(kiss_matcher.KISSMatcherConfig(scale * threshold / VOXELS))
    ends = (
        scale * points[side]
        for points, side in zip((graph.points0, graph.points1), graph.edges.T, strict=True)
    )
    found = solver.prune_and_solve(*ends)
    if not found.valid:
        return None
    transform = np.eye(4)
    transform[:3, :3] = found.rotation
    transform[:3, 3] = np.asarray(found.translation).ravel() / scale
    return transform


def load_sets(folder: Path, names: list[str] | None, similarity: bool) -> dict[str, list[Pair]]:
    """All pairs by set."""
    found = names or sorted(path.name for path in folder.iterdir() if path.is_dir())
    scales = json.loads((folder / "similarity_scales.json").read_text()) if similarity else {}
    return {
        name: [
            Pair(path, scales.get(f"{name}/{path.stem}", 1.0))
            for path in sorted((folder / name).glob("*.npz"))
        ]
        for name in found
    }


def run(
    pairs: list[Pair], estimator: str, rank_one: bool, seeds: int, similarity: bool
) -> np.ndarray:
    """Errors (S, N) by seed and pair; pair i, from 1, has seed i + b in repetition b."""
    return np.array(
        [
            [
                pair.error(
                    solve(
                        *(estimator, pair.graph.up_to_rank(1) if rank_one else pair.graph),
                        *(VOXELS * pair.voxel, number + repetition, OPTIONS, similarity),
                    )
                )
                for number, pair in enumerate(pairs, start=1)
            ]
            for repetition in range(seeds)
        ]
    )


def tables(errors: Errors, sets: list[str]) -> str:
    """Markdown: AUC and recall by method, macro and by set; differences with their intervals."""
    judging = [s for s in sets if s not in TUNING_SETS]
    groups = [("macro", sets), ("judging sets", judging), *((s, [s]) for s in sets)]
    lines = ["AUC@2/4/8 voxels and recall at 4, mean over seeds", ""]
    lines += ["| method | " + " | ".join(group for group, _ in groups) + " |"]
    lines += ["|---" * (len(groups) + 1) + "|"]
    for name, by_set in errors.items():
        cells = []
        for _, members in groups:
            values = [by_set[s] for s in members]
            if not values:
                cells.append("")
                continue
            auc = " / ".join(f"{v:.1f}" for v in macro_spread(values, THRESHOLDS).mean)
            recall = 100.0 * np.mean([np.mean(v < 4.0) for v in values])
            cells.append(f"{auc}, {recall:.0f}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += ["", "Differences of the AUC, with 95 % intervals over pairs", ""]
    lines += ["| | all sets | judging sets |", "|---|---|---|"]
    for first, second in COMPARISONS:
        if first not in errors or second not in errors:
            continue
        cells = []
        for members in (sets, judging):
            if not members:
                continue
            difference = macro_difference(
                [errors[first][s] for s in members],
                [errors[second][s] for s in members],
                THRESHOLDS,
            )
            cells.append(
                " / ".join(
                    f"{m:+.1f} [{i.low:+.1f}, {i.high:+.1f}]"
                    for m, i in zip(difference.mean, difference.interval, strict=True)
                )
            )
        lines.append(f"| {first} − {second} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def reference_table(folder: Path, sets: list[str]) -> str:
    """Take the errors of other programs from the reference data."""
    record = json.loads((folder / "reference.json").read_text())
    names = [n for n in record[sets[0]]["cpu_seconds"] if not n.startswith("pycolmap")]
    lines = ["", "From the reference data, one run each", ""]
    lines += ["| | macro | " + " | ".join(sets) + " |", "|---" * (len(sets) + 2) + "|"]
    for name in names:
        errors = [
            np.array([[pair[name][0] for pair in record[s]["error_voxels_deg_dist"].values()]])
            for s in sets
        ]
        cells = []
        for group in (errors, *([e] for e in errors)):
            auc = " / ".join(f"{v:.1f}" for v in macro_spread(group, THRESHOLDS).mean)
            cells.append(f"{auc}, {100.0 * np.mean([np.mean(e < 4.0) for e in group]):.0f}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out/accuracy"), help="folder of results")
    parser.add_argument("--sets", nargs="+", help="default: all five")
    parser.add_argument("--methods", nargs="+", help="names of lines; default: all")
    parser.add_argument("--seeds", type=int, default=5, help="repetitions")
    parser.add_argument("--similarity", action="store_true", help="the scale is unknown")
    arguments = parser.parse_args()
    data = data_folder()
    if data is None or not (data / "registration").is_dir():
        sys.stdout.write("registration: not here, set MANYMATCH_DATA to the folder that has it\n")
        return
    folder = data / "registration"
    sets = load_sets(folder, arguments.sets, arguments.similarity)
    chosen = [m for m in METHODS if not arguments.methods or m[0] in arguments.methods]
    errors: Errors = {}
    for name, estimator, rank_one in track(chosen, transient=True):
        errors[name] = {
            set_name: run(pairs, estimator, rank_one, arguments.seeds, arguments.similarity)
            for set_name, pairs in sets.items()
        }
    text = tables(errors, list(sets))
    if not arguments.similarity:
        text += reference_table(folder, list(sets))
    stem = "similarity" if arguments.similarity else "registration"
    arguments.out.mkdir(parents=True, exist_ok=True)
    kept = {n: {s: e.tolist() for s, e in by_set.items()} for n, by_set in errors.items()}
    record = {"options": OPTIONS.to_dict(), "errors_voxels": kept}
    (arguments.out / f"{stem}.json").write_text(json.dumps(record))
    (arguments.out / f"{stem}.md").write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
