"""What is fuzzed: one line for each reader and each public function, from bytes to a call.

The only outcomes allowed are a result that passes its checks, and `ValueError` or
`ModuleNotFoundError` with one sentence. `fuzz.run` runs all targets; ``tests/test_fuzz_corpus.py``
replays what they keep.
"""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import manymatch
from manymatch import compat, io
from manymatch.batch.parts import RUN, read_run
from manymatch.features.weights import load_state
from manymatch.io.pairs import read_pairs
from manymatch_lab.datasets.loading import read_index
from manymatch_lab.datasets.registry import read_set_file
from manymatch_lab.datasets.unpickle import unpickle
from manymatch_lab.evaluate.statistics import bootstrap_interval

if TYPE_CHECKING:
    from collections.abc import Callable

    Target = Callable[[bytes], object]

CORPUS = Path(__file__).with_name("corpus")


def _file(name: str, read: Callable[[Path], object]) -> Target:
    """Read a file of the given name that holds the bytes."""

    def target(data: bytes) -> object:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, name)
            path.write_bytes(data)
            return read(path)

    return target


@functools.cache
def _scene() -> dict[str, Any]:
    """Sound values of arguments, by name."""
    rng = np.random.default_rng(1)
    points = rng.uniform(0.0, 500.0, (2, 24, 2))
    points[1, :16] = points[0, :16] * 0.9 + 20.0
    cloud = rng.uniform(-5.0, 5.0, (24, 3))
    camera = np.array([[400.0, 0.0, 250.0], [0.0, 400.0, 250.0], [0.0, 0.0, 1.0]])
    graph = manymatch.AssociationGraph.from_matches(*points)
    options = manymatch.Options(min_iterations=10, max_iterations=40, threads=1)
    return {
        "points0": points[0],
        "points1": points[1],
        "points": points[0],
        "cloud0": cloud,
        "cloud1": cloud[:, [1, 2, 0]] + 3.0,
        "threshold": 0.5,
        "edges": graph.edges,
        "similarity": np.linspace(1.0, 0.0, 24),
        "rank": np.ones(24, dtype=int),
        "desc0": rng.normal(size=(24, 8)),
        "desc1": rng.normal(size=(24, 8)),
        **dict.fromkeys(("size0", "size1"), (500, 500)),
        "k": 3,
        "graph": graph,
        **dict.fromkeys(("camera0", "camera1", "K"), camera),
        "options": options,
        "method": "auto",
        "opt": {"max_iterations": 40},
        "pose": manymatch.RelativePose(np.eye(3), [1.0, 0.0, 0.0]),
        "R": np.eye(3),
        "t": [1.0, 0.0, 0.0],
        "problems": [(graph, camera, camera)],
        "estimate": manymatch.estimate_relative_pose(graph, camera, camera, options=options),
        "tolerance_px": 1.0,
        **dict.fromkeys(("threshold_px", "q", "delta", "confidence"), 0.5),
        **dict.fromkeys(("seed", "pool_size"), 7),
        "model": "PINHOLE",
        "params": (400.0, 400.0, 250.0, 250.0),
        **dict.fromkeys(("width", "height"), 500),
        "keypoints0": points[0],
        "keypoints1": points[1],
        "matches": graph.edges,
        **{
            f"image{side}": rng.integers(0, 256, (40, 40 + 8 * side), np.uint8).repeat(2, 1)
            for side in (0, 1)
        },
        "name0": "a.jpg",
        "name1": "b/c.jpg",
        "errors_deg": np.linspace(0.0, 40.0, 24),
        "thresholds": (5, 10, 20),
    }


ODD = (
    *(None, True, 0, -1, 2**40, 2**70, 0.0, -0.5, 1e-300, 1e308, float("nan"), float("inf"), 1j),
    *("", "auto", "\n", "cm", b"x", [], {}, (), [[]], [[1, 2]], [[1], [2, 3]], object(), {"a": 1}),
    *(np.zeros((0, 2)), np.zeros((24, 2)), np.full((24, 2), np.nan), np.full((24, 2), 1e308)),
    *(
        np.zeros(24, bool),
        np.ones((3, 3)),
        np.zeros((3, 3)),
        np.eye(3) * 1e-320,
        np.zeros((2, 2, 2)),
    ),
    *(np.full((24, 2), 1e-320), np.array(["a"] * 24), np.arange(48).reshape(24, 2)),
    *("../a.jpg", "/a.jpg", "a/../b.jpg", "a\0b", "a b\nc", "=a.jpg", "\udc80", "x" * 300, "a.jpg"),
    *(
        np.zeros((1, 1), np.uint8),
        np.zeros((40, 0)),
        np.full((40, 40, 4), 300),
        np.ones((40, 40, 3)),
    ),
)


def _call(function: Callable[..., Any], *names: str) -> Target:
    """Call with sound arguments, of which the bytes replace some by odd ones or change entries."""

    def target(data: bytes) -> object:
        arguments = {name: _scene()[name] for name in names}
        for name, kind, place in zip(names, data[::2], data[1::2], strict=False):
            if kind >= 128:
                arguments[name] = ODD[kind % len(ODD)]
            elif kind >= 64 and isinstance(arguments[name], np.ndarray):
                changed = arguments[name].copy()
                value = (0.0, -1.0, 1e9, 1e154, 1e308, 1e-308)[kind % 6]
                if changed.dtype.kind == "f" or abs(value) < 2:
                    changed.flat[place % changed.size] = value
                arguments[name] = changed
        return function(**arguments)

    return target


def _check(result: object) -> None:
    """Raise AssertionError for a result that contradicts itself."""
    for found in result if isinstance(result, list) else [result]:
        if isinstance(found, manymatch.Estimate):
            assert found.success == (found.failure == "")
            assert found.cardinality == len(found.matches) <= found.num_inliers
            assert found.success or not found.num_inliers
            assert np.isfinite([found.hcm, found.worst_pooled]).all()
            for array in (found.model, found.match_probability):
                assert not isinstance(array, np.ndarray) or np.isfinite(array).all()
            json.dumps([found.to_dict(), found.to_row()], allow_nan=False)
        if isinstance(found, manymatch.Score):
            assert np.isfinite(found.hcm)


def _matched(**images: Any) -> object:
    """Match two images with few keypoints; the result must also go into words and JSON."""
    matcher = manymatch.Matcher("classic", longest=80, max_keypoints=60)
    options = _scene()["options"]
    result = matcher.match(**images, options=options)
    json.dumps([str(result), result.to_dict()], allow_nan=False)
    return result.estimate


def _written(name0: Any, name1: Any, **parts: Any) -> object:
    """Write matches in all formats; reading gives the same ones, and only in the folder."""
    pair = io.PairMatches(**parts)
    with tempfile.TemporaryDirectory() as outer:
        folder = Path(outer, "folder")
        folder.mkdir()
        io.write_matches_npz(folder / "a.npz", **parts)
        again = [io.read_matches_npz(folder / "a.npz").matches]
        try:
            files = (folder / "features.h5", folder / "matches.h5")
            with io.HlocWriter(*files) as hloc, io.ColmapWriter(folder) as colmap:
                hloc.add(name0, name1, pair)
                colmap.add(name0, name1, pair)
            again.append(io.read_hloc(*files[::-1], name0, name1).edges)
        finally:
            assert [path.name for path in Path(outer).iterdir()] == ["folder"]
    for matches in again:
        assert sorted(matches.tolist()) == sorted(pair.matches.tolist())
    return pair


_PAIR = ("graph", "camera0", "camera1", "method", "options")
READERS: dict[str, Target] = {
    "load_graph_npz": _file("a.npz", io.load_graph),
    "read_associations_csv": _file("a.csv", io.read_associations_csv),
    "read_matches_npz": _file("a.npz", io.read_matches_npz),
    "read_matches": _file(RUN, lambda path: manymatch.read_matches(path.parent)),
    "read_superglue": _file("a.npz", io.read_superglue),
    "read_hloc": _file("a.h5", lambda path: io.read_hloc(path, path, "a.jpg", "b.jpg")),
    "read_cameras_text": _file("cameras.txt", io.read_cameras),
    "read_cameras_binary": _file("cameras.bin", io.read_cameras),
    "read_images_text": _file("images.txt", io.read_images),
    "read_images_binary": _file("images.bin", io.read_images),
    "read_pairs": _file("pairs.txt", lambda path: read_pairs(path, path.parent)),
    "load_image": _file("a.png", io.load_image),
    "exif_focal": _file("a.jpg", io.exif_focal),
    "config_toml": _file("a.toml", manymatch.MatcherConfig.load),
    "set_toml": _file("a.toml", read_set_file),
    "read_run": _file(RUN, lambda path: read_run(path.parent)),
    "weights_safetensors": _file("a.safetensors", load_state),
    "weights_pth": _file("a.pth", load_state),
    "pickle": unpickle,
    "pickled_index": _file("a.npz", lambda path: read_index(path, "an index", ["a"])),
}
FUNCTIONS: dict[str, Target] = {
    "AssociationGraph": _call(
        manymatch.AssociationGraph, "points0", "points1", "edges", "similarity", "rank"
    ),
    "Camera": _call(manymatch.Camera, "model", "width", "height", "params"),
    "RelativePose": _call(manymatch.RelativePose, "R", "t"),
    "Options": _call(
        manymatch.Options, "threshold_px", "q", "delta", "confidence", "seed", "pool_size"
    ),
    "associate": _call(manymatch.associate, "desc0", "desc1", "k"),
    "candidates": _call(
        manymatch.candidates,
        "points0",
        "points1",
        "desc0",
        "desc1",
        "size0",
        "size1",
        "k",
        "method",
    ),
    "gms_filter": _call(manymatch.gms_filter, "graph", "size0", "size1"),
    "merge_coincident": _call(manymatch.merge_coincident, "graph", "tolerance_px"),
    "estimate_relative_pose": _call(manymatch.estimate_relative_pose, *_PAIR),
    "estimate_many": _call(manymatch.estimate_many, "problems", "method", "options"),
    "estimate_points": _call(
        lambda points0, points1, K, method: manymatch.estimate_relative_pose(
            manymatch.AssociationGraph.from_matches(points0, points1),
            K,
            K,
            method,
            _scene()["options"],
        ),
        *("points0", "points1", "K", "method"),
    ),
    "homography_points": _call(
        lambda points0, points1, method: manymatch.estimate_homography(
            manymatch.AssociationGraph.from_matches(points0, points1), method, _scene()["options"]
        ),
        *("points0", "points1", "method"),
    ),
    "estimate_homography": _call(manymatch.estimate_homography, "graph", "method", "options"),
    "clouds": _call(
        lambda cloud0, cloud1, threshold, method: [
            estimate(
                manymatch.AssociationGraph.from_matches(cloud0, cloud1),
                threshold,
                method,
                _scene()["options"],
            )
            for estimate in (manymatch.estimate_rigid_transform, manymatch.estimate_similarity)
        ],
        *("cloud0", "cloud1", "threshold", "method"),
    ),
    "estimate_absolute_pose": _call(
        lambda points0, cloud0, K, method: manymatch.estimate_absolute_pose(
            manymatch.AssociationGraph.from_matches(points0, cloud0),
            K,
            method,
            _scene()["options"],
        ),
        *("points0", "cloud0", "K", "method"),
    ),
    "compat_poselib": _call(
        lambda points0, points1, K, edges, opt: compat.poselib.estimate_relative_pose(
            points0, points1, K, K, opt, edges=edges
        ),
        *("points0", "points1", "K", "edges", "opt"),
    ),
    "compat_pycolmap": _call(
        lambda points0, points1, edges, rank: compat.pycolmap.estimate_homography_matrix(
            points0, points1, {"max_num_trials": 40}, edges=edges, rank=rank
        ),
        *("points0", "points1", "edges", "rank"),
    ),
    "compat_cv2": _call(
        lambda points0, points1, K, camera0, seed, edges: compat.cv2.findEssentialMat(
            points0, points1, K, None, camera0, None, 8, 0.99, 1.0, seed, edges=edges
        ),
        *("points0", "points1", "K", "camera0", "seed", "edges"),
    ),
    "score_pose": _call(manymatch.score_pose, "graph", "camera0", "camera1", "pose", "options"),
    "assess": _call(manymatch.assess, "estimate"),
    "match": _call(_matched, "image0", "image1"),
    "writers": _call(_written, "name0", "name1", "keypoints0", "keypoints1", "matches"),
    "pose_error_deg": _call(
        lambda pose, R, t: manymatch.pose_error_deg(pose, R, t), "pose", "R", "t"
    ),
    "pose_auc": _call(manymatch.pose_auc, "errors_deg", "thresholds"),
    "bootstrap_interval": _call(
        lambda errors_deg: bootstrap_interval(errors_deg, np.mean),
        "errors_deg",
    ),
}
TARGETS = {**READERS, **FUNCTIONS}


def run(name: str, data: bytes) -> None:
    """Run a target on bytes; raises for every outcome that is not allowed."""
    try:
        _check(TARGETS[name](data))
    except (ValueError, ModuleNotFoundError) as refused:
        sentence = str(refused)
        if not sentence or "\n" in sentence:
            raise AssertionError(f"not one sentence: {sentence!r}") from refused
