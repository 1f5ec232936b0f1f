"""Is "auto" ever worse than something simpler? Every problem, set by set, beside all peers.

    python benchmarks/accuracy/never_worse.py --out out/never_worse
    python benchmarks/accuracy/never_worse.py --problems rigid absolute --seeds 2
    python benchmarks/accuracy/never_worse.py --again auto      # measure our own lines once more

For every problem the peers (PoseLib, OpenCV MAGSAC, pycolmap, Open3D, KISS-Matcher, as far as they
are installed) and our methods "cm" and "hcm-mcm" see the candidates of rank one, the mutual nearest
neighbours (where that differs) and all candidates. "auto" sees all candidates. A cell is marked
"below" if "auto" is more than one point of AUC below the best of them and the 95 % interval of the
difference, over pairs, excludes 0. The best of many lines is lucky: with ten lines and the noise of
a small set it is above a method that is as good as each of them. So the best line is also chosen on
one half of the pairs and compared on the other, over many halvings: that is what somebody can
expect who tried all lines on some pairs and uses the best one for others. Every line is kept in
--out by problem, line and set, and a run that was interrupted resumes. Writes ``never_worse.md``.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.progress import track

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import manymatch
from benchmarks.accuracy import absolute_pose, homography, protocol, registration
from manymatch import pose_error_deg
from manymatch.io.files import write_text
from manymatch_lab.evaluate.estimators import (
    estimate_with_opencv,
    estimate_with_poselib,
    estimate_with_pycolmap,
)
from manymatch_lab.evaluate.inputs import open_graphs
from manymatch_lab.evaluate.statistics import macro_difference, macro_spread
from manymatch_lab.evaluate.tables import Table
from tests.support.data_folder import data_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

REPRESENTATIONS = ("sift", "superpoint", "effnet", "sam2")
OURS = ("cm", "hcm-mcm", "auto")
AUTO = "auto, all"
MODULES = {"OpenCV MAGSAC": "cv2", "PoseLib": "poselib", "Open3D": "open3d", "KISS": "kiss_matcher"}
# Lowest difference of the AUC that is not called "below", whatever its interval.
MARGIN = -1.0
# Halvings of the pairs of a set, and resamplings of its pairs.
HALVINGS, RESAMPLES = 200, 2_000


@dataclasses.dataclass(frozen=True)
class Contest:
    """One geometric problem: its sets, the lines that compete and how to run one of them."""

    sets: dict[str, Sequence[Any]]
    solve: Callable[[Any, str, str, int], float]
    lines: tuple[str, ...]  # "estimator, candidates"
    thresholds: tuple[float, ...]
    unit: str


def lines_of(peers: Sequence[str], candidates: Sequence[str]) -> tuple[str, ...]:
    """All lines of a problem; "auto" comes last."""
    installed = [p for p in peers if importlib.util.find_spec(MODULES.get(p, p))]
    given = [f"{name}, {which}" for which in candidates for name in (*installed, *OURS[:2])]
    return (*given, *(f"auto, {which}" for which in candidates if which != "all"), AUTO)


def relative(data: Path, representation: str) -> Contest:
    """Relative poses with known cameras."""
    baselines = {
        "PoseLib": estimate_with_poselib,
        "OpenCV MAGSAC": estimate_with_opencv,
        "pycolmap": estimate_with_pycolmap,
    }

    def solve(posed: Any, estimator: str, candidates: str, seed: int) -> float:
        graph = posed.graph.up_to_rank(1) if candidates == "rank one" else posed.graph
        cameras = posed.camera0, posed.camera1
        options = protocol.OPTIONS.replace(seed=seed, threads=1)
        found: Any
        if estimator in baselines:
            # The time of the others grows with the candidates; the first ones are the best.
            found = baselines[estimator](graph.head(2048), *cameras, options)
        else:
            kept = graph if estimator == "auto" else graph.head(1024)
            found = manymatch.estimate_relative_pose(kept, *cameras, estimator, options)
        return pose_error_deg(found.pose, posed.R, posed.t)

    readers = open_graphs([str(data / "graphs" / representation)])
    sets = {reader.name: [reader[i] for i in range(len(reader))] for reader in readers}
    peers = ("PoseLib", "pycolmap", "OpenCV MAGSAC")
    return Contest(sets, solve, lines_of(peers, ("rank one", "all")), (5, 10, 20), "degrees")


def homographies(data: Path) -> Contest:
    """Homographies, by the mean error at the corners."""
    names = {"PoseLib": "poselib", "OpenCV MAGSAC": "magsac"}

    def solve(pair: Any, estimator: str, candidates: str, seed: int) -> float:
        graph = pair.graph.up_to_rank(1) if candidates == "rank one" else pair.graph
        options = homography.OPTIONS.replace(threads=1)
        name = names.get(estimator, estimator)
        return pair.errors(homography.solve(name, graph, seed, options))[0]

    sets = homography.load_sets(data / "homography", None)
    peers = tuple(names)
    return Contest(sets, solve, lines_of(peers, ("rank one", "all")), (3, 5, 10), "px")


def absolute(data: Path) -> Contest:
    """Absolute poses; "mutual" are the mutual nearest neighbours of a one-way graph."""
    ranks = {"rank one": ("one-way", 1), "mutual": ("mutual", 1), "all": ("one-way", 5)}

    def solve(query: Any, estimator: str, candidates: str, seed: int) -> float:
        graph = query.graph(*ranks[candidates])
        found = absolute_pose.solve(estimator, query, graph, seed)
        return absolute_pose.FAILED if found is None else query.error(*found[:2])

    peers = ("PoseLib", "OpenCV MAGSAC", "pycolmap")
    sets = absolute_pose.load_sets(data / "absolute_pose")
    return Contest(sets, solve, lines_of(peers, tuple(ranks)), (0.5, 1, 5), "degrees or per cent")


def clouds(data: Path, similarity: bool) -> Contest:
    """Rigid transforms or similarities, by the root mean square error over the overlap."""

    def solve(pair: Any, estimator: str, candidates: str, seed: int) -> float:
        graph = pair.graph.up_to_rank(1) if candidates == "rank one" else pair.graph
        options = registration.OPTIONS.replace(threads=1)
        threshold = registration.VOXELS * pair.voxel
        return pair.error(
            registration.solve(estimator, graph, threshold, seed, options, similarity)
        )

    sets = registration.load_sets(data / "registration", None, similarity)
    peers = ("pycolmap",) if similarity else ("pycolmap", "Open3D", "KISS")
    return Contest(sets, solve, lines_of(peers, ("rank one", "all")), (2, 4, 8), "voxels")


CONTESTS: dict[str, Callable[[Path], Contest]] = {
    **{
        f"relative, {name}": lambda data, name=name: relative(data, name)  # type: ignore[misc]
        for name in REPRESENTATIONS
    },
    "homography": homographies,
    "absolute": absolute,
    "rigid": lambda data: clouds(data, similarity=False),
    "similarity": lambda data: clouds(data, similarity=True),
}


def measure(contest: Contest, line: str, seeds: int, folder: Path) -> dict[str, np.ndarray]:
    """Errors (seeds, pairs) by set of one line; what the folder has already is not run again."""
    estimator, candidates = line.rsplit(", ", 1)
    found = {}
    for name, items in contest.sets.items():
        path = folder / re.sub(r"[^\w-]+", "_", line) / f"{name}.json"
        known = json.loads(path.read_text()) if path.exists() else {"errors": []}
        if len(known["errors"]) < seeds or "seconds" not in known:
            start = time.process_time()
            known["errors"] = [
                [contest.solve(item, estimator, candidates, 1 + n + s) for n, item in each]
                for s in range(seeds)
                if (each := list(enumerate(items)))
            ]
            known["seconds"] = (time.process_time() - start) / (seeds * len(items))
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, json.dumps(known))
        found[name] = np.array(known["errors"][:seeds])
    return found


def auc_text(values: Sequence[float]) -> str:
    return " / ".join(f"{value:.1f}" for value in values)


def on_other_pairs(
    own: np.ndarray, others: Sequence[np.ndarray], thresholds: Sequence[float]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Difference to the line that is best on the other half of the pairs, with its interval.

    Errors are (seeds, pairs); returns mean, lower and upper end, one per threshold. The area is
    counted pair by pair, so that the AUC is its mean. NaN if there is only one pair.
    """
    limits = np.array(thresholds)
    areas = [
        100.0 * np.mean(np.clip(limits - e[..., None], 0.0, None) / limits, axis=0)
        for e in (own, *others)
    ]
    ours, lines = areas[0], np.stack(areas[1:])
    rng, total, pairs = np.random.default_rng(0), np.zeros_like(ours), len(ours)
    if pairs == 1:
        unknown = np.full(len(limits), np.nan)
        return unknown, unknown, unknown
    for _ in range(HALVINGS):
        half = rng.permutation(pairs) < pairs // 2
        for seen in (half, ~half):
            best = lines[int(np.argmax(lines[:, seen].sum(axis=(1, 2))))]
            total[~seen] += (ours - best)[~seen]
    gain = total / HALVINGS
    draws = gain[rng.integers(0, pairs, (RESAMPLES, pairs))].mean(axis=1)
    low, high = np.quantile(draws, (0.025, 0.975), axis=0)
    return gain.mean(axis=0), low, high


def interval_text(mean: float, low: float, high: float) -> str:
    return f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"


def table(name: str, contest: Contest, errors: dict[str, dict[str, np.ndarray]]) -> Table:
    """Make a row for every set: the best line, "auto", and their difference."""
    seeds = len(next(iter(errors[AUTO].values())))
    rows = []
    for key, own in errors[AUTO].items():
        others = {line: of_set[key] for line, of_set in errors.items() if line != AUTO}
        scores = {
            line: np.array(macro_spread([e], contest.thresholds, 1).mean)
            for line, e in others.items()
        }
        best = max(scores, key=lambda line: float(scores[line].sum()))
        seen = macro_difference([own], [others[best]], contest.thresholds)
        ends = np.array([(interval.low, interval.high) for interval in seen.interval]).T
        cells = []
        for mean, low, high in (
            (np.array(seen.mean), *ends),
            on_other_pairs(own, list(others.values()), contest.thresholds),
        ):
            known = bool(np.isfinite(mean).all())  # one pair has no other pairs
            cells.append(" / ".join(map(interval_text, mean, low, high)) if known else "-")
            cells.append("below" if np.any((mean < MARGIN) & (high < 0.0)) else "")
        auto = macro_spread([own], contest.thresholds, 1).mean
        rows.append(
            [f"{key} ({own.shape[1]})", best, auc_text(scores[best]), auc_text(auto), *cells]
        )
    limits = "/".join(f"{t:g}" for t in contest.thresholds)
    header = ["set (pairs)", "best other line", f"its AUC@{limits} {contest.unit}"]
    header += ["auto, all", "auto − best, 95 % interval", ""]
    header += ["auto − best on other pairs, 95 % interval", ""]
    return Table(f"{name}, {seeds} seeds", header, rows)


def line_table(name: str, contest: Contest, errors: dict[str, dict[str, np.ndarray]]) -> Table:
    """Make a row for every line: its AUC, mean over sets and set by set."""
    rows = []
    for line, of_set in errors.items():
        groups = [list(of_set.values()), *([e] for e in of_set.values())]
        rows.append(
            [line, *(auc_text(macro_spread(g, contest.thresholds, 1).mean) for g in groups)]
        )
    return Table(f"{name}: all lines", ["line", "macro", *contest.sets], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out/never_worse"), help="results")
    parser.add_argument("--seeds", type=int, default=5, help="repetitions")
    parser.add_argument("--problems", nargs="+", choices=list(CONTESTS), default=list(CONTESTS))
    parser.add_argument("--lines", help="only lines that match this regular expression")
    parser.add_argument("--again", help="measure lines that begin so once more")
    parser.add_argument("--all-lines", action="store_true", help="also a table of every line")
    given = parser.parse_args()
    data = data_folder()
    if data is None:
        sys.stdout.write("The reference data is not here; set MANYMATCH_DATA to its folder.\n")
        return
    tables = []
    for name in given.problems:
        contest = CONTESTS[name](data)
        folder = given.out / re.sub(r"[^\w-]+", "_", name)
        errors = {}
        chosen = [line for line in contest.lines if re.search(given.lines or "", line)]
        for line in track(chosen, description=name, transient=True):
            if given.again and line.startswith(given.again):
                for path in (folder / re.sub(r"[^\w-]+", "_", line)).glob("*.json"):
                    path.unlink()
            errors[line] = measure(contest, line, given.seeds, folder)
        if AUTO in errors and len(errors) > 1:
            tables.append(table(name, contest, errors))
        if given.all_lines:
            tables.append(line_table(name, contest, errors))
    given.out.mkdir(parents=True, exist_ok=True)
    protocol.write(given.out, "never_worse", tables)


if __name__ == "__main__":
    main()
