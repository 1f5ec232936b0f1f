"""COLMAP's text model files, record by record.

Whatever is wrong raises `ValueError` with the reason alone, which names the line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from manymatch.io._colmap_records import CameraRecord, ImageRecord

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

_CAMERA = "CAMERA_ID MODEL WIDTH HEIGHT PARAMS[]"
_IMAGE = "IMAGE_ID QW QX QY QZ TX TY TZ CAMERA_ID NAME"


def cameras(file: BinaryIO) -> Iterator[CameraRecord]:
    """Read the records of a ``cameras.txt``."""
    for number, line in _lines(file):
        if not line or line.startswith("#"):
            continue
        words = line.split()
        try:
            camera_id, width, height = int(words[0]), int(words[2]), int(words[3])
            params = tuple(map(float, words[4:]))
        except (ValueError, IndexError):
            raise ValueError(f"line {number} is not {_CAMERA}") from None
        if min(camera_id, width, height) < 0:
            raise ValueError(f"line {number} has a negative id or size")
        yield CameraRecord(camera_id, words[1], width, height, params)


def images(file: BinaryIO) -> Iterator[ImageRecord]:
    """Read the records of an ``images.txt``: two lines each, the second of observed points."""
    lines = _lines(file)
    for number, line in lines:
        if not line or line.startswith("#"):
            continue
        # A name may have spaces, so it is all that is left of the line.
        words = line.split(maxsplit=9)
        try:
            pose, camera_id, name = tuple(map(float, words[1:8])), int(words[8]), words[9]
        except (ValueError, IndexError):
            raise ValueError(f"line {number} is not {_IMAGE}") from None
        # The line of points is empty for an image without any, so it cannot be told by its look.
        below, points = next(lines, (number + 1, ""))
        if len(points.split()) % 3:
            raise ValueError(f"line {below} is not a list of POINTS2D[] as (X, Y, POINT3D_ID)")
        yield ImageRecord(name, camera_id, pose[:4], pose[4:])


def _lines(file: BinaryIO) -> Iterator[tuple[int, str]]:
    """Lines from number 1 without the space around them; what is no text raises."""
    for number, line in enumerate(file, 1):
        if b"\0" in line:
            raise ValueError(f"line {number} is no text")
        text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        yield number, text.decode("utf-8", "surrogateescape").strip()
