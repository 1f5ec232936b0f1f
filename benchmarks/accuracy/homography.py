"""Accuracy of homographies on the eight sets of the reference data, beside PoseLib and OpenCV.

    python benchmarks/accuracy/homography.py --out out/accuracy

At most 10,000 iterations, 3 px, confidence 0.9999, five seeds. Errors are mean distances of the
four corners of image 0 after the transfer into image 1, and where points were annotated the median
distance at those landmarks; the AUC is taken at 3, 5 and 10 px. OpenCV has no seed in this call:
repetitions after the first see the same candidates in another order. Writes ``homography.json``
with every error and ``homography.md`` with the tables; a minute on one core.
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

THRESHOLDS = (3, 5, 10)
OPTIONS = manymatch.Options(threshold_px=3.0, max_iterations=10_000)
FAILED_PX = 1e6
#: Sets on which constants may be chosen; the others judge.
TUNING_SETS = ("oxford", "mm_RGB_NIR", "mm_remote")
#: Name, estimator, whether it sees the rank-one candidates only.
METHODS = (
    ("PoseLib, rank one", "poselib", True),
    ("OpenCV MAGSAC, rank one", "magsac", True),
    ("cm, rank one", "cm", True),
    ("auto, rank one", "auto", True),
    ("PoseLib, all", "poselib", False),
    ("OpenCV MAGSAC, all", "magsac", False),
    ("cm, all", "cm", False),
    ("hcm-mcm, all", "hcm-mcm", False),
    ("auto, all", "auto", False),
)
COMPARISONS = (
    ("cm, rank one", "PoseLib, rank one"),
    ("auto, rank one", "PoseLib, rank one"),
    ("auto, rank one", "OpenCV MAGSAC, rank one"),
    ("auto, all", "PoseLib, rank one"),
    ("auto, all", "PoseLib, all"),
    ("auto, all", "OpenCV MAGSAC, rank one"),
    ("auto, all", "OpenCV MAGSAC, all"),
    ("auto, all", "auto, rank one"),
)

# By method and set.
Errors: TypeAlias = dict[str, dict[str, np.ndarray]]


class Pair:
    """A graph with the true homography and, for some sets, annotated points."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as file:
            self.graph = manymatch.AssociationGraph(
                file["points0"].astype(float),
                file["points1"].astype(float),
                file["edges"].astype(np.int64),
                file["similarity"].astype(np.float32),
                file["rank"].astype(np.int32),
            )
            self.H = file["H"]
            width, height = (int(n) - 1 for n in file["size0"])
            self.corners = np.array([[0, 0], [width, 0], [width, height], [0, height]], float)
            self.landmarks = None
            if "landmarks0" in file:
                self.landmarks = file["landmarks0"].astype(float), file["landmarks1"].astype(float)

    def errors(self, H: np.ndarray | None) -> tuple[float, float]:
        """Mean error at the corners and median error at the landmarks (NaN without), in px."""
        if H is None:
            return FAILED_PX, FAILED_PX if self.landmarks else np.nan
        corner = np.linalg.norm(transfer(H, self.corners) - transfer(self.H, self.corners), axis=1)
        landmark = np.nan
        if self.landmarks:
            landmark = np.median(
                np.linalg.norm(transfer(H, self.landmarks[0]) - self.landmarks[1], axis=1)
            )
        limit = [min(float(np.mean(corner)), FAILED_PX), min(float(landmark), FAILED_PX)]
        return tuple(FAILED_PX if np.isinf(e) else e for e in limit)  # type: ignore[return-value]


def transfer(H: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Map points (N, 2) by a homography."""
    mapped = np.column_stack([points, np.ones(len(points))]) @ H.T
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(mapped[:, :2] / mapped[:, 2:], nan=FAILED_PX)


def solve(
    estimator: str, graph: manymatch.AssociationGraph, seed: int, options: manymatch.Options
) -> np.ndarray | None:
    """Homography of one graph, or None."""
    if estimator in ("poselib", "magsac") and graph.num_edges < 4:
        return None
    points0, points1 = graph.points0[graph.edges[:, 0]], graph.points1[graph.edges[:, 1]]
    if estimator == "poselib":
        import poselib

        settings = {
            "max_reproj_error": options.threshold_px,
            "max_iterations": options.max_iterations,
            "success_prob": options.confidence,
            "seed": seed,
        }
        return np.asarray(poselib.estimate_homography(points0, points1, settings, {})[0])
    if estimator == "magsac":
        import cv2

        if seed:
            order = np.random.default_rng(seed).permutation(len(points0))
            points0, points1 = points0[order], points1[order]
        return cv2.findHomography(
            points0,
            points1,
            cv2.USAC_MAGSAC,
            options.threshold_px,
            maxIters=options.max_iterations,
            confidence=options.confidence,
        )[0]
    estimate = manymatch.estimate_homography(graph, estimator, options.replace(seed=seed))
    return estimate.homography


def load_sets(folder: Path, names: list[str] | None) -> dict[str, list[Pair]]:
    """All pairs by set."""
    found = names or sorted(path.name for path in folder.iterdir() if path.is_dir())
    return {name: [Pair(path) for path in sorted((folder / name).glob("*.npz"))] for name in found}


def run(
    pairs: list[Pair], estimator: str, rank_one: bool, seeds: int, options: manymatch.Options
) -> np.ndarray:
    """Errors (2, S, N) by kind, seed and pair; pair i, from 1, has seed i + b in repetition b."""
    result = []
    for repetition in range(seeds):
        row = []
        for number, pair in enumerate(pairs, start=1):
            graph = pair.graph.up_to_rank(1) if rank_one else pair.graph
            seed = repetition if estimator == "magsac" else number + repetition
            row.append(pair.errors(solve(estimator, graph, seed, options)))
        result.append(row)
    return np.array(result).transpose(2, 0, 1)


def tables(errors: Errors, sets: list[str]) -> str:
    """Markdown: AUC by method, macro and by set; then differences with their intervals."""
    names = list(errors)
    annotated = [s for s in sets if not np.isnan(errors[names[0]][s][1]).any()]
    lines = []
    for title, kind, chosen in (("corners", 0, sets), ("landmarks", 1, annotated)):
        if not chosen:
            continue
        judging = [s for s in chosen if s not in TUNING_SETS]
        groups = [("macro", chosen), ("judging sets", judging), *((s, [s]) for s in chosen)]
        lines += [f"AUC@3/5/10 px at the {title}, mean over seeds", ""]
        lines += ["| method | " + " | ".join(group for group, _ in groups) + " |"]
        lines += ["|---" * (len(groups) + 1) + "|"]
        for name in names:
            cells = []
            for _, members in groups:
                values = [errors[name][s][kind] for s in members]
                cells.append(triple(macro_spread(values, THRESHOLDS).mean) if values else "")
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
        lines += ["", f"Differences at the {title}, with 95 % intervals over pairs", ""]
        lines += ["| | all sets | judging sets |", "|---|---|---|"]
        for first, second in COMPARISONS:
            if first not in errors or second not in errors:
                continue
            cells = []
            for members in (chosen, judging):
                if not members:
                    continue
                difference = macro_difference(
                    [errors[first][s][kind] for s in members],
                    [errors[second][s][kind] for s in members],
                    THRESHOLDS,
                )
                cells.append(
                    " / ".join(
                        f"{m:+.1f} [{i.low:+.1f}, {i.high:+.1f}]"
                        for m, i in zip(difference.mean, difference.interval, strict=True)
                    )
                )
            lines.append(f"| {first} − {second} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def triple(values: tuple[float, ...]) -> str:
    return " / ".join(f"{value:.1f}" for value in values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out/accuracy"), help="folder of results")
    parser.add_argument("--sets", nargs="+", help="default: all eight")
    parser.add_argument("--methods", nargs="+", help="names of lines; default: all")
    parser.add_argument("--seeds", type=int, default=5, help="repetitions")
    arguments = parser.parse_args()
    data = data_folder()
    if data is None or not (data / "homography").is_dir():
        sys.stdout.write("homography: not here, set MANYMATCH_DATA to the folder that has it\n")
        return
    sets = load_sets(data / "homography", arguments.sets)
    chosen = [m for m in METHODS if not arguments.methods or m[0] in arguments.methods]
    errors: Errors = {}
    for name, estimator, rank_one in track(chosen, transient=True):
        errors[name] = {
            set_name: run(pairs, estimator, rank_one, arguments.seeds, OPTIONS)
            for set_name, pairs in sets.items()
        }
    text = tables(errors, list(sets))
    arguments.out.mkdir(parents=True, exist_ok=True)
    kept = {n: {s: e.tolist() for s, e in by_set.items()} for n, by_set in errors.items()}
    record = {"options": OPTIONS.to_dict(), "errors_px": kept}
    (arguments.out / "homography.json").write_text(json.dumps(record))
    (arguments.out / "homography.md").write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
