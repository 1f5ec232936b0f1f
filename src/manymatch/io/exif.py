"""What a photograph says about the camera that took it."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

from manymatch._files import DAMAGE, as_path
from manymatch.io.image import orientation, require_pillow

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

_SUB_IFD = 0x8769
_FOCAL_LENGTH = 0x920A
_FOCAL_35MM = 0xA405
_PLANE_X, _PLANE_Y, _PLANE_UNIT = 0xA20E, 0xA20F, 0xA210
_EXIF_WIDTH, _EXIF_HEIGHT = 0xA002, 0xA003

# Millimetres per unit of FocalPlaneResolutionUnit; 1 ("none") is taken as inches, the default.
_UNIT_MM: dict[float, float] = {1: 25.4, 2: 25.4, 3: 10.0, 4: 1.0, 5: 0.001}
# Diagonal of a 36 mm x 24 mm frame.
_DIAGONAL_35MM = math.hypot(36.0, 24.0)
# Fields of view along the longer edge of about 1 and 170 degrees: outside, the tags are wrong.
_SHORTEST, _LONGEST = 0.04, 60.0


def exif_focal(path: str | os.PathLike[str]) -> float | None:
    """Focal length from a photograph's EXIF, in pixels of the full image.

    Parameters
    ----------
    path
        An image file.

    Returns
    -------
    float or None
        From the 35 mm equivalent, by the diagonal: ``f35 * diagonal_px / 43.27``; where it is
        absent, from the focal length in millimetres and the resolution of the sensor. None when
        the tags are absent or make no sense, or the file cannot be read. The focal length is the
        same for both axes, so an image that EXIF turns by a quarter keeps it.

    Raises
    ------
    ModuleNotFoundError
        If Pillow is not installed.
    """
    source = as_path(path)
    pillow = require_pillow()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pillow.open(source) as image:
                tags = dict(image.getexif().get_ifd(_SUB_IFD))
                # Tags describe the sensor, so they go with the size before turning. TIFF is
                # turned by Pillow in its size already, and turning twice gives the sensor's.
                size = image.size
                if image.format == "TIFF" and orientation(image) >= 5:
                    size = size[::-1]
    except DAMAGE:
        return None
    except Exception as error:
        if type(error).__name__ != "DecompressionBombError":
            raise
        return None
    for focal in (_from_35mm(tags, size), _from_sensor(tags, size)):
        if focal is not None and _SHORTEST <= focal / max(size) <= _LONGEST:
            return focal
    return None


def _from_35mm(tags: Mapping[int, Any], size: tuple[int, int]) -> float | None:
    """Focal length in pixels by the diagonal, as the standard defines the equivalent."""
    equivalent = _positive(tags.get(_FOCAL_35MM))
    return None if equivalent is None else equivalent * math.hypot(*size) / _DIAGONAL_35MM


def _from_sensor(tags: Mapping[int, Any], size: tuple[int, int]) -> float | None:
    """Focal length in pixels by the density of the sensor's pixels."""
    millimetres = _positive(tags.get(_FOCAL_LENGTH))
    unit = _UNIT_MM.get(_positive(tags.get(_PLANE_UNIT, 2)) or 0)
    if millimetres is None or unit is None:
        return None
    for density, recorded, now in (
        (_PLANE_X, _EXIF_WIDTH, size[0]),
        (_PLANE_Y, _EXIF_HEIGHT, size[1]),
    ):
        per_unit = _positive(tags.get(density))
        if per_unit is not None:
            # The density is that of the image as it was taken, which may have been resized since.
            taken = _positive(tags.get(recorded))
            resized = now / taken if taken is not None else 1.0
            return millimetres * per_unit / unit * resized
    return None


def _positive(value: object) -> float | None:
    """Return a positive finite number, or None for anything else."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):
        return None
    return number if math.isfinite(number) and number > 0.0 else None
