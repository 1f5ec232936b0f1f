"""Fit and measure the truth of pairs (`manymatch.reconstruct.pair_truth`) on scenes with truth.

    python -m tools.street place cup --seed 1 --variety 0.4 --images 20 --out out/places/cup1
    python benchmarks/accuracy/pair_truth.py --match classic --scenes out/places data/scenes
    python benchmarks/accuracy/pair_truth.py --scenes out/places data/scenes --held cup2 kiosk0

A scene is a folder with ``images/`` and ``cameras.json`` ({"name": {"K", "R", "t", "size"}}, with
``x = K (R X + t)``). ``--match PRESET`` matches all pairs of all scenes, with the true cameras,
into ``<batches>/<preset>/<scene>``; what exists is kept. Without it all batches are read. The
weights `BEFORE` and `WITHIN` are fitted by logistic regression, each scene counting alike, and are
printed, with a table of wrong and right pairs: trusted by themselves, and accepted by weights that
were fitted without the scene (all variants and presets of it), and by all.

A pair is wrong if its pose is off by more than 10 degrees or more than half of its matches are
further than 4 px from the true epipolar lines; in places with ``depth/``, also if fewer than 30 %
of its matches are within 5 px of where they should be: along a row of equal windows, matches can be
shifted and agree with the true pose. Where the truth is coarse (sevenscenes), wrong is
more than 20 degrees and pairs between 10 and 20 do not count. Pairs of rendered places that are
right by accident, as the images do not overlap but look along one row of equal houses, do not count
either. Every ``every<n>.txt`` of a scene is a variant of fewer images, fitted with a quarter of the
weight, and so are the even and the odd images of a rendered place. Scenes after ``--held`` are
judged by the weights in the code; if these are all, nothing is fitted.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import manymatch
from benchmarks.accuracy.all_pairs import Cameras, read_cameras, relative
from manymatch.geometry.pose import FAILURE_DEG, rotation_error_deg
from manymatch.io.pairs import Pair
from manymatch.reconstruct import pair_evidence, pair_truth
from manymatch.reconstruct.pair_graph import PairGraph
from tests.support.data_folder import data_folder

COARSE = ("sevenscenes",)
WRONG_DEG, COARSE_DEG, FAR_PX, OVERLAP = 10.0, 20.0, 4.0, 0.02
PLACED_PX, LEAST_PLACED = 5.0, 0.3
# Total weight of a scene and of a variant in the fit, and the ridge of standardised weights.
WEIGHT, PART_WEIGHT, LEAST_LINKS, RIDGE = 200.0, 50.0, 40, 1.0


class Judged(NamedTuple):
    """A scene or variant: evidence, number of images, and what is true of its links."""

    name: str
    base: str
    evidence: pair_evidence.Evidence
    images: int
    wrong: np.ndarray
    counts: np.ndarray
    trusted: np.ndarray
    order: pair_truth.Order | None
    seconds: float


def match_scene(scene: Path, preset: str, out: Path) -> None:
    """Match all pairs of a scene with its true cameras."""
    cameras = {
        name: manymatch.Camera.from_matrix(c["K"], *(int(x) for x in c["size"]))
        for name, c in read_cameras(scene / "cameras.json").items()
    }
    images = scene / "images"
    pairs = [
        Pair(a, b, images / a, images / b, cameras[a], cameras[b])
        for a, b in itertools.combinations(sorted(cameras), 2)
    ]
    manymatch.run_batch(pairs, None, out, preset, workers=1, formats=("parquet",))


def pose_error(pose: manymatch.RelativePose | None, R: np.ndarray, t: np.ndarray) -> float:
    """Larger error of rotation and signed direction, degrees; a camera that rests has none."""
    if pose is None:
        return FAILURE_DEG
    cosine = 1.0 if np.linalg.norm(t) < 1e-9 else pose.t @ t / np.linalg.norm(t)
    direction = np.degrees(np.arccos(np.clip(cosine, -1.0, 1.0)))
    return max(rotation_error_deg(pose.R, R), float(direction))


def far_share(graph: PairGraph, place: int, cameras: Cameras) -> float:
    """Share of the matches of a pair that are far from the true epipolar lines."""
    pair = graph.pairs[place]
    one, two = graph.photos[pair.first], graph.photos[pair.second]
    if not len(pair.matches):
        return 0.0
    R, t = relative(cameras[one.name], cameras[two.name])
    skew = np.array([[0, -t[2], t[1]], [t[2], 0, -t[0]], [-t[1], t[0], 0]])
    K = [cameras[photo.name]["K"] for photo in (one, two)]
    F = np.linalg.inv(K[1]).T @ skew @ R @ np.linalg.inv(K[0])
    x0, x1 = (
        np.c_[photo.points[pair.matches[:, side]], np.ones(len(pair.matches))]
        for side, photo in enumerate((one, two))
    )
    l1, l0 = x0 @ F.T, x1 @ F
    off = np.abs((x1 * l1).sum(axis=1))
    far = np.maximum(off / np.hypot(l1[:, 0], l1[:, 1]), off / np.hypot(l0[:, 0], l0[:, 1]))
    return float(np.mean(far > FAR_PX))


def placed_share(graph: PairGraph, place: int, cameras: Cameras, depths: Path) -> float:
    """Share of the matches of a pair that are where the depths of the first image put them."""
    pair = graph.pairs[place]
    one, two = graph.photos[pair.first], graph.photos[pair.second]
    if not len(pair.matches):
        return 1.0
    with Image.open(depths / one.name) as image:
        depth = np.asarray(image) / 1000.0
    first, second = pair.matches.T
    at = np.rint(one.points[first]).astype(np.int64).clip(0, np.array(depth.shape[::-1]) - 1)
    R, t = relative(cameras[one.name], cameras[two.name])
    x = (one.rays(first) * depth[at[:, 1], at[:, 0], None]) @ R.T + t
    with np.errstate(all="ignore"):
        off = two.camera.project(x[:, :2] / x[:, 2:]) - two.points[second]
    return float(np.mean((np.hypot(*off.T) < PLACED_PX) & (x[:, 2] > 0.0)))


def part_of(graph: PairGraph, names: set[str]) -> PairGraph:
    """Graph of some photographs."""
    kept = [k for k, photo in enumerate(graph.photos) if photo.name in names]
    new = {old: k for k, old in enumerate(kept)}
    pairs = tuple(
        dataclasses.replace(pair, first=new[pair.first], second=new[pair.second])
        for pair in graph.pairs
        if pair.first in new and pair.second in new
    )
    return PairGraph(tuple(graph.photos[k] for k in kept), pairs)


def judge(name: str, base: str, graph: PairGraph, scene: Path) -> Judged:
    """Gather the evidence of a graph and label its links."""
    cameras = read_cameras(scene / "cameras.json")
    start = time.process_time()
    evidence = pair_evidence.gather_evidence(graph)
    seconds = time.process_time() - start
    errors, far, overlap, shifted = [], [], [], []
    known = scene / "overlap.json"
    shares = json.loads(known.read_text(encoding="utf-8")) if known.is_file() else None
    for place in evidence.place.tolist():
        pair = graph.pairs[place]
        a, b = graph.photos[pair.first].name, graph.photos[pair.second].name
        errors.append(pose_error(pair.pose, *relative(cameras[a], cameras[b])))
        far.append(far_share(graph, place, cameras))
        depths = scene / "depth"
        placed = placed_share(graph, place, cameras, depths) if depths.is_dir() else 1.0
        shifted.append(placed < LEAST_PLACED)
        overlap.append(1.0 if shares is None else max(shares[a][b], shares[b][a]))
    error = np.array(errors)
    if base in COARSE:
        wrong = error > COARSE_DEG
        counts = wrong | (error <= WRONG_DEG)
    else:
        wrong = (error > WRONG_DEG) | (np.array(far) > 0.5) | np.array(shifted)
        counts = wrong | (np.array(overlap) > OVERLAP)
    trusted = np.array([graph.pairs[place].trusted for place in evidence.place])
    order = pair_truth.find_order(graph, evidence)
    return Judged(name, base, evidence, len(graph.photos), wrong, counts, trusted, order, seconds)


def read_all(batches: Path, scenes: dict[str, Path]) -> list[Judged]:
    """Read all batches, whole and in parts."""
    judged = []
    for folder in sorted(batches.glob("*/*")):
        if folder.name not in scenes or not (folder / "summary.json").is_file():
            continue
        scene, name = scenes[folder.name], f"{folder.parent.name}/{folder.name}"
        graph = PairGraph.from_batch(folder)
        judged.append(judge(name, folder.name, graph, scene))
        parts = {file.stem: set(file.read_text().split()) for file in scene.glob("every*.txt")}
        if (scene / "overlap.json").is_file():
            names = [photo.name for photo in graph.photos]
            parts = {"even": set(names[::2]), "odd": set(names[1::2])}
        for part, names in sorted(parts.items()):
            judged.append(judge(f"{name}:{part}", folder.name, part_of(graph, names), scene))
        sys.stderr.write(f"{name}: {judged[-1].seconds:.1f} s\n")
    return judged


def fit(scenes: list[Judged], cues: dict[str, np.ndarray]) -> tuple[float, ...]:
    """Weights of cues by ridge regression of the log-odds, a constant first."""
    X = np.concatenate([cues[one.name][one.counts] for one in scenes])
    y = np.concatenate([~one.wrong[one.counts] for one in scenes]).astype(float)
    weight = np.concatenate(
        [
            np.full(n, (PART_WEIGHT if ":" in one.name else WEIGHT) / max(n, LEAST_LINKS))
            for one in scenes
            for n in [int(one.counts.sum())]
        ]
    )
    mean, spread = X.mean(axis=0), X.std(axis=0) + 1e-9
    Z = np.c_[np.ones(len(X)), (X - mean) / spread]
    beta = np.zeros(Z.shape[1])
    for _ in range(40):
        p = 1.0 / (1.0 + np.exp(-Z @ beta))
        hessian = (Z * (weight * (p * (1 - p) + 1e-9))[:, None]).T @ Z + RIDGE * np.eye(len(beta))
        beta += np.linalg.solve(hessian, Z.T @ (weight * (y - p)) - RIDGE * beta)
    slope = beta[1:] / spread
    values = np.r_[beta[0] - slope @ mean, slope]
    return tuple(round(float(v), 3) for v in values)


def worlds(
    scenes: list[Judged], weights: dict[str, tuple[float, ...]]
) -> tuple[dict[str, pair_truth.World], dict[str, float]]:
    """Worlds of all scenes, with weights for each base scene, and seconds."""
    found, seconds = {}, {}
    for one in scenes:
        start = time.process_time()
        log_odds = pair_truth.weigh(one.evidence.cues, weights[one.base])
        found[one.name] = pair_truth.find_world(one.evidence, log_odds, one.images, one.order)
        seconds[one.name] = time.process_time() - start
    return found, seconds


def table(
    scenes: list[Judged],
    columns: list[tuple[dict[str, pair_truth.World], dict[str, tuple[float, ...]]]],
    seconds: dict[str, float],
) -> str:
    """Rows of wrong / right pairs: trusted, and accepted by each set of weights."""
    rows = []
    for one in scenes:
        cells = [
            f"{(one.trusted & one.wrong).sum()} / {(one.trusted & ~one.wrong & one.counts).sum()}"
        ]
        for found, weights in columns:
            true = pair_truth.weigh_world(found[one.name], weights[one.base]) >= 0
            right = ~one.wrong & one.counts
            lost = int((one.trusted & right & ~true).sum())
            cells.append(f"{(true & one.wrong).sum()} / {(true & right).sum()} (−{lost})")
        cpu = one.seconds + seconds[one.name]
        rows.append(f"| {one.name} | {one.images} | {' | '.join(cells)} | {cpu:.1f} |")
    return "\n".join(rows)


def fit_and_show(fitted: list[Judged]) -> None:
    """Fit the weights, with each scene left out and to all, and print them and the table."""
    local = {one.name: one.evidence.cues for one in fitted}
    bases = sorted({one.base for one in fitted})
    out = {base: fit([one for one in fitted if one.base != base], local) for base in bases}
    found, seconds = worlds(fitted, out)
    cues = {name: world.cues for name, world in found.items()}
    left = {base: fit([one for one in fitted if one.base != base], cues) for base in bases}
    before = dict.fromkeys(bases, fit(fitted, local))
    own, _ = worlds(fitted, before)
    within = fit(fitted, cues)
    shipped = dict.fromkeys(bases, within)
    head = "| scene | images | trusted alone | left out | all fitted | CPU s |\n" + 6 * "|---" + "|"
    sys.stdout.write(f"{head}\n{table(fitted, [(found, left), (own, shipped)], seconds)}\n\n")
    sys.stdout.write(f"BEFORE = {before[bases[0]]}\nWITHIN = {within}\n\n")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data = data_folder()
    folders = [] if data is None else [data / "scenes"]
    parser.add_argument("--scenes", type=Path, nargs="+", default=folders, help="folders of scenes")
    parser.add_argument("--batches", type=Path, default=Path("out/batches"))
    parser.add_argument("--match", metavar="PRESET", help="match all pairs of the scenes first")
    parser.add_argument("--held", nargs="*", default=[], help="scenes that are never fitted")
    given = parser.parse_args()
    scenes = {p.parent.name: p.parent for s in given.scenes for p in s.glob("*/cameras.json")}
    if not scenes:
        parser.error("give --scenes, or set MANYMATCH_DATA to the folder that has scenes/")
    if given.match:
        for name, scene in sorted(scenes.items()):
            match_scene(scene, given.match, given.batches / given.match / name)
        return 0
    every = read_all(given.batches, scenes)
    fitted = [one for one in every if one.base not in given.held]
    held = [one for one in every if one.base in given.held]
    if fitted:
        fit_and_show(fitted)
    if held:
        names = {one.base for one in held}
        now, seconds = worlds(held, dict.fromkeys(names, pair_truth.BEFORE))
        shown = [(now, dict.fromkeys(names, pair_truth.WITHIN))]
        head = "| held out | images | trusted alone | accepted | CPU s |\n|---|---|---|---|---|"
        sys.stdout.write(f"{head}\n{table(held, shown, seconds)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
