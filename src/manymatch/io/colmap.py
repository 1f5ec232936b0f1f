"""Cameras and poses of a COLMAP model, text or binary, without COLMAP."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from manymatch import _files
from manymatch._validate import FloatArray, read_only
from manymatch.geometry.camera import MODELS, Camera
from manymatch.geometry.pose import RelativePose
from manymatch.io import _colmap_binary, _colmap_text

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import BinaryIO, TypeVar

    from manymatch.io._colmap_records import CameraRecord, ImageRecord

    _Record = TypeVar("_Record", CameraRecord, ImageRecord)

CAMERAS = "a COLMAP model folder, cameras.txt or cameras.bin"
IMAGES = "a COLMAP model folder, images.txt or images.bin"
SUFFIXES = (".bin", ".txt")


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class ColmapImage:
    """One image of a COLMAP model.

    Attributes
    ----------
    name : str
        Path of the image below the model's folder of images.
    camera_id : int
        Its camera in the same model.
    R : (3, 3) float64 ndarray
        Rotation from world to camera coordinates, ``x_camera = R @ x_world + t``; read-only.
    t : (3,) float64 ndarray
        Translation, in the model's unit of length; read-only.
    """

    name: str
    camera_id: int
    R: FloatArray
    t: FloatArray


def read_cameras(path: str | os.PathLike[str]) -> dict[int, Camera]:
    """Read all cameras of a COLMAP model.

    Parameters
    ----------
    path
        A model folder, in which ``cameras.bin`` goes before ``cameras.txt``, or one such file.

    Returns
    -------
    dict of int to Camera
        By camera id. COLMAP has the centre of the top-left pixel at (0.5, 0.5); these cameras
        have it at (0, 0), like everything here. A size of 0 becomes None.

    Raises
    ------
    ValueError
        If there is no such file, it is damaged or something else, or a camera is of a model that
        this package does not have.
    """
    source = model_file(path, "cameras", CAMERAS)
    return {key: to_camera(record, source) for key, record in camera_records(source).items()}


def read_images(path: str | os.PathLike[str]) -> dict[str, ColmapImage]:
    """Read names, camera ids and poses of all images of a COLMAP model.

    Parameters
    ----------
    path
        A model folder, in which ``images.bin`` goes before ``images.txt``, or one such file.

    Returns
    -------
    dict of str to ColmapImage
        By name, in the order of the file. For the pose between two of them see `relative_pose`.

    Raises
    ------
    ValueError
        If there is no such file, it is damaged or something else, or a pose is no pose.
    """
    return images_of_file(model_file(path, "images", IMAGES))


def relative_pose(image0: ColmapImage, image1: ColmapImage) -> RelativePose:
    """Return the pose that maps camera-0 to camera-1 coordinates, ``x1 = R @ x0 + t``, ``|t| = 1``.

    Raises
    ------
    ValueError
        If both images were taken from one place, where t has no direction.
    """
    R = image1.R @ image0.R.T
    return RelativePose(R, image1.t - R @ image0.t)


def is_cameras_text(path: Path) -> bool:
    """Tell COLMAP's ``cameras.txt`` from other text: a number, then the name of a model."""
    try:
        with path.open("rb") as file:
            for line in file:
                words = line.split()
                if words and not words[0].startswith(b"#"):
                    return len(words) > 4 and words[0].isdigit() and words[1][:1].isalpha()
    except (OSError, ValueError):
        return False
    return False


def model_file(path: object, kind: str, want: str) -> Path:
    """Find the file of a kind in a model folder; a file is taken as it is."""
    source = _files.as_path(path)
    try:
        if not source.is_dir():
            if not source.is_file():
                raise _files.unreadable(source, want, "there is no such file or folder")
            if source.suffix not in SUFFIXES:
                raise _files.unreadable(source, want, "its name does not end in .txt or .bin")
            return source
        # A complete pair of files goes before a lone one, which may be left over.
        present = [s for s in SUFFIXES if (source / f"{kind}{s}").is_file()]
        other = "images" if kind == "cameras" else "cameras"
        present.sort(key=lambda s: not (source / f"{other}{s}").is_file())
        if present:
            return source / f"{kind}{present[0]}"
        below = sorted(p.parent for p in source.glob(f"*/{kind}.*") if p.suffix in SUFFIXES)
    except (OSError, ValueError) as error:
        if str(error).startswith("path must"):
            raise
        raise _files.unreadable(source, want, str(error) or type(error).__name__) from error
    hint = f", did you mean {str(below[0])!r}" if below else ""
    raise _files.unreadable(source, want, f"it holds no {kind}.bin or {kind}.txt{hint}")


def _records(
    source: Path, want: str, reader: Callable[[BinaryIO], Iterator[_Record]]
) -> list[_Record]:
    """Read all records of a file."""
    try:
        with source.open("rb") as file:
            return list(reader(file))
    except (OSError, ValueError) as error:
        raise _files.unreadable(source, want, str(error) or type(error).__name__) from error


def camera_records(source: Path) -> dict[int, CameraRecord]:
    """Read the cameras of a file by id, without looking at their parameters."""
    reader = _colmap_binary.cameras if source.suffix == ".bin" else _colmap_text.cameras
    records: dict[int, CameraRecord] = {}
    for record in _records(source, CAMERAS, reader):
        if record.camera_id in records:
            raise _files.unreadable(source, CAMERAS, f"camera {record.camera_id} appears twice")
        records[record.camera_id] = record
    return records


def images_of_file(source: Path) -> dict[str, ColmapImage]:
    """Read the images of a file by name."""
    reader = _colmap_binary.images if source.suffix == ".bin" else _colmap_text.images
    images: dict[str, ColmapImage] = {}
    for record in _records(source, IMAGES, reader):
        if not record.name or record.name in images:
            fault = "appears twice" if record.name else "is empty"
            reason = f"the image name {record.name!r:.80} {fault}"
            raise _files.unreadable(source, IMAGES, reason)
        try:
            images[record.name] = _image(record)
        except ValueError as error:
            raise _files.unreadable(source, IMAGES, str(error)) from error
    return images


def to_camera(record: CameraRecord, source: Path) -> Camera:
    """Convert one camera to this package's pixels."""
    if record.model not in MODELS:
        known = f"of a supported model ({', '.join(MODELS)})"
        reason = f"camera {record.camera_id} is of model {record.model:.60}"
        raise _files.unreadable(source, f"{CAMERAS} with cameras {known}", reason)
    values = {
        "model": record.model,
        "width": record.width or None,
        "height": record.height or None,
        "params": record.params,
    }
    try:
        return Camera.from_colmap(values)
    except ValueError as error:
        reason = f"camera {record.camera_id}: {error}"
        raise _files.unreadable(source, CAMERAS, reason) from error


def _image(record: ImageRecord) -> ColmapImage:
    """Convert one image; its quaternion need not have unit length, as in COLMAP."""
    q, t = np.array(record.quaternion), np.array(record.translation)
    largest = float(np.max(np.abs(q)))
    if not (np.isfinite(q).all() and np.isfinite(t).all() and largest > 0.0):
        raise ValueError(f"the pose of {record.name!r:.80} is not finite or has no rotation")
    # Scaled first, as squares of very large or small entries leave the range of numbers.
    q = q / largest
    w, x, y, z = q / np.linalg.norm(q)
    R = np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )
    return ColmapImage(record.name, record.camera_id, read_only(R), read_only(t))
