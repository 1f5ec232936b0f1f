"""What a COLMAP model file holds, as it stands there: no conversion, no check of values."""

from __future__ import annotations

from typing import NamedTuple

#: COLMAP's camera models by the number that binary files use, with their number of parameters.
_KNOWN = {
    0: ("SIMPLE_PINHOLE", 3),
    1: ("PINHOLE", 4),
    2: ("SIMPLE_RADIAL", 4),
    3: ("RADIAL", 5),
    4: ("OPENCV", 8),
    5: ("OPENCV_FISHEYE", 8),
    6: ("FULL_OPENCV", 12),
    7: ("FOV", 5),
    8: ("SIMPLE_RADIAL_FISHEYE", 4),
    9: ("RADIAL_FISHEYE", 5),
    10: ("THIN_PRISM_FISHEYE", 12),
    11: ("RAD_TAN_THIN_PRISM_FISHEYE", 16),
    12: ("SIMPLE_DIVISION", 4),
    13: ("DIVISION", 5),
    14: ("SIMPLE_FISHEYE", 3),
    15: ("FISHEYE", 4),
    16: ("EUCM", 6),
    17: ("EQUIRECTANGULAR", 2),
}
MODEL_IDS: dict[int, str] = {number: name for number, (name, _) in _KNOWN.items()}
NUM_PARAMS: dict[str, int] = dict(_KNOWN.values())


class CameraRecord(NamedTuple):
    """One camera; pixels are COLMAP's, and a size of 0 means that it is not known."""

    camera_id: int
    model: str
    width: int
    height: int
    params: tuple[float, ...]


class ImageRecord(NamedTuple):
    """One image; quaternion (w, x, y, z) and translation take world to camera coordinates."""

    name: str
    camera_id: int
    quaternion: tuple[float, ...]
    translation: tuple[float, ...]
