"""NAVI-Multi and NAVI-Wild: photographs of objects with cameras, depth and masks."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from manymatch.geometry.camera import Camera
from manymatch.io.files import as_path, read_bytes, unreadable
from manymatch.io.pairs import Pair
from manymatch_lab.checks import FloatArray, float_array, integer, real
from manymatch_lab.datasets import loading
from manymatch_lab.datasets.dataset import Dataset, DepthView, Layout, published

BINS = {"0-40": (0.0, 40.0), "40-80": (40.0, 80.0), "80-120": (80.0, 120.0)}
COLUMNS = (
    "image_1",
    "image_2",
    "angular_distance_degrees",
    "image_1_height",
    "image_1_width",
    "image_2_height",
    "image_2_width",
)
_WANT, _ANNOTATIONS = "a NAVI pair list", "NAVI's annotations"
_MILLIMETRES = 1000.0
#: Metres times the numbers of a depth file, which hold inverse depth.
INVERSE_DEPTH = 655.35


def layout(name: str) -> Layout:
    """Files of one of the three sets."""
    return next(info.layout for info in INFOS if info.name == name)


def load(name: str, root: object = None, *, splits: object = None) -> Dataset:
    """Read the three lists of a split and the annotations of their images.

    Parameters
    ----------
    name : str
        "navi-multi", "navi-wild" or "navi-wild-diagnostic".
    root : path
        Folder of the objects.
    splits : path, optional
        Folder with ``estimation`` and ``correspondence``; else they are looked for in
        ``splits/navi``, ``splits`` and the root itself, and in ``splits/navi`` beside it.
    """
    folder, _ = layout(name).locate(root, name)
    lists = _lists_folder(name, folder, splits)
    annotations = Annotations(folder)
    files = [part.places[0] for part in layout(name).parts[-len(BINS) :]]
    pairs = [
        pair
        for bin_name, file in zip(BINS, files, strict=True)
        for pair in _read_list(lists / file, bin_name, annotations)
    ]
    paper = loading.paper_list(name, [lists / file for file in files])
    which = "the paper's lists" if paper else "other lists than the paper's"
    notes = (
        f"{len(pairs):,} pairs of {len({pair.scene for pair in pairs})} objects from {lists} "
        f"({which}, by their SHA-256)",
        "seeds restart in each of the three lists; the AUC is that of all bins together",
        "principal points are the images' centres, half a pixel less than NAVI's w/2, h/2, "
        "as pixel centres are whole numbers here",
    )
    title = next(info.title for info in INFOS if info.name == name)
    about: Any = {"depth": _Depth(annotations), "notes": notes, "paper_list": paper}
    return Dataset(name, title, tuple(pairs), **about)


@dataclasses.dataclass(frozen=True)
class _Depth:
    """Depth of a pair's images; a class, so that other processes can be given it."""

    annotations: Annotations

    def __call__(self, pair: Pair, side: int) -> DepthView:
        return self.annotations.depth((pair.name0, pair.name1)[side])


def _lists_folder(name: str, folder: Path, splits: object) -> Path:
    """Find the folder of the first list; the other lists must be in it too."""
    home = folder if splits is None else as_path(splits, "splits")
    option = "root" if splits is None else "splits"
    first, *others = layout(name).parts[-len(BINS) :]
    path = first.find(home)
    if path is None:
        raise ValueError(f"{option} must have the list {first.where}, got {str(home)!r} without it")
    for part in others:
        file = path.with_name(part.places[0])
        if not file.is_file():
            raise ValueError(f"{path.parent} must have the list {file.name}, got the others only")
    return path.parent


def _read_list(path: Path, bin_name: str, annotations: Annotations) -> list[Pair]:
    header, rows = loading.read_csv(path, _WANT)
    for column in COLUMNS:
        if column not in header:
            raise unreadable(path, _WANT, f"it lacks the column {column}")
    pairs: list[Pair] = []
    for line, row in rows:
        fields = dict(zip(header, row, strict=True))
        try:
            pairs.append(_pair(fields, bin_name, len(pairs) + 1, annotations))
        except ValueError as error:
            raise unreadable(path, _WANT, f"line {line}: {error}") from error
    if not pairs:
        raise unreadable(path, _WANT, "it has no pair")
    return pairs


def _pair(row: dict[str, str], bin_name: str, index: int, annotations: Annotations) -> Pair:
    angle = float(row["angular_distance_degrees"])
    real(angle, "angular_distance_degrees", 0.0, 180.0, closed=True)
    low, high = BINS[bin_name]
    if not low <= angle < high:
        raise ValueError(f"the angle must be in [{low:g}, {high:g}), got {angle:g}")
    names = row["image_1"], row["image_2"]
    for name in names:
        if ".." in PurePosixPath(name).parts or len(PurePosixPath(name).parts) < 3:
            raise ValueError(f"an image must be <object>/<scene>/images/<file>, got {name!r}")
    views = [annotations.image(name) for name in names]
    for side, view in enumerate(views, 1):
        given = row[f"image_{side}_height"], row[f"image_{side}_width"]
        if given != (str(view.height), str(view.width)):
            raise ValueError(
                f"image_{side} must be {view.height} x {view.width} (height x width) as the "
                f"annotations say, got {given[0]} x {given[1]}"
            )
    pose = loading.relative_pose(views[0].to_camera, views[1].to_camera, "the pose")
    extra = {"bin": bin_name, "angle_deg": angle, "seed_index": index}
    files = annotations.root / names[0], annotations.root / names[1]
    cameras = views[0].camera, views[1].camera
    scene = PurePosixPath(names[0]).parts[0]
    return Pair(*names, *files, *cameras, *pose, scene=scene, extra=extra)


@dataclasses.dataclass(frozen=True, eq=False)
class Annotation:
    """One image: its size in pixels, focal length in pixels of that size, and pose.

    `to_camera` (4, 4) maps object coordinates to camera coordinates, in metres.
    """

    height: int
    width: int
    focal: float
    to_camera: FloatArray

    @property
    def camera(self) -> Camera:
        """Pinhole camera with the principal point in the middle of the image.

        NAVI puts it at (width / 2, height / 2) where pixels have their edges at whole numbers;
        with pixel centres at whole numbers that is half a pixel less.
        """
        centre = (self.width - 1) / 2, (self.height - 1) / 2
        params = (self.focal, self.focal, *centre)
        return Camera("PINHOLE", self.width, self.height, params)


def quaternion_matrix(q: FloatArray) -> FloatArray:
    """Rotation matrix (3, 3) of a quaternion (w, x, y, z) of any length but zero."""
    return np.asarray(Rotation.from_quat(np.roll(q, -1)).as_matrix())


def decode_depth(raw: NDArray[Any]) -> NDArray[np.float32]:
    """Turn NAVI's 16-bit inverse depth into metres, NaN where it is unknown (0)."""
    metres = INVERSE_DEPTH / np.maximum(raw, 1).astype(np.float64)
    return np.where(raw != 0, metres, np.nan).astype(np.float32)


class Annotations:
    """Annotations below one root, read scene by scene when they are asked for."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._scenes: dict[str, dict[str, dict[str, Any]]] = {}
        self._images: dict[str, Annotation] = {}

    def scene(self, folder: str) -> dict[str, dict[str, Any]]:
        """Return the records of a folder such as "duck/wild_set", by file name."""
        if folder not in self._scenes:
            path = self.root / folder / "annotations.json"
            data = read_bytes(path, _ANNOTATIONS)
            try:
                records = json.loads(data)
                found = {str(record["filename"]): record for record in records}
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                reason = f"it is not a list of images: {type(error).__name__} {error}"
                raise unreadable(path, _ANNOTATIONS, reason) from error
            if len(found) != len(records):
                raise unreadable(path, _ANNOTATIONS, "it has a file name twice")
            self._scenes[folder] = found
        return self._scenes[folder]

    def image(self, name: str) -> Annotation:
        """Return the annotation of an image by its name below the root."""
        if name not in self._images:
            folder = str(PurePosixPath(name).parent.parent)
            record = self.scene(folder).get(PurePosixPath(name).name)
            path = self.root / folder / "annotations.json"
            if record is None:
                raise unreadable(path, _ANNOTATIONS, f"it lacks the image {name}")
            try:
                self._images[name] = _parse(record)
            except (ValueError, TypeError, KeyError) as error:
                words = f"lacks {error}" if isinstance(error, KeyError) else str(error)
                raise unreadable(path, _ANNOTATIONS, f"image {name}: {words}") from error
        return self._images[name]

    def depth(self, name: str) -> DepthView:
        """Depth of an image inside its object's mask; the common frame is the object's."""
        annotation = self.image(name)
        pure = PurePosixPath(name)
        scene = self.root / pure.parent.parent
        path = scene / "depth" / f"{pure.stem}.png"
        raw = loading.read_png(path, "NAVI's 16-bit depth")
        if raw.shape != (annotation.height, annotation.width):
            size = f"{annotation.width} x {annotation.height} pixels large"
            reason = f"it is {raw.shape[1]} x {raw.shape[0]}, the image {size}"
            raise unreadable(path, "NAVI's 16-bit depth", reason)
        mask_path = scene / "masks" / f"{pure.stem}.png"
        mask = loading.read_png(mask_path, "NAVI's mask") != 0
        if mask.shape != raw.shape:
            size = f"{mask.shape[1]} x {mask.shape[0]}"
            raise unreadable(mask_path, "NAVI's mask", f"it is {size} pixels large, unlike depth")
        to_common = loading.rigid_inverse(annotation.to_camera)
        return DepthView(decode_depth(raw), mask, annotation.camera, to_common)


def _parse(record: dict[str, Any]) -> Annotation:
    height, width = record["image_size"]
    camera = record["camera"]
    q = float_array(camera["q"], "q", "a quaternion of four numbers", (4,))
    if not q.any():
        raise ValueError("q must be a quaternion other than zero, got four zeros")
    to_camera = np.eye(4)
    to_camera[:3, :3] = quaternion_matrix(q)
    to_camera[:3, 3] = float_array(camera["t"], "t", "three numbers", (3,)) / _MILLIMETRES
    return Annotation(
        height=integer(height, "image_size", 1),
        width=integer(width, "image_size", 1),
        focal=real(camera["focal_length"], "focal_length", 0.0),
        to_camera=to_camera,
    )


INFOS = published("navi", load)
