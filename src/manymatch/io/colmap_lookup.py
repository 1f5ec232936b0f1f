"""The camera of one image, looked up in a COLMAP model."""

from __future__ import annotations

import functools
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from manymatch import _files
from manymatch._validate import suggest
from manymatch.io.colmap import (
    CAMERAS,
    ColmapImage,
    camera_records,
    images_of_file,
    model_file,
    to_camera,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Collection

    from manymatch.geometry.camera import Camera


class FoundCamera(NamedTuple):
    """A camera of a model, and how it was found: None for `image` if it is the only one."""

    camera: Camera
    camera_id: int
    image: str | None


def camera_of_image(path: str | os.PathLike[str], image_name: str | os.PathLike[str]) -> Camera:
    """Look up the camera of one image of a COLMAP model.

    Parameters
    ----------
    path
        A model folder, or its ``cameras.txt`` or ``cameras.bin`` beside which the images file is.
    image_name
        Path of the image. Taken is the image of the model with exactly this name; else the one
        whose name, folders included, this path ends with; else the only one with the same file
        name in whatever folder.

    Raises
    ------
    ValueError
        If the model has no such image or several, or anything is wrong with its files.
    """
    images, source = _images_beside(path)
    if images is None:
        reason = f"there is no images{source.suffix} beside it to look up {str(image_name)!r}"
        raise _files.unreadable(source, CAMERAS, reason)
    return _camera_of(source, images, str(image_name)).camera


def find_camera(
    path: str | os.PathLike[str], image_name: str | os.PathLike[str] | None
) -> FoundCamera:
    """Take the only camera of a model or, where it has several, that of an image.

    Parameters
    ----------
    path, image_name
        As in `camera_of_image`; None if the image has no name.
    """
    source = model_file(path, "cameras", CAMERAS)
    records = camera_records(source)
    if len(records) == 1:
        ((camera_id, record),) = records.items()
        return FoundCamera(to_camera(record, source), camera_id, None)
    if not records:
        raise _files.unreadable(source, CAMERAS, "it holds no camera")
    images, source = _images_beside(path)
    if images is None or image_name is None:
        lacking = "an image with a file name" if image_name is None else f"images{source.suffix}"
        reason = f"it holds {len(records)} cameras, and without {lacking} none can be chosen"
        raise _files.unreadable(source, CAMERAS, reason)
    return _camera_of(source, images, str(image_name))


@functools.lru_cache(maxsize=4)
def _images_once(source: Path, modified_ns: int, size: int) -> dict[str, ColmapImage]:
    """Read the images of a file unless that was just done: many pairs look into one model."""
    del modified_ns, size
    return images_of_file(source)


def _images_beside(path: object) -> tuple[dict[str, ColmapImage] | None, Path]:
    """Images of the model that a cameras file belongs to, or None, and the cameras file."""
    source = model_file(path, "cameras", CAMERAS)
    beside = source.with_name(f"images{source.suffix}").absolute()
    if not beside.is_file():
        return None, source
    status = beside.stat()
    return _images_once(beside, status.st_mtime_ns, status.st_size), source


def _camera_of(source: Path, images: dict[str, ColmapImage], image_name: str) -> FoundCamera:
    """Camera of an image of a model whose images are known."""
    try:
        name = _find_name(images, image_name)
    except ValueError as error:
        raise _files.unreadable(source, f"{CAMERAS} with this image", str(error)) from None
    camera_id = images[name].camera_id
    records = camera_records(source)
    if camera_id not in records:
        reason = f"image {name!r} has camera {camera_id}, which it lacks"
        raise _files.unreadable(source, CAMERAS, reason)
    return FoundCamera(to_camera(records[camera_id], source), camera_id, name)


def _find_name(names: Collection[str], image_name: str) -> str:
    """Find an image in a model: by its name, by the end of its path, by its file name."""
    if image_name in names:
        return image_name
    parts = PurePosixPath(Path(image_name).as_posix()).parts
    for length in range(len(parts), 0, -1):
        end = "/".join(parts[-length:])
        if end in names:
            return end
    same = [name for name in names if parts and PurePosixPath(name).name == parts[-1]]
    if len(same) > 1:
        raise ValueError(f"{image_name!r} may be any of {', '.join(map(repr, same[:3]))}")
    if not same:
        raise ValueError(f"it has no image {image_name!r}{suggest(image_name, names)}")
    return same[0]
