"""COLMAP's binary model files, record by record, never trusting what they say about their size.

All numbers are little-endian. Whatever is wrong raises `ValueError` with the reason alone.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

from manymatch.io._colmap_records import MODEL_IDS, NUM_PARAMS, CameraRecord, ImageRecord

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, BinaryIO

_COUNT = struct.Struct("<Q")
_CAMERA = struct.Struct("<IiQQ")
_IMAGE = struct.Struct("<I7dI")
_POINT_BYTES = struct.calcsize("<ddQ")
# Longer than any path that an operating system takes.
_LONGEST_NAME = 4096


class _Cursor:
    """A file that is read from its start to its end; asking for more than there is raises."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.left = os.fstat(file.fileno()).st_size

    def take(self, layout: struct.Struct, what: str) -> tuple[Any, ...]:
        """Read one record."""
        return layout.unpack(self._bytes(layout.size, what))

    def count(self, smallest: int, what: str) -> int:
        """Read a number of records; the file must be long enough for that many."""
        (count,) = self.take(_COUNT, f"the number of {what}")
        if count > self.left // smallest:
            raise ValueError(f"it announces {count} {what} and has only {self.left} bytes for them")
        return int(count)

    def text(self, what: str) -> str:
        """Read text up to its closing zero."""
        data = self._file.read(min(self.left, _LONGEST_NAME))
        end = data.find(b"\0")
        if end < 0:
            raise ValueError(f"{what} does not end")
        self._file.seek(end + 1 - len(data), os.SEEK_CUR)
        self.left -= end + 1
        return data[:end].decode("utf-8", "surrogateescape")

    def skip(self, count: int) -> None:
        """Pass over bytes whose number `count` has checked."""
        self._file.seek(count, os.SEEK_CUR)
        self.left -= count

    def end(self) -> None:
        """Check that nothing is left."""
        if self.left:
            raise ValueError(f"it has {self.left} bytes too many")

    def _bytes(self, count: int, what: str) -> bytes:
        data = self._file.read(count) if count <= self.left else b""
        if len(data) != count:
            raise ValueError(f"it ends within {what}")
        self.left -= count
        return data


def cameras(file: BinaryIO) -> Iterator[CameraRecord]:
    """Read the records of a ``cameras.bin``."""
    cursor = _Cursor(file)
    for number in range(1, cursor.count(_CAMERA.size, "cameras") + 1):
        what = f"the record of camera number {number}"
        camera_id, model_id, width, height = cursor.take(_CAMERA, what)
        if model_id not in MODEL_IDS:
            raise ValueError(f"camera {camera_id} has the unknown model number {model_id}")
        model = MODEL_IDS[model_id]
        params = cursor.take(struct.Struct(f"<{NUM_PARAMS[model]}d"), what)
        yield CameraRecord(camera_id, model, width, height, params)
    cursor.end()


def images(file: BinaryIO) -> Iterator[ImageRecord]:
    """Read the records of an ``images.bin``, passing over the observed points."""
    cursor = _Cursor(file)
    for number in range(1, cursor.count(_IMAGE.size + 1 + _COUNT.size, "images") + 1):
        what = f"the record of image number {number}"
        _, *pose, camera_id = cursor.take(_IMAGE, what)
        name = cursor.text(f"the name of image number {number}")
        cursor.skip(_POINT_BYTES * cursor.count(_POINT_BYTES, f"points in {name!r:.80}"))
        yield ImageRecord(name, camera_id, tuple(pose[:4]), tuple(pose[4:]))
    cursor.end()
