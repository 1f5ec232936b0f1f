"""Any folder with a SuperGlue list of pairs, and depth where there is some."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manymatch.geometry.camera import Camera, as_camera
from manymatch.io.files import as_path, read_bytes, safe_name, unreadable
from manymatch.io.image import image_size
from manymatch.io.pairs import Pair, read_pairs
from manymatch_lab.checks import FloatArray, count, real, refusal
from manymatch_lab.datasets import loading
from manymatch_lab.datasets.dataset import Dataset, DepthView, published, rigid, root_folder

NAME = "folder"
#: Name of a set's own file of settings, and of its list of pairs.
SET_FILE, LIST = "set.toml", "pairs.txt"
# Characters that the name of a set may have.
_LONGEST = 100
_MILLIMETRE = 0.001
_SATURATED = 65535
_WANT_DEPTH = "a 16-bit depth image"


def load(
    root: object = None, pairs: object = None, images: object = None, name: object = None
) -> Dataset:
    """Read the list; pairs need no pose.

    `pairs` and `images` are the list and the folder of the images where they are not where they are
    looked for, as paths from the root; `name` is what results call the set, by default the name of
    the folder.
    """
    folder = root_folder(root, NAME)
    path = list_of(folder) if pairs is None else folder / as_path(pairs, "pairs")
    if images is not None:
        place = folder / as_path(images, "images")
    else:
        place = folder / "images" if (folder / "images").is_dir() else folder
    title = folder.resolve().name or NAME
    if name is not None:
        # It becomes the name of folders and files.
        if not isinstance(name, str) or not name or safe_name(name) != name or len(name) > _LONGEST:
            want = f"at most {_LONGEST} letters, digits and ._+-, with a letter or digit at"
            raise refusal("name", f"{want} either end", name)
        title = name
    elif pairs is not None and path.name != LIST:
        title = safe_name(f"{title}-{path.stem}")
    depths = _DepthFolder(folder) if (folder / "depth").is_dir() else None
    found = []
    for i, pair in enumerate(read_pairs(path, place)):
        extra: dict[str, Any] = {"seed_index": i + 1}
        if depths is not None:
            extra["depth"] = pair.has_truth and depths.has(pair)
        found.append(
            dataclasses.replace(pair, scene=scene_of(pair.name0) or folder.name, extra=extra)
        )
    notes = [f"{count(len(found), 'pair')} from {path}"]
    posed = sum(pair.has_truth for pair in found)
    if posed < len(found):
        notes.append(f"{posed:,} of them with a pose")
    if depths is not None:
        notes.append(f"{sum(pair.extra['depth'] for pair in found):,} of them with depth")
    depth = None if depths is None else depths.view
    return Dataset(NAME, title, tuple(found), depth=depth, notes=tuple(notes))


def scene_of(name: str) -> str:
    """Guess the scene of an image by its name.

    The folder it is in; else what comes before the first number of three or more digits, which
    in most sequences counts the frames. Nothing if there is neither.
    """
    pure = PurePosixPath(name)
    if str(pure.parent) not in (".", "/"):
        return str(pure.parent)
    before, number, _ = re.split(r"(\d{3,}|$)", pure.stem, maxsplit=1)
    return before.strip("_-. ") if number else ""


def list_of(folder: Path) -> Path:
    """Return the list of pairs of a folder: pairs.txt, or else its only text file."""
    if (folder / LIST).is_file():
        return folder / LIST
    texts = sorted(path for path in folder.glob("*.txt") if path.is_file())
    if len(texts) == 1:
        return texts[0]
    given = count(len(texts), "other text file") if texts else "no text file"
    raise ValueError(f"root must have a list {LIST}, got {given} in {str(folder)!r}")


class _DepthFolder:
    """Depth images of a folder, brought into the photographs' cameras."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "depth"
        self.unit = _MILLIMETRE
        self.other: tuple[Camera, FloatArray] | None = None
        path = folder / "cameras.json"
        if not path.is_file():
            return
        try:
            cameras = json.loads(read_bytes(path, "JSON with cameras"))
            self.unit = real(cameras.get("depth_unit_m", _MILLIMETRE), "depth_unit_m", 0.0)
            if "K_depth" in cameras:
                move = rigid(cameras.get("T_depth_to_rgb", np.eye(4).tolist()), "T_depth_to_rgb")
                self.other = as_camera(np.array(cameras["K_depth"]), "K_depth"), move
        except (ValueError, TypeError, AttributeError) as error:
            raise unreadable(path, "JSON with cameras", str(error)) from error

    def _path(self, name: str) -> Path:
        return self.folder / f"{PurePosixPath(name).stem}.png"

    def has(self, pair: Pair) -> bool:
        return self._path(pair.name0).is_file() and self._path(pair.name1).is_file()

    def view(self, pair: Pair, side: int) -> DepthView:
        """Read the depth of one image; the common frame is the first camera's."""
        camera = (pair.camera0, pair.camera1)[side]
        if camera is None or pair.R is None or pair.t is None:
            raise ValueError(f"pair must have cameras and a pose for its depth, got {pair!r}")
        path = self._path((pair.name0, pair.name1)[side])
        raw = loading.read_png(path, _WANT_DEPTH)
        # Both ends of the range stand for "unknown", depending on the sensor.
        depth = np.where((raw > 0) & (raw < _SATURATED), raw * self.unit, np.nan)
        image = (pair.path0, pair.path1)[side]
        size = image_size(image) if image.is_file() else (raw.shape[1], raw.shape[0])
        if self.other is not None:
            depth = register(depth, *self.other, camera, size)
        elif (raw.shape[1], raw.shape[0]) != size:
            reason = f"it is {raw.shape[1]} x {raw.shape[0]}, the image {size[0]} x {size[1]}"
            raise unreadable(path, _WANT_DEPTH, f"{reason} pixels large")
        to_common = np.eye(4)
        if side == 1:
            to_common[:3, :3] = pair.R
            to_common[:3, 3] = pair.t
            to_common = loading.rigid_inverse(to_common)
        return DepthView(depth.astype(np.float32), None, camera, to_common)


def register(
    depth: FloatArray, depth_camera: Camera, move: FloatArray, camera: Camera, size: tuple[int, int]
) -> NDArray[np.float64]:
    """Resample a depth image for another camera.

    Every pixel is put into space, moved by `move` (4, 4) and drawn at the nearest pixel of the
    other image of `size` (width, height); of several the nearest to the camera stays. Pixels that
    nothing falls on are NaN.
    """
    rows, columns = np.nonzero(np.isfinite(depth))
    z = depth[rows, columns]
    ray = depth_camera.unproject(np.stack([columns, rows], axis=1).astype(np.float64))
    points = np.column_stack([ray * z[:, None], z]) @ move[:3, :3].T + move[:3, 3]
    points = points[points[:, 2] > 0.0]
    pixels = np.floor(camera.project(points[:, :2] / points[:, 2:]) + 0.5)
    inside = ((pixels >= 0) & (pixels < size)).all(axis=1)
    where = pixels[inside].astype(np.int64)
    seen = np.full((size[1], size[0]), np.inf)
    np.minimum.at(seen, (where[:, 1], where[:, 0]), points[inside, 2])
    seen[np.isinf(seen)] = np.nan
    return seen


(INFO,) = published(NAME, load)
