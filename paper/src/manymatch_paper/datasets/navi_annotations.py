"""NAVI's annotations: cameras of the images, depth and masks of the objects."""

from __future__ import annotations

import dataclasses
import json
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._files import read_bytes, unreadable
from manymatch._validate import FloatArray, float_array, integer, real
from manymatch.datasets import loading
from manymatch.datasets.dataset import DepthView
from manymatch.geometry.camera import Camera

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

#: Metres times the numbers of a depth file, which hold inverse depth.
INVERSE_DEPTH = 655.35
_WANT = "NAVI's annotations"
_MILLIMETRES = 1000.0


@dataclasses.dataclass(frozen=True, eq=False)
class Annotation:
    """One image.

    Attributes
    ----------
    height, width : int
        Size in pixels.
    focal : float
        Focal length in pixels of that size.
    to_camera : (4, 4) float64
        Object coordinates to camera coordinates, in metres.
    split : str
        NAVI's own tag, "train" or "val".
    camera_model : str
        Name of the device.
    occluded : bool
        Whether something is before the object.
    """

    height: int
    width: int
    focal: float
    to_camera: FloatArray
    split: str
    camera_model: str
    occluded: bool

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
    w, x, y, z = q / np.linalg.norm(q)
    v = np.array([x, y, z])
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return np.asarray((w * w - v @ v) * np.eye(3) + 2.0 * np.outer(v, v) + 2.0 * w * cross)


def decode_depth(raw: NDArray[Any]) -> NDArray[np.float32]:
    """Turn NAVI's 16-bit inverse depth into metres, NaN where there is none (0)."""
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
            self._scenes[folder] = _read_records(self.root / folder / "annotations.json")
        return self._scenes[folder]

    def image(self, name: str) -> Annotation:
        """Return the annotation of an image by its name below the root."""
        if name not in self._images:
            folder = str(PurePosixPath(name).parent.parent)
            record = self.scene(folder).get(PurePosixPath(name).name)
            path = self.root / folder / "annotations.json"
            if record is None:
                raise unreadable(path, _WANT, f"it lacks the image {name}")
            try:
                self._images[name] = _parse(record)
            except (ValueError, TypeError, KeyError) as error:
                words = f"lacks {error}" if isinstance(error, KeyError) else str(error)
                raise unreadable(path, _WANT, f"image {name}: {words}") from error
        return self._images[name]

    def depth(self, name: str) -> DepthView:
        """Depth of an image inside its object's mask; the common frame is the object's."""
        annotation = self.image(name)
        pure = PurePosixPath(name)
        scene = self.root / pure.parent.parent
        path = scene / "depth" / f"{pure.stem}.png"
        raw = loading.read_png(path, "NAVI's 16-bit depth")
        if raw.shape != (annotation.height, annotation.width):
            raise unreadable(
                path,
                "NAVI's 16-bit depth",
                f"it is {raw.shape[1]} x {raw.shape[0]}, "
                f"the image {annotation.width} x {annotation.height} pixels large",
            )
        mask_path = scene / "masks" / f"{pure.stem}.png"
        mask = loading.read_png(mask_path, "NAVI's mask") != 0
        if mask.shape != raw.shape:
            size = f"{mask.shape[1]} x {mask.shape[0]}"
            raise unreadable(mask_path, "NAVI's mask", f"it is {size} pixels large, unlike depth")
        to_common = loading.rigid_inverse(annotation.to_camera)
        return DepthView(decode_depth(raw), mask, annotation.camera, to_common)


def _read_records(path: Path) -> dict[str, dict[str, Any]]:
    data = read_bytes(path, _WANT)
    try:
        records = json.loads(data)
        found = {str(record["filename"]): record for record in records}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        reason = f"it is no list of images: {type(error).__name__} {error}"
        raise unreadable(path, _WANT, reason) from error
    if len(found) != len(records):
        raise unreadable(path, _WANT, "it has a file name twice")
    return found


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
        split=str(record.get("split", "")),
        camera_model=str(camera.get("camera_model", "")),
        occluded=bool(record.get("occluded", False)),
    )
