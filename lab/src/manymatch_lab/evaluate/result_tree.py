"""The result tree of the paper's code: CSV files of associations and of poses, as posed graphs.

``<root>/<group>/<subset>/pose_intrinsics.csv`` has cameras and true poses by the number of a pair,
and ``matching_NNN.csv`` in a folder ``progressive_k<K>`` below has the candidates of one. Pixels
and cameras are those of the resized images.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from manymatch.geometry.camera import Camera
from manymatch.graph import AssociationGraph
from manymatch.io.files import as_folder, as_path, read_bytes, reading
from manymatch_lab.checks import FloatArray, IndexArray, integer, real
from manymatch_lab.datasets.loading import read_csv, sha256
from manymatch_lab.datasets.metu import opencv_camera
from manymatch_lab.datasets.navi import BINS
from manymatch_lab.evaluate.posed_graph import PosedGraph, write_posed_graph

#: Sets of the paper and their bins, by group and subset.
SUBSETS: dict[tuple[str, str], tuple[str, str]] = {
    ("scannet_resized", "scannet_test_pairs_with_gt"): ("scannet1500", ""),
    ("megadepth_resized", "test_1500"): ("megadepth1500", ""),
    **{("NAVI_resized", f"multiview_{name}"): ("navi-multi", name) for name in BINS},
    **{("NAVI_wild", f"wildset_{name}"): ("navi-wild", name) for name in BINS},
    ("METU_VisTIR_resized", "cloudy_cloudy"): ("metu-cc", ""),
    ("METU_VisTIR_resized", "cloudy_sunny"): ("metu-cs", ""),
}
#: Representations of the paper by the folder of their associations.
METHODS = {
    "combined_interpolate_v3/layer19/debias_svd200": "dinov3",
    "combined_interpolate_v3_q1/layer19/debias_svd200": "dinov3",
    "combined_interpolate_dinov2_vitl14_reg/layer24/debias_svd0": "dinov2",
}
_POSES, _WANT = "pose_intrinsics.csv", "a CSV file of the paper's result tree"
_MATCHING = re.compile(r"matching_(\d+)\.csv")
_PROGRESSIVE = re.compile(r"progressive_k(\d+)")
_CAMERA = ("fx", "fy", "cx", "cy")
# Columns of the associations, each with the names that the paper's code reads.
_INDEX = (("idx1", "left_idx", "feature_idx1", "feature1"),
          ("idx2", "right_idx", "feature_idx2", "feature2"))  # fmt: skip
_SIMILARITY, _RANK, _PRIOR = ("similarity", "sim", "score"), ("k_first", "k"), ("prob",)


def import_tree(root: object, out: object, method: str | None = None) -> list[dict[str, Any]]:
    """Write the candidates of a result tree as posed graphs, in ``out/<representation>/<set>``.

    Of each folder of associations the largest K is taken, without the motion filter, which the
    experiments apply themselves. `method` chooses one of several folders, such as
    ``combined_interpolate_v3/layer19/debias_svd200``. Returns one entry a set: representation, set,
    number of pairs and of candidates.
    """
    tree, target = as_folder(root, "tree"), as_path(out, "out")
    jobs: dict[tuple[str, str], list[tuple[str, Path, Path]]] = {}
    origins: dict[str, set[str]] = {}
    depths = ("", "*/", "*/*/")
    for poses in sorted(path for depth in depths for path in tree.glob(depth + _POSES)):
        subset = (poses.parent.parent.name, poses.parent.name)
        name, bin_name = SUBSETS.get(subset, (poses.parent.name, ""))
        for found, folder in _associations(poses.parent, method):
            representation = METHODS.get(found, found.replace("/", "-") or "tree")
            jobs.setdefault((representation, name), []).append((bin_name, poses, folder))
            origins.setdefault(representation, set()).add(found)
    if not jobs:
        raise ValueError(
            f"tree must have {_POSES} and folders progressive_k<K> of matching_<N>.csv below, got "
            f"{str(tree)!r}{'' if method is None else f' without any in {method}'}"
        )
    for representation, several in origins.items():
        if len(several) > 1:
            names = ", ".join(sorted(several))
            raise ValueError(f"method must be one of {names}, which all are {representation}")
    entries = []
    for (representation, name), subsets in jobs.items():
        place = target / representation / name
        place.mkdir(parents=True, exist_ok=True)
        edges = []
        for bin_name, poses, folder in subsets:
            for posed in _posed_graphs(poses, folder, bin_name):
                label = f"{bin_name}_{posed.seed_index:06d}".lstrip("_")
                write_posed_graph(place / f"{label}.npz", posed, with_seed=True)
                edges.append(posed.graph.num_edges)
        about = {"representation": representation, "set": name, "pairs": len(edges)}
        entries.append({**about, "median_edges": float(np.median(edges)), "folder": str(place)})
    return entries


def _associations(subset: Path, method: str | None) -> Iterator[tuple[str, Path]]:
    """Go through the folders of unfiltered associations of a subset: method, and the largest K."""
    largest: dict[Path, tuple[int, Path]] = {}
    for folder in subset.rglob("progressive_k*"):
        number = _PROGRESSIVE.fullmatch(folder.name)
        if number and folder.is_dir():
            found = int(number[1]), folder
            largest[folder.parent] = max(found, largest.get(folder.parent, found))
    for parent, (_, folder) in sorted(largest.items()):
        name = parent.relative_to(subset).as_posix()
        if method in (None, name):
            yield name, folder


def _posed_graphs(poses: Path, folder: Path, bin_name: str) -> Iterator[PosedGraph]:
    """Read the pairs of a subset, each with the candidates of the file of its number."""
    _check_manifests(poses, folder)
    header, rows = read_csv(poses, _WANT)
    files = {int(m[1]): path for path in folder.iterdir() if (m := _MATCHING.fullmatch(path.name))}
    seen: set[int] = set()
    for _, row in rows:
        with reading(poses, _WANT, ValueError, KeyError):
            values = dict(zip(header, row, strict=True))
            number = integer(int(values["pair_idx"]), "pair_idx", 1)
            if number in seen:
                raise ValueError(f"it has the pair {number} twice")
            seen.add(number)
            R = Rotation.from_quat(_floats(values, ("qx", "qy", "qz", "qw"))).as_matrix()
            t = _floats(values, ("tx", "ty", "tz"))
            cameras = (_camera(values, 1), _camera(values, 2))
        if number not in files:
            raise ValueError(
                f"{folder} must have matching_{number:03d}.csv, as {poses.name} has it"
            )
        graph = _graph(files[number])
        yield PosedGraph(
            f"{poses.parent.name}/{number}-0",
            f"{poses.parent.name}/{number}-1",
            graph,
            *cameras,
            _size(graph.points0, cameras[0]),
            _size(graph.points1, cameras[1]),
            R,
            t,
            number,
            scene=poses.parent.name,
            bin=bin_name,
        )


def _size(points: FloatArray, camera: Camera) -> tuple[int, int]:
    """Bound the size of an image, which the tree does not say, by its keypoints and its centre."""
    edge = np.maximum(points.max(axis=0, initial=0.0), (2.0 * camera.cx, 2.0 * camera.cy))
    width, height = np.ceil(edge).astype(int).tolist()
    return width + 1, height + 1


def _camera(values: dict[str, str], side: int) -> Camera:
    fx, fy, cx, cy = (
        real(float(values.get(f"{n}{side}") or values[f"f{side}"]), f"{n}{side}", -1e6, 1e6)
        for n in _CAMERA
    )
    text = values.get(f"dist{side - 1}_coeffs") or values.get(f"distortion_cam{side}") or ""
    coefficients = [float(part) for part in text.split(",") if part.strip()]
    return opencv_camera([[fx, 0.0, cx], [0.0, fy, cy], [0.0, 0.0, 1.0]], coefficients)


def _graph(path: Path) -> AssociationGraph:
    """Read the candidates of a pair, in the order of the file."""
    header, lines = read_csv(path, _WANT)
    rows = [row for _, row in lines]
    with reading(path, _WANT, ValueError):
        table = np.array(rows, dtype=np.float64).reshape(len(rows), len(header))
        if not np.isfinite(table).all():
            raise ValueError("it has a number that is not finite")

        def column(names: Sequence[str]) -> FloatArray | None:
            at = next((header.index(name) for name in names if name in header), None)
            return None if at is None else table[:, at]

        points0, left = _keypoints(column, 1)
        points1, right = _keypoints(column, 2)
        rank, similarity = column(_RANK), column(_SIMILARITY)
        return AssociationGraph(
            points0,
            points1,
            np.column_stack([left, right]),
            None if similarity is None else similarity.astype(np.float32),
            np.ones(len(table), np.int64) if rank is None else rank.astype(np.int64),
            prior=column(_PRIOR),
        )


def _keypoints(
    column: Callable[[Sequence[str]], FloatArray | None], side: int
) -> tuple[FloatArray, IndexArray]:
    """Return the keypoints of one side, and for every edge which it has."""
    names = _INDEX[side - 1]
    index, x, y = column(names), column([f"x{side}"]), column([f"y{side}"])
    if index is None or x is None or y is None:
        raise ValueError(f"it lacks the columns {names[1]}, x{side}, y{side}")
    _, first, compact = np.unique(index, return_index=True, return_inverse=True)
    return np.column_stack([x, y])[first], compact


def _floats(values: dict[str, str], names: Sequence[str]) -> FloatArray:
    return np.array([real(float(values[name]), name, -1e9, 1e9) for name in names])


def _check_manifests(poses: Path, folder: Path) -> None:
    """Refuse poses and associations that their manifests say are of different lists."""
    bound, of_folder = (
        poses.with_name("pose_intrinsics_manifest.json"),
        folder / "association_manifest.json",
    )
    if not bound.is_file():
        return
    with reading(bound, "a manifest", ValueError, KeyError, TypeError):
        first = json.loads(read_bytes(bound, "a manifest"))
        if first["pose_intrinsics_sha256"] != sha256(poses):
            raise ValueError(f"it is of another {poses.name}")
        if of_folder.is_file():
            second = json.loads(read_bytes(of_folder, "a manifest"))
            if first["pair_file_sha256"] != second["pair_file_sha256"]:
                raise ValueError(f"it is of another list of pairs than {of_folder}")
