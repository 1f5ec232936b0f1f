"""Cameras, poses and points of a COLMAP model, text or binary, read without COLMAP.

COLMAP has the centre of the top-left pixel at (0.5, 0.5). Cameras and pixels are converted when
they are read, so that everything else has it at (0, 0).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import re
import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from manymatch._validate import FloatArray, IndexArray, read_only, suggest
from manymatch.geometry.camera import COLMAP_PIXEL_CENTRE, Camera
from manymatch.geometry.lenses import MODELS
from manymatch.io import files
from manymatch.io.files import PathLike

_WANTS = {
    kind: f"a COLMAP model folder, {kind}.txt or {kind}.bin"
    for kind in ("cameras", "images", "points3D")
}
_CAMERAS = _WANTS["cameras"]
_SUFFIXES = (".bin", ".txt")

#: Number of parameters of COLMAP's camera models, in the order of their numbers in binary files.
NUM_PARAMS = dict(
    (
        *(("SIMPLE_PINHOLE", 3), ("PINHOLE", 4), ("SIMPLE_RADIAL", 4), ("RADIAL", 5)),
        *(("OPENCV", 8), ("OPENCV_FISHEYE", 8), ("FULL_OPENCV", 12), ("FOV", 5)),
        *(("SIMPLE_RADIAL_FISHEYE", 4), ("RADIAL_FISHEYE", 5), ("THIN_PRISM_FISHEYE", 12)),
        *(("RAD_TAN_THIN_PRISM_FISHEYE", 16), ("SIMPLE_DIVISION", 4), ("DIVISION", 5)),
        *(("SIMPLE_FISHEYE", 3), ("FISHEYE", 4), ("EUCM", 6), ("EQUIRECTANGULAR", 2)),
    )
)
_MODEL_NAMES = tuple(NUM_PARAMS)

# Layouts of binary files; an observation is x, y and the number of its point, or -1; of a point
# its number, its place and the length of its track are read.
_COUNT, _CAMERA, _IMAGE, _POINT, _TRACK_BYTES = "<Q", "<IiQQ", "<I7dI", "<q3d11xQ", 8
_OBSERVATION = np.dtype([("pixel", "<f8", 2), ("point", "<i8")])
# Longer than any path that an operating system takes.
_LONGEST_NAME = 4096
_CAMERA_LINE = "CAMERA_ID MODEL WIDTH HEIGHT PARAMS[]"
_IMAGE_LINE = "IMAGE_ID QW QX QY QZ TX TY TZ CAMERA_ID NAME"
_POINT_LINE = "POINT3D_ID X Y Z R G B ERROR TRACK[]"


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class ColmapImage:
    """One image of a COLMAP model: its path below the folder of images, its camera and its pose.

    R (3, 3) and t (3,), in the model's unit of length, map world to camera coordinates,
    ``x_camera = R @ x_world + t``; both are read-only. Where they were asked for, `pixels` (N, 2)
    and `points` (N,) say where the image observes points, and their numbers in the model.
    """

    name: str
    camera_id: int
    R: FloatArray
    t: FloatArray
    pixels: FloatArray | None = None
    points: IndexArray | None = None


class FoundCamera(NamedTuple):
    """A camera of a model, and how it was found: None for `image` if it is the only one."""

    camera: Camera
    camera_id: int
    image: str | None


def read_cameras(path: PathLike) -> dict[int, Camera]:
    """Read all cameras of a COLMAP model, by camera id.

    `path` is a model folder, in which ``cameras.bin`` goes before ``cameras.txt``, or one such
    file. Pixels have the centre of the top-left one at (0, 0). A size of 0 becomes None.
    """
    source = _model_file(path, "cameras")
    found = _records(source, "cameras")
    return {key: _to_camera(key, values, source) for key, values in found.items()}


def check_cameras(path: PathLike) -> None:
    """Check that a COLMAP model has cameras; those that are not used may be of any kind."""
    if not _records(source := _model_file(path, "cameras"), "cameras"):
        raise files.unreadable(source, _CAMERAS, "it holds no camera")


def read_images(path: PathLike, *, observed: bool = False) -> dict[str, ColmapImage]:
    """Read names, camera ids and poses of all images of a COLMAP model, by name.

    `path` is a model folder, in which ``images.bin`` goes before ``images.txt``, or one such file.
    With `observed`, also where they observe points.
    """
    return _records(_model_file(path, "images"), "images", observed=observed)


def read_points(path: PathLike) -> tuple[IndexArray, FloatArray]:
    """Read numbers (P,) and places (P, 3) of all points of a COLMAP model.

    `path` is a model folder, in which ``points3D.bin`` goes before ``points3D.txt``, or one such
    file.
    """
    points = _records(_model_file(path, "points3D"), "points3D")
    places = np.array(list(points.values()), np.float64).reshape(-1, 3)
    if (bad := ~np.isfinite(places).all(axis=1)).any():
        number = list(points)[int(np.argmax(bad))]
        raise files.unreadable(path, _WANTS["points3D"], f"point {number} is not finite")
    return np.array(list(points), np.int64), places


def find_camera(path: PathLike, image_name: PathLike | None) -> FoundCamera:
    """Take the only camera of a model or, where it has several, that of an image.

    `path` is a model folder, or its ``cameras.txt`` or ``cameras.bin`` beside which the images file
    is. Taken is the image of the model with exactly the name `image_name`; else the one whose name,
    folders included, this path ends with; else the only one with the same file name in any folder.
    """
    source = _model_file(path, "cameras")
    cameras, name = _records(source, "cameras"), None
    with files.reading(source, f"{_CAMERAS} with this image", ValueError):
        if not cameras:
            raise ValueError("it holds no camera")
        camera_id = next(iter(cameras))
        if len(cameras) > 1:
            images = _images_beside(source, image_name)
            name = _find_name(images, str(image_name))
            camera_id = images[name].camera_id
            if camera_id not in cameras:
                raise ValueError(f"image {name!r} has camera {camera_id}, which it lacks")
    return FoundCamera(_to_camera(camera_id, cameras[camera_id], source), camera_id, name)


def is_cameras_text(path: Path) -> bool:
    """Tell COLMAP's ``cameras.txt`` from other text: a number, then the name of a model."""
    wrong = (OSError, ValueError, StopIteration)
    with contextlib.suppress(*wrong), files.open_regular(path) as file:
        _, words = next(_words(_lines(file), (int, str, str, str, str), _CAMERA_LINE))
        return bool(words[1][:1].isalpha())
    return False


def _model_file(path: object, kind: str) -> Path:
    """Find the file of a kind in a model folder; a file is taken as it is."""
    source = files.as_path(path)
    with files.reading(source, _WANTS[kind], OSError, ValueError):
        if not source.is_dir():
            if not source.is_file():
                raise FileNotFoundError("there is no such file or folder")
            if source.suffix not in _SUFFIXES:
                raise ValueError("its name does not end in .txt or .bin")
            return source
        for suffix in _SUFFIXES:
            if (source / f"{kind}{suffix}").is_file():
                return source / f"{kind}{suffix}"
        below = sorted(p.parent for p in source.glob(f"*/{kind}.*") if p.suffix in _SUFFIXES)
        hint = f", did you mean {str(below[0])!r}" if below else ""
        raise ValueError(f"it holds no {kind}.bin or {kind}.txt{hint}")


@functools.lru_cache(maxsize=4)
def _images_once(source: Path, modified_ns: int, size: int) -> dict[str, ColmapImage]:
    """Read a file once until it changes: many pairs look into one model."""
    del modified_ns, size
    return _records(source, "images")


def _images_beside(source: Path, image_name: object) -> dict[str, ColmapImage]:
    """Read the images of the model that a file of several cameras belongs to."""
    if image_name is None:
        raise ValueError("it holds several cameras, and the image has no file name to choose by")
    beside = source.with_name(f"images{source.suffix}").absolute()
    if not beside.is_file():
        raise ValueError(f"there is no {beside.name} beside it to look up {str(image_name)!r}")
    status = beside.stat()
    return _images_once(beside, status.st_mtime_ns, status.st_size)


def _find_name(names: Collection[str], image_name: str) -> str:
    """Find an image in a model: by its name, by the end of its path, or by its file name."""
    parts = PurePosixPath(Path(image_name).as_posix()).parts
    for known in (image_name, *("/".join(parts[k:]) for k in range(len(parts)))):
        if known in names:
            return known
    same = [name for name in names if parts and PurePosixPath(name).name == parts[-1]]
    if len(same) > 1:
        raise ValueError(f"{image_name!r} may be any of {', '.join(map(repr, same[:3]))}")
    if not same:
        raise ValueError(f"it has no image {image_name!r}{suggest(image_name, names)}")
    return same[0]


def _records(source: Path, kind: str, **how: bool) -> dict[Any, Any]:
    """Read all entries of a file by id or name; cameras may be of any kind."""
    reader, records = _READERS[kind, source.suffix], dict[Any, Any]()
    wrong = (OSError, ValueError, MemoryError, OverflowError)
    with files.reading(source, _WANTS[kind], *wrong), files.open_regular(source) as file:
        for key, record in reader(file, **how):
            if len(records) == files.limit("records"):
                raise files.too_large("it has more entries", "records")
            if key == "":
                raise ValueError("an image has no name")
            if key in records:
                raise ValueError(f"{key!r:.80} appears twice in its {kind}")
            records[key] = record
    return records


def _to_camera(camera_id: int, values: dict[str, Any], source: Path) -> Camera:
    if values["model"] not in MODELS:
        known = f"of a supported model ({', '.join(MODELS)})"
        reason = f"camera {camera_id} is of model {values['model']:.60}"
        raise files.unreadable(source, f"{_CAMERAS} with cameras {known}", reason)
    try:
        return Camera.from_colmap(values)
    except ValueError as error:
        raise files.unreadable(source, _CAMERAS, f"camera {camera_id}: {error}") from error


def _camera(model: str, width: int, height: int, params: tuple[float, ...]) -> dict[str, Any]:
    """Return one camera as `Camera.from_colmap` takes it; a size of 0 is not known."""
    return {"model": model, "width": width or None, "height": height or None, "params": params}


def _image(
    name: str, camera_id: int, pose: Sequence[float], observed: Any = None
) -> tuple[str, ColmapImage]:
    """Convert one image; its quaternion (w, x, y, z) need not have unit length, as in COLMAP.

    `observed` are pixels (N, 2) and numbers of points (N,), negative for pixels without one.
    """
    q, t = np.array(pose[:4]), np.array(pose[4:])
    largest = float(np.max(np.abs(q)))
    if not (np.isfinite(q).all() and np.isfinite(t).all() and largest > 0.0):
        raise ValueError(f"the pose of {name!r:.80} is not finite or has no rotation")
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
    if observed is None:
        return name, ColmapImage(name, camera_id, read_only(R), read_only(t))
    pixels, points = (np.array(values)[np.array(observed[1]) >= 0] for values in observed)
    if not np.isfinite(pixels).all():
        raise ValueError(f"a pixel of {name!r:.80} is not finite")
    seen = pixels - COLMAP_PIXEL_CENTRE, points.astype(np.int64)
    return name, ColmapImage(name, camera_id, read_only(R), read_only(t), *seen)


def _take(file: BinaryIO, layout: str, what: str) -> tuple[Any, ...]:
    """Read one record of a binary file, which is little-endian."""
    data = file.read(struct.calcsize(layout))
    if len(data) != struct.calcsize(layout):
        raise ValueError(f"it ends within {what}")
    return struct.unpack(layout, data)


def _counted(file: BinaryIO, kind: str) -> Iterator[str]:
    """Go through the records of a binary file, naming each; its last one must end the file."""
    (count,) = _take(file, _COUNT, f"the number of {kind}s")
    for number in range(1, count + 1):
        yield f"the record of {kind} number {number}"
    if file.tell() != files.file_size(file):
        raise ValueError("it does not end with its last record")


def _cameras_binary(file: BinaryIO) -> Iterator[tuple[int, dict[str, Any]]]:
    for what in _counted(file, "camera"):
        camera_id, model_id, width, height = _take(file, _CAMERA, what)
        if not 0 <= model_id < len(_MODEL_NAMES):
            raise ValueError(f"camera {camera_id} has the unknown model number {model_id}")
        model = _MODEL_NAMES[model_id]
        params = _take(file, f"<{NUM_PARAMS[model]}d", what)
        yield camera_id, _camera(model, width, height, params)


def _images_binary(file: BinaryIO, *, observed: bool = False) -> Iterator[tuple[str, ColmapImage]]:
    for what in _counted(file, "image"):
        _, *pose, camera_id = _take(file, _IMAGE, what)
        start = file.tell()
        name, closed, _ = file.read(_LONGEST_NAME).partition(b"\0")
        if not closed:
            raise ValueError(f"the name in {what} does not end")
        file.seek(start + len(name) + 1)
        (points,) = _take(file, _COUNT, what)
        size, seen = points * _OBSERVATION.itemsize, None
        if observed:
            if size > files.file_size(file) - file.tell():
                raise ValueError(f"it ends within {what}")
            rows = np.frombuffer(file.read(size), _OBSERVATION)
            seen = rows["pixel"], rows["point"]
        else:
            file.seek(size, os.SEEK_CUR)
        yield _image(name.decode("utf-8", "surrogateescape"), camera_id, pose, seen)


def _points_binary(file: BinaryIO) -> Iterator[tuple[int, list[float]]]:
    for what in _counted(file, "point"):
        number, *place, track = _take(file, _POINT, what)
        file.seek(track * _TRACK_BYTES, os.SEEK_CUR)
        yield number, place


def _cameras_text(file: BinaryIO) -> Iterator[tuple[int, dict[str, Any]]]:
    kinds = (int, str, int, int, _floats)
    for number, words in _words(_lines(file), kinds, _CAMERA_LINE):
        camera_id, model, width, height, params = words
        if min(camera_id, width, height) < 0:
            raise ValueError(f"line {number} has a negative id or size")
        yield camera_id, _camera(model, width, height, params)


def _images_text(file: BinaryIO, *, observed: bool = False) -> Iterator[tuple[str, ColmapImage]]:
    lines, kinds = _lines(file), (int, *[float] * 7, int, str)  # a name may have spaces
    for number, (_, *pose, camera_id, name) in _words(lines, kinds, _IMAGE_LINE):
        # The next line has the observed points; it is empty for an image without any.
        below, points = next(lines, (number + 1, ""))
        if sum(1 for _ in re.finditer(r"\S+", points)) % 3:
            raise ValueError(f"line {below} is not a list of POINTS2D[] as (X, Y, POINT3D_ID)")
        seen = np.array(points.split(), np.float64).reshape(-1, 3) if observed else None
        yield _image(name, camera_id, pose, None if seen is None else (seen[:, :2], seen[:, 2]))


def _points_text(file: BinaryIO) -> Iterator[tuple[int, list[float]]]:
    for _, (number, *place, _) in _words(_lines(file), (int, *[float] * 3, str), _POINT_LINE):
        yield number, place


def _floats(text: str) -> tuple[float, ...]:
    return tuple(map(float, text.split()))


def _words(
    lines: Iterator[tuple[int, str]], kinds: Sequence[Callable[[str], Any]], want: str
) -> Iterator[tuple[int, list[Any]]]:
    """Read lines of words of some kinds, the last of which is all that is left of the line."""
    for number, line in lines:
        if not line or line.startswith("#"):
            continue
        words = line.split(maxsplit=len(kinds) - 1)
        try:
            values = [kind(word) for kind, word in zip(kinds, words, strict=True)]
        except ValueError:
            raise ValueError(f"line {number} is not {want}") from None
        yield number, values


def _lines(file: BinaryIO) -> Iterator[tuple[int, str]]:
    """Go through lines and their numbers, without the space around them."""
    for number, line in files.read_lines(file, "surrogateescape"):
        if "\0" in line:
            raise ValueError(f"line {number} is not text")
        yield number, line.strip()


_READERS: dict[tuple[str, str], Any] = {
    ("cameras", ".bin"): _cameras_binary,
    ("cameras", ".txt"): _cameras_text,
    ("images", ".bin"): _images_binary,
    ("images", ".txt"): _images_text,
    ("points3D", ".bin"): _points_binary,
    ("points3D", ".txt"): _points_text,
}
