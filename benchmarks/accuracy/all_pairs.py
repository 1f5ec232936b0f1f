"""Candidate graphs of all pairs of images of a place, whether the two overlap or not.

    python benchmarks/accuracy/all_pairs.py --out out/pairs
    python benchmarks/accuracy/all_pairs.py --out out/pairs --preset fused --most 60
    python benchmarks/accuracy/all_pairs.py --out out/pairs --scenes out/places --only courtyard0

A scene is a folder with ``images/`` and ``cameras.json`` ({"name": {"K", "R", "t", "size"}}, with
``x = K (R X + t)``). Scenes of at most 30 images have all their pairs, larger ones 150 pairs, as
many of each degree of overlap as there are. Writes ``<preset>/<scene>/<a>__<b>.npz``: the arrays of
`AssociationGraph.save` and those that `PAIR_ARRAYS` lists. `read_pair` reads a file. Files that
exist are kept, so a run that was interrupted resumes.

The overlap of rendered scenes is that of ``overlap.json``, which the renderer writes. For others,
points are triangulated from tracks of SIFT matches that agree with the true cameras in at least
three images. Image 1 sees a point of image 0 if the point is inside its frame and some image with
the point in its track looks at it from within 40 degrees.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import manymatch
from manymatch.matcher.matcher import Matcher
from tests.support.data_folder import data_folder

Cameras = dict[str, dict[str, np.ndarray]]
#: What a file holds besides the graph.
PAIR_ARRAYS = {
    "K0": "(3, 3) camera of image 0, centre of the top-left pixel (0, 0)",
    "K1": "(3, 3) camera of image 1",
    "size0": "(2,) width and height of image 0",
    "size1": "(2,) width and height of image 1",
    "R": "(3, 3) true rotation, camera 0 to camera 1",
    "t": "(3,) true translation, unit length; zeros if the camera did not move",
    "baseline": "length of the translation, in the unit of the scene",
    "overlap": "larger of the two shares of content that the other image sees, 0 to 1",
    "overlap_both": "(2,) share of image 0 seen in image 1, and of image 1 in image 0",
    "tracks": "triangulated points whose tracks hold both images; -1 where the overlap is rendered",
    "working_scale0": "(2,) length at working size over that of the image, `working_scale` of",
    "working_scale1": "(2,) `estimate_relative_pose`",
    "name0": "name of image 0",
    "name1": "name of image 1",
}
# Truth that is good to some degrees only: the limit of the distance from an epipolar line, px.
COARSE = {"sevenscenes": 8.0, "tum_office": 4.0}
TRACK_PX, VIEW_DEG = 2.0, 40.0
WHOLE, PART, NEAR = 30, 150, 10
STRATA = (0.0, 0.02, 0.1, 0.25, 0.5, 0.75)


def read_cameras(path: Path) -> Cameras:
    """Read true cameras by the name of their image."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return {
        name: {key: np.asarray(camera[key], float) for key in ("K", "R", "t", "size")}
        for name, camera in sorted(content.items())
    }


def read_pair(path: Path) -> tuple[manymatch.AssociationGraph, dict[str, Any]]:
    """Read the graph of a file, and what else is known of the pair."""
    with np.load(path) as arrays:
        known = {name: arrays[name] for name in PAIR_ARRAYS}
        names = (*("points0", "points1", "edges", "similarity", "rank", "source"), "prior")
        parts = {name: arrays[name] for name in names if name in arrays}
        if "source_names" in arrays:
            parts["source_names"] = arrays["source_names"].tolist()
    return manymatch.AssociationGraph(**parts), known


def relative(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> Any:
    """Return rotation and translation from one camera to another."""
    R = second["R"] @ first["R"].T
    return R, second["t"] - R @ first["t"]


# -------------------------------------------------------------------------------- overlap


def triangulate(cameras: list[dict[str, np.ndarray]], pixels: np.ndarray) -> np.ndarray:
    """Point (3,) of the least algebraic error in some images."""
    rows = []
    for camera, (x, y) in zip(cameras, pixels, strict=True):
        P = np.c_[camera["R"], camera["t"]]
        u, v, w = np.linalg.solve(camera["K"], [x, y, 1.0])
        rows += [u / w * P[2] - P[0], v / w * P[2] - P[1]]
    X = np.linalg.svd(np.stack(rows))[2][-1]
    return X[:3] / X[3] if abs(X[3]) > 1e-12 else np.full(3, np.inf)


def project(camera: dict[str, np.ndarray], points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (N, 2) and depths (N,) of points (N, 3)."""
    own = points @ camera["R"].T + camera["t"]
    with np.errstate(divide="ignore", invalid="ignore"):
        return (own @ camera["K"].T)[:, :2] / own[:, 2:], own[:, 2]


def true_matches(
    graph: manymatch.AssociationGraph,
    first: dict[str, np.ndarray],
    second: dict[str, np.ndarray],
    limit: float,
) -> np.ndarray:
    """Rank-one edges (M, 2) within a distance of the true epipolar lines."""
    edges = graph.edges[graph.rank == 1]
    R, t = relative(first, second)
    skew = np.array([[0, -t[2], t[1]], [t[2], 0, -t[0]], [-t[1], t[0], 0]])
    F = np.linalg.inv(second["K"]).T @ skew @ R @ np.linalg.inv(first["K"])
    x0, x1 = (np.c_[p, np.ones(len(p))] for p in (graph.points0, graph.points1))
    x0, x1 = x0[edges[:, 0]], x1[edges[:, 1]]
    l1, l0 = x0 @ F.T, x1 @ F
    off = np.abs((x1 * l1).sum(axis=1))
    with np.errstate(divide="ignore", invalid="ignore"):
        far = np.maximum(off / np.hypot(l1[:, 0], l1[:, 1]), off / np.hypot(l0[:, 0], l0[:, 1]))
    return edges[far < limit]


def find_tracks(
    names: list[str],
    points: list[np.ndarray],
    matches: dict[tuple[int, int], np.ndarray],
    cameras: Cameras,
    limit: float,
) -> list[tuple[np.ndarray, list[int]]]:
    """Triangulated points and the images that see them, three or more."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    start = np.cumsum([0, *map(len, points)])
    ends = [m + start[list(pair)] for pair, m in matches.items()]
    a, b = np.concatenate(ends).T
    links = coo_array((np.ones(len(a)), (a, b)), shape=(start[-1], start[-1]))
    label = connected_components(links, directed=False)[1]
    order = np.argsort(label, kind="stable")
    every = np.concatenate(points)
    image = np.repeat(np.arange(len(points)), np.diff(start))
    tracks = []
    for members in np.split(order, np.flatnonzero(np.diff(label[order])) + 1):
        seen, first = np.unique(image[members], return_index=True)
        if len(seen) < 3:
            continue
        # SIFT has several keypoints at one place; a track with two places in an image is wrong.
        places = every[members[first]][np.searchsorted(seen, image[members])]
        if np.abs(every[members] - places).max() > limit:
            continue
        views = [cameras[names[i]] for i in seen]
        pixels = every[members[first]]
        X = triangulate(views, pixels)
        shown = [project(camera, X[None]) for camera in views]
        off = max(np.abs(x[0] - p).max() for (x, _), p in zip(shown, pixels, strict=True))
        if off < 1.5 * limit and min(depth[0] for _, depth in shown) > 0:
            tracks.append((X, seen.tolist()))
    return tracks


def overlap_of_tracks(
    names: list[str], cameras: Cameras, tracks: list[tuple[np.ndarray, list[int]]]
) -> tuple[np.ndarray, np.ndarray]:
    """Share of the points of image i that image j sees, and the number of common points."""
    count = len(names)
    X = np.array([point for point, _ in tracks]).reshape(-1, 3)
    seen = np.zeros((count, len(X)), bool)
    for k, (_, images) in enumerate(tracks):
        seen[images, k] = True
    centres = [-cameras[n]["R"].T @ cameras[n]["t"] for n in names]
    rays = np.stack([(X - c) / np.linalg.norm(X - c, axis=1, keepdims=True) for c in centres])
    visible = np.zeros_like(seen)
    for j, name in enumerate(names):
        pixels, depth = project(cameras[name], X)
        inside = ((pixels >= 0) & (pixels <= cameras[name]["size"] - 1)).all(axis=1) & (depth > 0)
        cosine = np.where(seen, (rays * rays[j]).sum(axis=2), -1.0).max(axis=0)
        visible[j] = inside & (cosine > np.cos(np.deg2rad(VIEW_DEG)))
    own = np.maximum(seen.sum(axis=1), 1)[:, None]
    share = (seen[:, None] & visible[None]).sum(axis=2) / own
    return share, (seen[:, None] & seen[None]).sum(axis=2)


def neighbours(names: list[str], cameras: Cameras) -> list[tuple[int, int]]:
    """Pairs that make tracks: all, or in large scenes those of nearby cameras that look alike."""
    centres = np.array([-cameras[n]["R"].T @ cameras[n]["t"] for n in names])
    axes = np.array([cameras[n]["R"][2] for n in names])
    distance = np.linalg.norm(centres[:, None] - centres[None], axis=2)
    cost = distance / distance.mean() + np.arccos(np.clip(axes @ axes.T, -1.0, 1.0))
    near = np.argsort(cost, axis=1)[:, 1 : NEAR + 1 if len(names) > WHOLE else None]
    return sorted({(min(i, j), max(i, j)) for i, row in enumerate(near.tolist()) for j in row})


def measure_overlap(
    scene: Path, names: list[str], cameras: Cameras, cache: Path
) -> tuple[np.ndarray, np.ndarray]:
    """Overlap (n, n) of all images, and the number of their common tracks."""
    rendered = scene / "overlap.json"
    if rendered.is_file():
        known = json.loads(rendered.read_text(encoding="utf-8"))
        share = np.array([[known[a][b] for b in names] for a in names])
        return share, np.full(share.shape, -1)
    kept = cache / f"{scene.name}.npz"
    if kept.is_file():
        with np.load(kept) as arrays:
            return arrays["share"], arrays["common"]
    matcher = Matcher("classic", cache=cache.parent / "features", threads=1)
    features = matcher.extract([scene / "images" / name for name in names])
    limit = COARSE.get(scene.name, TRACK_PX)
    matches = {}
    for i, j in neighbours(names, cameras):
        graph = matcher.candidates(features[i], features[j])[0].graph
        matches[i, j] = true_matches(graph, cameras[names[i]], cameras[names[j]], limit)
    points = [kinds[0].points for kinds in features]
    tracks = find_tracks(names, points, matches, cameras, limit)
    share, common = overlap_of_tracks(names, cameras, tracks)
    cache.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(kept, share=share, common=common)
    return share, common


def choose_pairs(share: np.ndarray, most: int) -> list[tuple[int, int]]:
    """All pairs, or `most` of them, as evenly over the strata of overlap as there are pairs."""
    pairs = list(itertools.combinations(range(len(share)), 2))
    if len(pairs) <= most:
        return pairs
    rng = np.random.default_rng(0)
    overlap = np.array([max(share[i, j], share[j, i]) for i, j in pairs])
    stratum = np.searchsorted(STRATA, overlap, side="left")
    queues = [rng.permutation(np.flatnonzero(stratum == s)).tolist() for s in np.unique(stratum)]
    chosen: list[int] = []
    while len(chosen) < most:
        for queue in queues:
            if queue and len(chosen) < most:
                chosen.append(queue.pop())
    return [pairs[k] for k in sorted(chosen)]


# --------------------------------------------------------------------------------- graphs


def write_pairs(scene: Path, preset: str, out: Path, most: int | None) -> int:
    """Write the graphs of a scene that are missing; return the number of its pairs."""
    cameras = read_cameras(scene / "cameras.json")
    names = list(cameras)
    share, common = measure_overlap(scene, names, cameras, out / "overlap")
    whole = len(names) * (len(names) - 1) // 2
    limit = most or (whole if len(names) <= WHOLE else PART)
    folder = out / preset / scene.name
    folder.mkdir(parents=True, exist_ok=True)
    todo, rows = [], []
    for i, j in choose_pairs(share, limit):
        file = folder / f"{Path(names[i]).stem}__{Path(names[j]).stem}.npz"
        if not file.exists():
            todo.append((i, j, file))
        rows.append(
            {
                "file": file.name,
                "name0": names[i],
                "name1": names[j],
                "overlap": round(float(max(share[i, j], share[j, i])), 4),
                "tracks": int(common[i, j]),
            }
        )
    if todo:
        matcher = Matcher(preset, cache=out / "features", threads=1)
        needed = sorted({i for i, _, _ in todo} | {j for _, j, _ in todo})
        found = {i: matcher.extract([scene / "images" / names[i]])[0] for i in needed}
        for i, j, file in todo:
            graph = matcher.candidates(found[i], found[j])[0].graph
            R, t = relative(cameras[names[i]], cameras[names[j]])
            baseline = float(np.linalg.norm(t))
            known = {
                "K0": cameras[names[i]]["K"],
                "K1": cameras[names[j]]["K"],
                "size0": cameras[names[i]]["size"].astype(int),
                "size1": cameras[names[j]]["size"].astype(int),
                "R": R,
                "t": t / max(baseline, 1e-12),
                "baseline": baseline,
                "overlap": max(share[i, j], share[j, i]),
                "overlap_both": np.array([share[i, j], share[j, i]]),
                "tracks": common[i, j],
                "working_scale0": found[i][0].working_scale,
                "working_scale1": found[j][0].working_scale,
                "name0": names[i],
                "name1": names[j],
            }
            save_pair(graph, known, file)
    (folder / "pairs.json").write_text(json.dumps(rows, indent=0) + "\n", encoding="utf-8")
    return len(rows)


def save_pair(graph: manymatch.AssociationGraph, known: dict[str, Any], file: Path) -> None:
    """Write one file, under another name until it is complete."""
    parts = {"points0": graph.points0, "points1": graph.points1, "edges": graph.edges}
    more = {name: value for name, value in graph.of_edges().items() if value is not None}
    temporary = file.with_suffix(f".{os.getpid()}.tmp.npz")
    np.savez_compressed(temporary, **parts, **more, **known)
    temporary.replace(file)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data = data_folder()
    scenes = None if data is None else data / "scenes"
    parser.add_argument("--out", type=Path, required=True, help="folder of the graphs")
    parser.add_argument("--scenes", type=Path, default=scenes, help="folder of scenes")
    parser.add_argument("--only", nargs="+", help="names of scenes; by default all")
    parser.add_argument("--preset", default="classic")
    parser.add_argument("--most", type=int, help="most pairs of a scene")
    given = parser.parse_args()
    if given.scenes is None:
        parser.error("give --scenes, or set MANYMATCH_DATA to the folder that has scenes/")
    present = sorted(path.parent for path in given.scenes.glob("*/cameras.json"))
    for scene in present:
        if given.only and scene.name not in given.only:
            continue
        start = time.perf_counter()
        count = write_pairs(scene, given.preset, given.out, given.most)
        seconds = time.perf_counter() - start
        sys.stdout.write(f"{given.preset}/{scene.name}: {count} pairs, {seconds:.0f} s\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
