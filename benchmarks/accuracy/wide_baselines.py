"""Where wide indoor baselines are lost: pairs of scenes with known cameras, and a diagnosis.

    python benchmarks/accuracy/wide_baselines.py --preset best --preset own.toml --out out/wide

Writes a folder for each set with `pairs.txt` and links to the images, which `manymatch eval`
takes too. A pair is wide if its images share 15 to 60 % of what they show, estimated with flat
scenes at the distances of `SETS`. Every pair is then matched, and a pose that is more than 10
degrees off is put down to one of three causes, by a second search whose minimal samples come from
candidates near the true epipolar lines only:

- "no candidates": that search is more than 20 degrees off as well;
- "not found": it finds a pose that is right and has more support than the chosen one;
- "not chosen": it finds a pose that is right and has less support.

The table, `wide_baselines.md`, has the AUC, the causes, and for each source the median number of
keypoints and of candidates within `NEAR_PX` of the truth.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.accuracy import protocol
from manymatch import Matcher, RelativePose, estimate_relative_pose, pose_error_deg
from manymatch_lab.evaluate.statistics import auc_by_seed
from manymatch_lab.evaluate.tables import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from manymatch import AssociationGraph, MatchResult
    from manymatch._validate import FloatArray

# Scene, first frame and step of the frames, and distances of the scene in units of its cameras.
SETS = {
    "sevenscenes_even": ("sevenscenes", 0, 2, (1.2, 2.0, 3.0)),
    "sevenscenes_odd": ("sevenscenes", 1, 2, (1.2, 2.0, 3.0)),
    "tum_office": ("tum_office", 0, 1, (1.2, 2.0, 3.0)),
    "fox": ("fox", 0, 1, (3.0, 5.0, 7.0)),
}
OVERLAP = (0.15, 0.6)
# Least distance of two cameras, in the same units.
BASELINE = 0.1
# Candidates nearer to the true epipolar line count as true, in pixels of the images as given.
NEAR_PX = 4.0
RIGHT_DEG, USABLE_DEG = 10.0, 20.0


@dataclasses.dataclass(frozen=True)
class View:
    """An image of a scene and its camera, x = K (R X + t)."""

    name: str
    K: FloatArray
    R: FloatArray
    t: FloatArray
    size: tuple[int, int]

    def to(self, other: View) -> RelativePose:
        """Return the motion from this camera to another one."""
        R = other.R @ self.R.T
        return RelativePose(R, other.t - R @ self.t)

    def share_seen_by(self, other: View, distance: float) -> float:
        """Return the share of this image that another one sees if the scene is that far away."""
        x, y = np.meshgrid(*(np.linspace(0, length - 1, 24) for length in self.size))
        rays = np.linalg.inv(self.K) @ np.stack([x.ravel(), y.ravel(), np.ones(x.size)])
        motion = other.R @ self.R.T
        seen = other.K @ (motion @ (rays * distance) + (other.t - motion @ self.t)[:, None])
        with np.errstate(divide="ignore", invalid="ignore"):
            pixels = seen[:2] / seen[2]
        inside = (pixels >= 0) & (pixels < np.array(other.size)[:, None])
        return float(np.mean((seen[2] > 0) & inside.all(axis=0)))


def read_views(scene: Path) -> list[View]:
    """Read the cameras of a scene, in the order of their names."""
    cameras = json.loads((scene / "cameras.json").read_text(encoding="utf-8"))
    return [
        View(
            name,
            np.reshape(entry["K"], (3, 3)).astype(float),
            np.reshape(entry["R"], (3, 3)).astype(float),
            np.reshape(entry["t"], 3).astype(float),
            tuple(entry["size"]),
        )
        for name, entry in sorted(cameras.items())
    ]


def wide_pairs(
    views: Sequence[View], distances: Sequence[float], count: int
) -> list[tuple[View, View]]:
    """Choose pairs evenly over the overlap, which is that of the image that shares less."""
    found = []
    for j, second in enumerate(views):
        for first in views[:j]:
            overlap = np.mean(
                [
                    min(first.share_seen_by(second, z), second.share_seen_by(first, z))
                    for z in distances
                ]
            )
            centres = [view.R.T @ view.t for view in (first, second)]
            if OVERLAP[0] <= overlap <= OVERLAP[1] and np.ptp(centres, axis=0).max() > BASELINE:
                found.append((overlap, first, second))
    found.sort(key=lambda entry: (entry[0], entry[1].name, entry[2].name))
    places = np.unique(np.linspace(0, len(found) - 1, min(count, len(found))).round().astype(int))
    return [found[place][1:] for place in places]


def write_pairs(folder: Path, images: Path, pairs: Sequence[tuple[View, View]]) -> None:
    """Write SuperGlue's list of pairs with links to the images beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for first, second in pairs:
        pose = first.to(second)
        motion = np.vstack([np.column_stack([pose.R, pose.t]), [0, 0, 0, 1]])
        numbers = np.concatenate([first.K.ravel(), second.K.ravel(), motion.ravel()])
        row = " ".join(f"{number:.9g}" for number in numbers)
        lines.append(f"{first.name} {second.name} 0 0 {row}\n")
        for view in (first, second):
            if not (folder / view.name).exists():
                (folder / view.name).symlink_to((images / view.name).resolve())
    (folder / "pairs.txt").write_text("".join(lines), encoding="utf-8")


def epipolar_distances(graph: AssociationGraph, first: View, second: View) -> FloatArray:
    """Return the Sampson distance of every candidate from the true motion, in pixels."""
    pose = first.to(second)
    x, y, z = pose.t / np.linalg.norm(pose.t)
    E = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]]) @ pose.R
    ends = (graph.points0[graph.edges[:, 0]], graph.points1[graph.edges[:, 1]])
    rays0, rays1 = (
        np.column_stack([points, np.ones(len(points))]) @ np.linalg.inv(view.K).T
        for points, view in zip(ends, (first, second), strict=True)
    )
    lines1, lines0 = rays0 @ E.T, rays1 @ E
    steepness = np.sum(lines1[:, :2] ** 2 + lines0[:, :2] ** 2, axis=1)
    focal = np.mean([first.K[0, 0], second.K[0, 0]])
    distances: FloatArray = np.abs(np.sum(lines1 * rays1, axis=1)) / np.sqrt(steepness) * focal
    return distances


def cause(result: MatchResult, first: View, second: View, near: np.ndarray) -> str:
    """Say why a pose is wrong, or that it is right."""
    truth = first.to(second)

    def error(estimate: Any) -> float:
        return pose_error_deg(estimate.pose, truth.R, truth.t) if estimate.success else 180.0

    if error(result.estimate) <= RIGHT_DEG:
        return "right"
    helped = estimate_relative_pose(
        result.graph,
        result.camera0,
        result.camera1,
        options=result.estimate.options,
        proposals=near,
        working_scale=result.estimate.working_scale,
    )
    if error(helped) > USABLE_DEG:
        return "no candidates"
    return "not found" if helped.support > result.estimate.support else "not chosen"


def diagnose(matcher: Matcher, images: Path, pairs: Sequence[tuple[View, View]]) -> list[str]:
    """Match all pairs and return the cells of the table."""
    errors, causes = [], collections.Counter[str]()
    numbers = collections.defaultdict(list)
    for place, (first, second) in enumerate(pairs):
        features = matcher.extract([images / view.name for view in (first, second)])
        options = matcher.config.options.replace(seed=1 + place)
        result = matcher.match_features(*features, first.K, second.K, options=options)
        truth = first.to(second)
        failed = not result.estimate.success
        errors.append(180.0 if failed else pose_error_deg(result.estimate.pose, truth.R, truth.t))
        near = epipolar_distances(result.graph, first, second) < NEAR_PX
        causes[cause(result, first, second, near)] += 1
        for number, source in enumerate(matcher.sources):
            own = near if result.graph.source is None else near[result.graph.source == number]
            keypoints = np.mean([len(found[number]) for found in features])
            numbers[source.config.name].append((keypoints, len(own), np.sum(own)))
    sources = [
        "{}: {:.0f}, {:.0f}, {:.0f}".format(name, *np.median(rows, axis=0))
        for name, rows in numbers.items()
    ]
    counts = [str(causes[name]) for name in ("right", "no candidates", "not found", "not chosen")]
    return [protocol.auc_text(auc_by_seed([errors])), *counts, "; ".join(sources)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/wide"), help="folder of results")
    parser.add_argument("--preset", action="append", help="a preset or a .toml file; repeatable")
    parser.add_argument("--set", action="append", choices=SETS, help="by default all; repeatable")
    parser.add_argument("--pairs", type=int, default=50, help="pairs of a set")
    parser.add_argument("--iterations", type=int, default=20_000, help="at most, of a pair")
    given = parser.parse_args()
    scenes = protocol.reference_data("scenes")
    if scenes is None:
        return
    rows = []
    matchers = {
        name: Matcher(name, max_iterations=given.iterations, cache=given.out / "features")
        for name in given.preset or ("fused", "best")
    }
    for name in given.set or SETS:
        scene, start, step, distances = SETS[name]
        pairs = wide_pairs(read_views(scenes / scene)[start::step], distances, given.pairs)
        write_pairs(given.out / name, scenes / scene / "images", pairs)
        for preset, matcher in matchers.items():
            cells = diagnose(matcher, scenes / scene / "images", pairs)
            rows.append([name, preset, str(len(pairs)), *cells])
    header = ["set", "preset", "pairs", "AUC@5 / 10 / 20", "right"]
    header += ["no candidates", "not found", "not chosen", "keypoints, candidates, near the truth"]
    protocol.write(given.out, "wide_baselines", [Table("Wide indoor pairs", header, rows, [])])


if __name__ == "__main__":
    main()
