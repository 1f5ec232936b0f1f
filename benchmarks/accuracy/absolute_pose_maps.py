"""Where several candidates help to find a camera in a map: maps from few images of other views.

    python benchmarks/accuracy/absolute_pose_maps.py --out out/accuracy

Every image of four posed sets is a query, and a map is made of some other images of its scene: of
the six nearest, of the four nearest that are turned by 15 degrees or more, and of the four nearest
by 25 degrees or more. Keypoints and the tracks that are triangulated come from XFeat with the true
poses, so that all maps of a query have the same points; they are described by XFeat itself, made
for matching, or by EfficientNet, made for classification, each point by the mean over its images.
Candidates are mutual among the K nearest. AUC at 1, 5 and 10 as in ``absolute_pose.py``. The first
run makes the maps and keeps them in the folder (ten minutes on one core).
"""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.progress import track

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import manymatch
from benchmarks.accuracy import absolute_pose as reference
from manymatch.features.extractor import Extractor
from manymatch.features.feature_config import FeatureConfig, feature_config
from tests.support.data_folder import data_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

SETS = ("strecha_fountain_herzjesu", "ngp_fox", "middlebury_temple", "tum_fr3_office")
#: Least angle to the query, and number of images.
KINDS = {"near": (0.0, 6), "far": (15.0, 4), "far30": (25.0, 4)}
TITLES = {"near": "6 nearest images", "far": "4 images, ≥ 15°", "far30": "4 images, ≥ 25°"}
DESCRIPTORS = {"effnet": "EfficientNet", "xfeat": "XFeat"}
MOST_DEG, LEAST_POINTS = 60.0, 30
LINES: Sequence[reference.Line] = (
    ("PoseLib", "mutual", 1),
    ("auto", "mutual", 1),
    ("auto", "mutual", 3),
    ("auto", "mutual", 5),
)
COMPARISONS = (
    (("auto", "mutual", 1), ("PoseLib", "mutual", 1)),
    (("auto", "mutual", 3), ("PoseLib", "mutual", 1)),
    (("auto", "mutual", 5), ("PoseLib", "mutual", 1)),
    (("auto", "mutual", 3), ("auto", "mutual", 1)),
    (("auto", "mutual", 5), ("auto", "mutual", 1)),
)


class MapQuery(reference.Query):
    """A query of one of these maps, with one kind of descriptors."""

    def __init__(self, path: Path, descriptor: str) -> None:
        with np.load(path) as file:
            self.points0, self.points1 = file["points2D"].astype(float), file["points3D"]
            self.K, self.pose = file["K"], reference.nearest_pose(file["R"], file["t"])
            self.edges, self.similarity, self.rank = (
                file[f"{descriptor}_mutual_{name}"] for name in ("edges", "sim", "rank")
            )
        self.size = np.ceil(2.0 * self.K[:2, 2]).astype(int)
        depths = self.points1 @ self.pose.R[2] + self.pose.t[2]
        self.depth = float(np.median(depths[depths > 0]))

    def graph(self, ranks: str, k: int) -> manymatch.AssociationGraph:  # noqa: ARG002 - one kind
        """Candidates up to a rank, best first."""
        graph = manymatch.AssociationGraph(
            self.points0, self.points1, self.edges, self.similarity, self.rank
        )
        return graph.up_to_rank(k)


def scenes(folder: Path) -> list[tuple[dict[str, np.ndarray], dict[str, np.ndarray]]]:
    """Poses (4, 4) and camera matrices by image, for each part that the pairs connect."""
    neighbours: dict[str, list[tuple[str, np.ndarray]]] = {}
    K = {}
    for line in (folder / "pairs.txt").read_text().splitlines():
        first, second, *rest = line.split()
        values = np.array(rest[2:], dtype=float)
        K[first], K[second] = values[:9].reshape(3, 3), values[9:18].reshape(3, 3)
        step = values[18:34].reshape(4, 4)
        neighbours.setdefault(first, []).append((second, step))
        neighbours.setdefault(second, []).append((first, np.linalg.inv(step)))
    found: list[dict[str, np.ndarray]] = []
    for start in sorted(neighbours):
        if any(start in poses for poses in found):
            continue
        poses, waiting = {start: np.eye(4)}, [start]
        while waiting:
            here = waiting.pop()
            for other, step in neighbours[here]:
                if other not in poses:
                    poses[other] = step @ poses[here]
                    waiting.append(other)
        found.append(poses)
    return [(poses, K) for poses in found]


def angle_deg(first: np.ndarray, second: np.ndarray) -> float:
    cosine = 0.5 * (np.sum(first[:3, :3] * second[:3, :3]) - 1.0)
    return float(np.degrees(np.arccos(np.clip(cosine, -1.0, 1.0))))


def tracks(features: dict[str, Any], poses: Any, K: Any) -> list[list[tuple[str, int]]]:
    """Keypoints of the images that are matched and agree with the true poses."""
    parent: dict[tuple[str, int], tuple[str, int]] = {}

    def root(node: tuple[str, int]) -> tuple[str, int]:
        while parent.setdefault(node, node) != node:
            node = parent[node]
        return node

    for a, b in itertools.combinations(features, 2):
        if poses[a][2, :3] @ poses[b][2, :3] < np.cos(np.radians(45.0)):
            continue
        edges, _, _ = manymatch.associate(features[a][1], features[b][1], k=1)
        step = poses[b] @ np.linalg.inv(poses[a])
        rotation = reference.nearest_pose(step[:3, :3], step[:3, 3]).R
        pose = manymatch.RelativePose(rotation, step[:3, 3])
        F = np.linalg.inv(K[b]).T @ pose.essential() @ np.linalg.inv(K[a])
        x = np.column_stack([features[a][0][edges[:, 0]], np.ones(len(edges))])
        y = np.column_stack([features[b][0][edges[:, 1]], np.ones(len(edges))])
        lines, back = x @ F.T, y @ F
        norm2 = np.sum(lines[:, :2] ** 2, axis=1) + np.sum(back[:, :2] ** 2, axis=1)
        distance = np.abs(np.sum(lines * y, axis=1)) / np.sqrt(norm2)
        for i, j in edges[distance < 1.5]:
            parent[root((a, int(i)))] = root((b, int(j)))
    members: dict[tuple[str, int], list[tuple[str, int]]] = {}
    for node in list(parent):
        members.setdefault(root(node), []).append(node)
    return [t for t in members.values() if len({image for image, _ in t}) == len(t) > 1]


def triangulated(track: Any, features: Any, poses: Any, K: Any) -> np.ndarray | None:
    """Point of a track, if it is seen where it should be (2 px) from two directions (2 degrees)."""
    rows, rays = [], []
    for image, i in track:
        P, (x, y) = K[image] @ poses[image][:3], features[image][0][i]
        rows += [x * P[2] - P[0], y * P[2] - P[1]]
    homogeneous = np.linalg.svd(np.array(rows))[2][-1]
    point = homogeneous[:3] / homogeneous[3]
    for image, i in track:
        R, t = poses[image][:3, :3], poses[image][:3, 3]
        seen = K[image] @ (R @ point + t)
        if seen[2] <= 0 or np.linalg.norm(seen[:2] / seen[2] - features[image][0][i]) > 2.0:
            return None
        ray = point + R.T @ t
        rays.append(ray / np.linalg.norm(ray))
    widest = min(float(a @ b) for a, b in itertools.combinations(rays, 2))
    return point if widest < np.cos(np.radians(2.0)) else None


def make_maps(data: Path, folder: Path) -> None:
    """Write one file per query and kind of map."""
    general = Extractor("embedded")
    names = ("detector", "max_keypoints", "border", "longest", "enlarge", "resize")
    same = {name: getattr(feature_config("embedded"), name) for name in names}
    own = Extractor(FeatureConfig(**same, descriptor="native"))
    for name in track(SETS, transient=True):
        for poses, K in scenes(data / "posed_pairs" / name):
            if len(poses) < 4:
                continue
            features = {}
            for image in sorted(poses):
                path = data / "posed_pairs" / name / image
                first, second = own.extract(path), general.extract(path)
                features[image] = first.points, first.descriptors, second.descriptors
            for query, (kind, (least, number)) in itertools.product(sorted(poses), KINDS.items()):
                turned = {o: angle_deg(poses[o], poses[query]) for o in poses if o != query}
                usable = [o for o in turned if least <= turned[o] <= MOST_DEG]
                chosen = sorted(usable, key=turned.__getitem__)[:number]
                if len(chosen) > 1:
                    write_map(folder, f"{name}__{kind}__{query}", query, chosen, features, poses, K)


def write_map(
    folder: Path, name: str, query: str, images: list[str], features: Any, poses: Any, K: Any
) -> None:
    few = {image: features[image] for image in images}
    points, descriptors = [], []
    for one in tracks(few, poses, K):
        point = triangulated(one, few, poses, K)
        if point is not None:
            points.append(point)
            descriptors.append(
                [np.mean([few[image][kind][i] for image, i in one], axis=0) for kind in (1, 2)]
            )
    if len(points) < LEAST_POINTS:
        return
    content = {"points2D": features[query][0], "points3D": np.array(points), "K": K[query]}
    content |= {"R": poses[query][:3, :3], "t": poses[query][:3, 3]}
    for place, descriptor in enumerate(("xfeat", "effnet")):
        rows = np.array([d[place] / np.linalg.norm(d[place]) for d in descriptors], np.float32)
        found = manymatch.associate(features[query][place + 1], rows, k=5)
        for label, values in zip(("edges", "sim", "rank"), found, strict=True):
            content[f"{descriptor}_mutual_{label}"] = values
    np.savez(folder / f"{name}.npz", **content)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out/accuracy"), help="folder of results")
    parser.add_argument("--seeds", type=int, default=1, help="repetitions")
    arguments = parser.parse_args()
    data = data_folder()
    if data is None or not (data / "posed_pairs").is_dir():
        sys.stdout.write("posed_pairs: not here, set MANYMATCH_DATA to the folder that has it\n")
        return
    folder = arguments.out / "maps"
    if not folder.is_dir():
        folder.mkdir(parents=True)
        make_maps(data, folder)
    reference.THRESHOLDS = (1, 5, 10)
    text = []
    for descriptor, kind in itertools.product(DESCRIPTORS, KINDS):
        paths = sorted(folder.glob(f"*__{kind}__*.npz"))
        sets = {s: [MapQuery(p, descriptor) for p in paths if p.name.startswith(s)] for s in SETS}
        sets = {s: queries for s, queries in sets.items() if queries}
        errors = {
            line: {s: reference.run(q, line, arguments.seeds) for s, q in sets.items()}
            for line in LINES
        }
        number = sum(map(len, sets.values()))
        text += [f"{DESCRIPTORS[descriptor]}, {TITLES[kind]}, {number} queries: AUC@1/5/10", ""]
        text += reference.pose_table(errors, list(sets))
        text += reference.difference_table(errors, COMPARISONS)
        (arguments.out / "absolute_pose_maps.md").write_text("\n".join(text))
    sys.stdout.write("\n".join(text))


if __name__ == "__main__":
    main()
