"""Photographs found in maps of the scenes, beside PoseLib on lifted rank-one matches.

    python benchmarks/accuracy/localization.py --preset classic --out out/localization
    python benchmarks/accuracy/localization.py --out out/localization --table
    python benchmarks/accuracy/localization.py --preset classic --retrieval
    python benchmarks/accuracy/localization.py --preset fused --maps third --exactness 3

The map of a scene is made of the photographs in its ``map.txt``, or of every third of them: mutual
nearest neighbours of the same features that agree with the true cameras within 4 px, triangulated
by COLMAP with the true cameras held, so that errors are in the frame of the truth. Lengths are in
per cent of the scene's size, the median distance between a camera of the map and the points that it
observes. PoseLib gets what hloc gives it: the mutual nearest neighbours in the same photographs of
the map whose keypoint is a point, several per keypoint where photographs disagree. Results of a
scene are kept in the folder; ``--table`` prints the tables of all of them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import poselib
import pycolmap

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import manymatch as mm
from manymatch.estimate.confidence import assess
from manymatch.geometry.pose import rotation_error_deg
from manymatch.io.colmap_matches import ColmapDatabaseWriter
from manymatch.io.matches import ImageRecord, PairMatches
from manymatch.reconstruct.localize import THRESHOLD_PX, Localizer
from manymatch.reconstruct.retrieval import image_vectors, look_alikes
from manymatch.reconstruct.scene_map import SceneMap
from tests.support.data_folder import data_folder

SCENES = (
    "fountain_p11", "herzjesu_p25", "herzjesu_p8", "temple", "tum_office", "fox", "sevenscenes",
)  # fmt: skip
#: Every how many photographs of ``map.txt`` are in the map.
MAPS = {"whole": 1, "third": 3}
METHODS = {
    "poselib": "PoseLib, rank one",
    "rank one": "auto, rank one",
    "ours": "localize",
    "unknown": "localize, focal unknown",
}
LIMITS = ((0.5, 1.0), (2.0, 5.0))
EPIPOLAR_PX, ITERATIONS = 4.0, 10_000
# Matches beyond chance of images that overlap; thresholds in pixels where the truth is coarse.
OVERLAP, COARSE = 40, {"sevenscenes": 3.0, "tum_office": 2.0}
# Queries of each other scene that are looked for in a map.
FOREIGN = 3


class Scene:
    """True cameras, and the names of the photographs of the map and of the queries."""

    def __init__(self, folder: Path, every: int = 1) -> None:
        self.folder = folder
        self.truth = json.loads((folder / "cameras.json").read_text())
        listed, self.queries = (
            (folder / f"{name}.txt").read_text().split() for name in ("map", "queries")
        )
        self.map, self.every = listed[::every], every

    def camera(self, name: str) -> mm.Camera:
        own = self.truth[name]
        return mm.Camera.from_matrix(own["K"], *own["size"])

    def pose(self, name: str) -> mm.AbsolutePose:
        own = self.truth[name]
        u, _, vt = np.linalg.svd(np.array(own["R"]))
        return mm.AbsolutePose(u @ vt, own["t"])

    def path(self, name: str) -> Path:
        return self.folder / "images" / name


def make_map(scene: Scene, matcher: mm.Matcher, out: Path) -> Path:
    """Triangulate the points of a map with the true cameras; return the folder of the model."""
    model = out / "model"
    if (model / "points3D.bin").is_file():
        return model
    model.mkdir(parents=True, exist_ok=True)
    names = scene.map
    kinds = {name: matcher.extract([str(scene.path(name))])[0] for name in names}
    points = {name: np.concatenate([kind.points for kind in kinds[name]]) for name in names}
    records = {
        name: ImageRecord(name, kinds[name][0].size, camera=scene.camera(name)) for name in names
    }
    database = out / "database.db"
    database.unlink(missing_ok=True)
    with ColmapDatabaseWriter(database) as writer:
        for one, two in itertools.combinations(names, 2):
            edges = rank_one(kinds[one], kinds[two])
            first, second = scene.pose(one), scene.pose(two)
            R = second.R @ first.R.T
            pose = mm.RelativePose(R, second.t - R @ first.t)
            graph = mm.AssociationGraph(points[one], points[two], edges)
            cameras = scene.camera(one), scene.camera(two)
            fits = mm.score_pose(graph, *cameras, pose, mm.Options(threshold_px=EPIPOLAR_PX))
            matches = graph.edges[fits.inliers]
            found = PairMatches.known(
                keypoints0=points[one], keypoints1=points[two], matches=matches, pose=pose
            )
            writer.add(records[one], records[two], found)
    posed = pycolmap.Reconstruction()
    opened = pycolmap.Database.open(database)
    for camera in opened.read_all_cameras():
        posed.add_camera_with_trivial_rig(camera)
    for image in opened.read_all_images():
        own = scene.pose(image.name)
        pose = pycolmap.Rigid3d(pycolmap.Rotation3d(own.R), own.t)
        posed.add_image_with_trivial_frame(image, pose)
    opened.close()
    options = pycolmap.IncrementalPipelineOptions()
    options.num_threads, options.random_seed = 1, 0
    # Few photographs share few points: those that two of them see are needed.
    options.triangulation.ignore_two_view_tracks = scene.every == 1
    made = pycolmap.triangulate_points(
        posed, database, scene.folder / "images", model, options=options
    )
    made.write(model)
    return model


def rank_one(kinds0: Any, kinds1: Any) -> np.ndarray:
    """Mutual nearest neighbours of every source, in keypoints of all sources stacked."""
    edges, start = [], np.zeros(2, int)
    for one, two in zip(kinds0, kinds1, strict=True):
        edges.append(mm.associate(one.descriptors, two.descriptors, k=1)[0] + start)
        start += (len(one), len(two))
    return np.concatenate(edges)


class Timed:
    """Runs methods on the queries of one map, and keeps errors and seconds of CPU."""

    def __init__(self, scene: Scene, localizer: Localizer) -> None:
        self.scene, self.localizer = scene, localizer
        own = localizer.scene
        distances = [
            np.median(np.linalg.norm(own.points[image.seen] - image.pose.center, axis=1))
            for image in own.images
        ]
        self.size = float(np.median(distances))

    def error(self, pose: mm.AbsolutePose | None, query: str) -> tuple[float, float]:
        """Degrees of the rotation, and per cent of the scene's size of the centre."""
        if pose is None:
            return 180.0, 1e9
        true = self.scene.pose(query)
        shift = float(np.linalg.norm(pose.center - true.center))
        return rotation_error_deg(pose.R, true.R), 100.0 * shift / self.size

    def lifted(self, query: str) -> tuple[mm.AssociationGraph, float]:
        """Rank-one candidates as hloc lifts them, and the size of a pixel of the resized image."""
        finder = self.localizer
        view = finder._views.compute(self.scene.path(query), 0)
        points = np.concatenate([kind.points for kind in view.features])
        edges = []
        for place in finder._similar(view.features):
            other = finder._views.get(finder.scene.images[place].path, 0)
            pairs = rank_one(view.features, other.features)
            stacked = np.concatenate([kind.points for kind in other.features])
            point = finder._lift(place, other, stacked)[pairs[:, 1]]
            edges.append(np.column_stack([pairs[:, 0], point])[point >= 0])
        unique = np.unique(np.concatenate(edges), axis=0)
        used, ends = np.unique(unique[:, 1], return_inverse=True)
        graph = mm.AssociationGraph(
            points, finder.scene.points[used], np.column_stack([unique[:, 0], ends.reshape(-1)])
        )
        return graph, float(np.mean(1.0 / view.features[0].working_scale))

    def run(self, method: str, query: str) -> mm.AbsolutePose | None:
        camera = self.scene.camera(query)
        if method in ("ours", "unknown"):
            given = camera if method == "ours" else "unknown"
            return self.localizer.locate(self.scene.path(query), given).pose
        graph, pixel = self.lifted(query)
        if method == "rank one":
            found = mm.estimate_absolute_pose(graph, camera, threshold_px=THRESHOLD_PX * pixel)
            return None if assess(found).verdict in ("no match", "failed") else found.pose
        x, X = graph.points0[graph.edges[:, 0]], graph.points1[graph.edges[:, 1]]
        params = [camera.fx, camera.fy, camera.cx, camera.cy]
        seen = {"model": "PINHOLE", "width": camera.width, "height": camera.height}
        options = {"max_reproj_error": THRESHOLD_PX * pixel, "max_iterations": ITERATIONS}
        if len(x) < 4:
            return None
        pose, info = poselib.estimate_absolute_pose(x, X, {**seen, "params": params}, options, {})
        return mm.AbsolutePose(pose.R, pose.t) if info["num_inliers"] >= 4 else None


def measure(name: str, kind: str, matcher: mm.Matcher, out: Path) -> dict[str, Any]:
    """Run every method on the queries of a scene, and look for queries of other scenes in it."""
    root = data_folder()
    assert root is not None, "the reference data is not here"
    scene = Scene(root / "scenes" / name, MAPS[kind])
    model = make_map(scene, matcher, out / f"{name}-{kind}")
    known = SceneMap.read(model, scene.folder / "images")
    localizer = Localizer(known, matcher)
    timed = Timed(scene, localizer)
    record: dict[str, Any] = {"scene": name, "map": kind, "images": len(known.images)}
    record |= {"points": len(known.points), "queries": len(scene.queries), "methods": {}}
    for method in METHODS:
        start = time.process_time()
        errors = [timed.error(timed.run(method, query), query) for query in scene.queries]
        seconds = (time.process_time() - start) / len(errors)
        record["methods"][method] = {"errors": errors, "seconds": seconds}
    verdicts = Counter[str]()
    for other in SCENES if kind == "whole" else ():
        # Two scenes are the same place.
        if other[:8] == name[:8]:
            continue
        foreign = Scene(root / "scenes" / other)
        for query in foreign.queries[:FOREIGN]:
            for camera in (foreign.camera(query), "unknown"):
                verdicts[localizer.locate(foreign.path(query), camera).confidence.verdict] += 1
    record["foreign"] = dict(verdicts)
    return record


def tables(folder: Path) -> str:
    """Return the tables of all results in a folder as Markdown."""
    lines = []
    for preset in sorted({path.parent.name for path in folder.glob("*/*.json")}):
        records = [json.loads(path.read_text()) for path in sorted(folder.glob(f"{preset}/*.json"))]
        for kind in MAPS:
            own = {one["scene"]: one for one in records if one["map"] == kind}
            chosen = [own[name] for name in SCENES if name in own]
            if not chosen:
                continue
            lines += [
                "",
                f"### {preset}, {'whole maps' if kind == 'whole' else 'every third image'}",
            ]
            lines += ["", "| scene | images, queries | " + " | ".join(METHODS.values()) + " |"]
            lines += ["|:--|:--|" + ":--|" * len(METHODS)]
            total: dict[str, list[Any]] = {method: [] for method in METHODS}
            for one in chosen:
                cells = []
                for method in METHODS:
                    errors = np.array(one["methods"][method]["errors"])
                    total[method].append(recalls(errors))
                    middle = np.median(errors, axis=0)
                    shares = " / ".join(f"{share:.0f}" for share in recalls(errors))
                    cells.append(f"{middle[0]:.3f}° {middle[1]:.3f} %, {shares}")
                counts = f"{one['images']}, {one['queries']}"
                lines.append(f"| {one['scene']} | {counts} | " + " | ".join(cells) + " |")
            means = [" / ".join(f"{x:.1f}" for x in np.mean(total[m], axis=0)) for m in METHODS]
            lines.append("| mean of scenes | | " + " | ".join(means) + " |")
            spent = [np.mean([o["methods"][m]["seconds"] for o in chosen]) for m in METHODS]
            lines.append("| seconds | | " + " | ".join(f"{s:.2f}" for s in spent) + " |")
            foreign = Counter[str]()
            for one in chosen:
                foreign.update(one["foreign"])
            if foreign:
                said = ", ".join(f"{number} {verdict}" for verdict, number in foreign.items())
                lines += ["", f"Queries of other scenes, known and unknown focal length: {said}."]
    return "\n".join(lines).strip() + "\n"


def exactness(name: str, kind: str, matcher: mm.Matcher, out: Path, seeds: int) -> str:
    """Return a line: errors on rank one and on all candidates, without and with their sources.

    Errors are the geometric means over queries and seeds, of rotations in degrees and of centres in
    per cent of the scene's size; milliseconds are CPU of the estimator.
    """
    root = data_folder()
    assert root is not None, "the reference data is not here"
    scene = Scene(root / "scenes" / name, MAPS[kind])
    model = make_map(scene, matcher, out / f"{name}-{kind}")
    localizer = Localizer(SceneMap.read(model, scene.folder / "images"), matcher)
    timed = Timed(scene, localizer)
    errors: dict[str, list[Any]] = {"rank one": [], "as one source": [], "all": []}
    seconds = dict.fromkeys(errors, 0.0)
    for query in scene.queries:
        view = localizer._views.compute(scene.path(query), 0)
        graph = localizer._candidates(view, localizer._similar(view.features))[0]
        one = mm.AssociationGraph(
            graph.points0, graph.points1, graph.edges, graph.similarity, graph.rank
        )
        lifted, pixel = timed.lifted(query)
        graphs = dict(zip(errors, (lifted, one, graph), strict=True))
        for line, seed in itertools.product(errors, range(seeds)):
            options = mm.Options(threshold_px=THRESHOLD_PX * pixel, seed=seed, threads=1)
            start = time.process_time()
            found = mm.estimate_absolute_pose(graphs[line], scene.camera(query), "auto", options)
            seconds[line] += time.process_time() - start
            errors[line].append(timed.error(found.pose, query))
    cells = [f"{name}, {kind}"]
    for line, of_line in errors.items():
        degrees, share = np.exp(np.mean(np.log(of_line), axis=0))
        spent = 1000.0 * seconds[line] / len(of_line)
        cells.append(f"{line} {degrees:.3f}° {share:.3f} % ({spent:.0f} ms)")
    return " | ".join(cells) + "\n"


def overlaps(scene: Scene, names: list[str], kinds: list[Any]) -> np.ndarray:
    """Tell which images overlap: more than 40 rank-one matches beyond chance fit the true pose."""
    pixels = COARSE.get(scene.folder.name, 1.5)
    found = np.zeros((len(names), len(names)), bool)
    for i, j in itertools.combinations(range(len(names)), 2):
        edges = rank_one(kinds[i][:1], kinds[j][:1])
        first, second = scene.pose(names[i]), scene.pose(names[j])
        R = second.R @ first.R.T
        pose = mm.RelativePose(R, second.t - R @ first.t)
        shuffled = np.random.default_rng(0).permutation(edges[:, 1])
        fits = []
        for pairs in (edges, np.column_stack([edges[:, 0], shuffled])):
            graph = mm.AssociationGraph(kinds[i][0].points, kinds[j][0].points, pairs)
            cameras = scene.camera(names[i]), scene.camera(names[j])
            fits.append(mm.score_pose(graph, *cameras, pose, mm.Options(threshold_px=pixels)))
        found[i, j] = found[j, i] = fits[0].num_inliers - fits[1].num_inliers > OVERLAP
    return found


def retrieval(matcher: mm.Matcher, names: list[str]) -> str:
    """Return the recall of overlapping images among the k most similar, all scenes in one pot."""
    root = data_folder()
    assert root is not None, "the reference data is not here"
    kinds: list[Any] = []
    blocks = []
    for name in names:
        scene = Scene(root / "scenes" / name)
        listed = (scene.folder / "all.txt").read_text().split()
        own = [matcher.extract([str(scene.path(image))])[0] for image in listed]
        blocks.append(overlaps(scene, listed, own))
        kinds += own
    vectors, shares = image_vectors(kinds), []
    for k in (5, 10, 20):
        similar, start, recall = look_alikes(vectors, k), 0, []
        for block in blocks:
            hits = []
            for row, wanted in enumerate(block):
                places = start + np.flatnonzero(wanted)
                if len(places):
                    own = np.isin(similar[start + row], places).sum()
                    hits.append(own / min(k, len(places)))
            recall.append(100.0 * np.mean(hits))
            start += len(block)
        shares.append(f"k = {k}: {np.mean(recall):.1f} %")
    return f"{len(kinds)} images, {', '.join(shares)}\n"


def recalls(errors: np.ndarray) -> list[float]:
    """Per cent of the errors below each of the limits."""
    return [100.0 * float(np.mean((errors < limit).all(axis=1))) for limit in LIMITS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--preset", default="classic")
    parser.add_argument("--scenes", nargs="*", default=SCENES)
    parser.add_argument("--maps", nargs="*", default=list(MAPS))
    parser.add_argument("--out", type=Path, default=Path("out/localization"))
    parser.add_argument("--retrieval", action="store_true", help="Only look for similar images.")
    parser.add_argument("--exactness", type=int, metavar="SEEDS", help="Only errors by seed.")
    parser.add_argument("--table", action="store_true", help="Print the tables of all results.")
    given = parser.parse_args()
    if given.table:
        sys.stdout.write(tables(given.out))
        return
    settings = {"threshold_px": THRESHOLD_PX, "device": "cpu", "cache": given.out / "features"}
    matcher = mm.Matcher(given.preset, **settings)
    if given.retrieval:
        # One of the scenes is a part of another.
        names = [name for name in given.scenes if name != "herzjesu_p8"]
        sys.stdout.write(retrieval(matcher, names))
        return
    folder = given.out / given.preset
    for name, kind in itertools.product(given.scenes, given.maps):
        if given.exactness:
            sys.stdout.write(exactness(name, kind, matcher, folder, given.exactness))
            continue
        path = folder / f"{name}-{kind}.json"
        if not path.is_file():
            record = measure(name, kind, matcher, folder)
            path.write_text(json.dumps(record))
            print(
                name,
                kind,
                {m: recalls(np.array(v["errors"])) for m, v in record["methods"].items()},
            )


if __name__ == "__main__":
    main()
