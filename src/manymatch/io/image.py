"""Images as 8-bit RGB the right way up, and what EXIF says about the camera that took them."""

from __future__ import annotations

import contextlib
import math
import os
import struct
import sys
import warnings
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._environment import require
from manymatch._files import as_path
from manymatch._validate import describe, integer, refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

#: Largest image that is taken unless the caller allows more; 0.5 GB as RGB, and just below the
#: size at which Pillow refuses by itself.
MAX_PIXELS = 178_000_000

_WANT = "an image file, a Pillow image or an array of shape (H, W) or (H, W, 1, 3 or 4)"
_DTYPES = "uint8, uint16, bool or float in [0, 1]"
_DEEP_MODES = ("I;16", "I;16B", "I;16L", "I;16N", "I", "F")

# What Pillow's readers raise for damaged files. Many of them are plain Python that parses bytes,
# so the types are wide; they are caught around calls of Pillow only.
_PILLOW_ERRORS = (
    OSError,
    ValueError,
    SyntaxError,
    TypeError,
    LookupError,
    EOFError,
    ArithmeticError,
    MemoryError,
    RuntimeError,
    struct.error,
    zlib.error,
)

_ORIENTATION = 0x0112
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


def require_pillow() -> Any:
    """Import Pillow's Image module, or say how to get it."""
    return require("PIL.Image", "reading image files", "images")


class _ReadError(ValueError):
    """Why an image is refused, worded for the user."""


@contextlib.contextmanager
def _decoding(name: str, want: str, given: str) -> Iterator[None]:
    """Turn what Pillow raises into "<name> must be <want>, got <given> (<reason>)"."""
    pillow = require_pillow()
    try:
        # Damaged metadata make Pillow warn about what does not concern the pixels.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (*_PILLOW_ERRORS, pillow.DecompressionBombError) as error:
        if isinstance(error, _ReadError):
            reason = str(error)
        elif isinstance(error, pillow.DecompressionBombError):
            reason = _too_large(MAX_PIXELS)
        elif isinstance(error, sys.modules["PIL"].UnidentifiedImageError):
            reason = "it is in no format that Pillow reads"
        else:
            reason = f"it cannot be decoded: {str(error) or type(error).__name__}"
        raise ValueError(f"{name} must be {want}, got {given} ({reason})") from error


@contextlib.contextmanager
def open_image(
    path: str | os.PathLike[str], name: str = "path", want: str = "an image file"
) -> Iterator[Any]:
    """Open an image file as a Pillow image.

    A `ValueError` "<name> must be <want>, got <path> (<reason>)" is raised for a file that is
    missing, empty or something else, and for whatever Pillow raises in the block for a damaged one.
    The block should hold nothing but calls of Pillow.
    """
    source = as_path(path, name)
    with _decoding(name, want, repr(str(source))):
        absent = _absent(source)
        if absent is not None:
            raise _ReadError(absent)
        with require_pillow().open(source) as image:
            yield image


def load_image(
    source: str | os.PathLike[str] | NDArray[Any] | Any,
    name: str = "image",
    max_pixels: int = MAX_PIXELS,
) -> NDArray[np.uint8]:
    """Read an image as 8-bit RGB.

    Parameters
    ----------
    source : path, ndarray or PIL.Image.Image
        A file in any format that Pillow reads (of several frames the first one), a Pillow image,
        or an array of shape (H, W), (H, W, 1), (H, W, 3) or (H, W, 4), RGB order, of uint8,
        uint16, bool or float in [0, 1].
    name : str
        What errors call it.
    max_pixels : int
        Larger images are refused before they are decoded.

    Returns
    -------
    (H, W, 3) uint8 ndarray
        RGB, a copy. Grey is repeated in all channels. Files and Pillow images are turned as their
        EXIF orientation says (as if there were none where EXIF is unreadable); arrays are taken
        as they are. What is transparent becomes black, what is half transparent half as bright.
        One channel of more than 8 bits (thermal, depth) is stretched so that the darkest pixel of
        the frame becomes 0 and the brightest 255, since such frames often use a small part of
        their range; arrays of 16-bit colour are divided by 257, float arrays multiplied by 255.

    Raises
    ------
    ValueError
        If the file is missing, empty, damaged, no image or too large, or an array has another
        shape, dtype or range.
    ModuleNotFoundError
        If a file is given and Pillow is not installed.
    """
    limit = integer(max_pixels, "max_pixels", 1)
    pillow = sys.modules.get("PIL.Image")
    if isinstance(source, np.ndarray):
        return _from_array(source, name, limit)
    if isinstance(source, str | os.PathLike) and os.fspath(source):
        with open_image(source, name) as image:
            pixels, turn = _decode(image, limit)
    elif pillow is not None and isinstance(source, pillow.Image):
        with _decoding(name, "a readable image", describe(source)):
            pixels, turn = _decode(source, limit)
    else:
        raise refusal(name, _WANT, source)
    if pixels.dtype != np.uint8:
        pixels = _stretch(pixels)
    return _from_array(_turned(pixels, turn), name, limit)


def orientation(image: Any) -> int:
    """EXIF orientation of a Pillow image, 1 to 8; 1 when absent, unreadable or nonsense."""
    try:
        value = image.getexif().get(_ORIENTATION, 1)
    except _PILLOW_ERRORS:
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def image_size(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Read width and height of an image file as it is shown, turned as EXIF says."""
    with open_image(path, want="an image") as image:
        width, height = image.size
        return (height, width) if orientation(image) >= 5 else (width, height)


def _absent(path: Path) -> str | None:
    """Say why there is nothing to read, or None."""
    if path.is_dir():
        return "it is a folder"
    if path.is_file() and path.stat().st_size == 0:
        return "it is empty"
    return None if path.exists() else "there is no such file"


def _too_large(limit: int) -> str:
    return f"it has more than {limit:,} pixels, see max_pixels"


def _decode(image: Any, limit: int) -> tuple[NDArray[Any], int]:
    """Pixels of a Pillow image, 8-bit unless it has one deeper channel, and EXIF orientation."""
    width, height = image.size
    if width == 0 or height == 0:
        raise _ReadError(f"it is {width} x {height} pixels large")
    if width * height > limit:
        raise _ReadError(_too_large(limit))
    # Decode first: some formats (TIFF) are turned by Pillow itself, which removes the tag.
    image.load()
    turn = orientation(image)
    if image.mode in _DEEP_MODES:
        return np.asarray(image), turn
    if "transparency" in image.info or image.mode in ("RGBA", "RGBa", "LA", "La", "PA"):
        # Premultiplied grey converts only to its plain form.
        straight = image.convert("LA") if image.mode == "La" else image
        return np.asarray(straight.convert("RGBA")), turn
    return np.asarray(image.convert("RGB")), turn


def _turned(pixels: NDArray[Any], turn: int) -> NDArray[Any]:
    """Undo an EXIF orientation: which edges of the scene row 0 and column 0 show."""
    if turn >= 5:
        pixels = pixels.swapaxes(0, 1)
    rows = slice(None, None, -1) if turn in (3, 4, 7, 8) else slice(None)
    columns = slice(None, None, -1) if turn in (2, 3, 6, 7) else slice(None)
    return pixels[rows, columns]


def _from_array(array: NDArray[Any], name: str, limit: int) -> NDArray[np.uint8]:
    """Bring an array to 8-bit RGB."""
    shape = array.shape
    if array.ndim not in (2, 3) or (array.ndim == 3 and shape[2] not in (1, 3, 4)):
        raise refusal(name, _WANT, array)
    if 0 in shape:
        raise refusal(name, "an image with at least one pixel", array)
    if shape[0] * shape[1] > limit:
        raise ValueError(
            f"{name} must have at most {limit:,} pixels (see max_pixels), got {describe(array)}"
        )
    if np.ma.is_masked(array):
        raise ValueError(f"{name} must be {_WANT}, got a masked array with masked values")
    channels = shape[2] if array.ndim == 3 else 1
    pixels = _eight_bit(np.asarray(array).reshape(*shape[:2], channels), name)
    if channels == 4:
        colour = pixels[:, :, :3].astype(np.uint16) * pixels[:, :, 3:]
        pixels = ((colour + 127) // 255).astype(np.uint8)
    return np.array(np.broadcast_to(pixels, (*shape[:2], 3)), order="C")


def _eight_bit(pixels: NDArray[Any], name: str) -> NDArray[np.uint8]:
    """Bring the values of (H, W, C) pixels to 0..255."""
    if pixels.dtype == np.uint8:
        return pixels
    if pixels.dtype == np.bool_:
        return pixels.astype(np.uint8) * np.uint8(255)
    if pixels.dtype.kind == "u" and pixels.dtype.itemsize == 2:
        if pixels.shape[2] == 1:
            return _stretch(pixels)
        return ((pixels.astype(np.uint32) + 128) // 257).astype(np.uint8)
    if pixels.dtype.kind != "f":
        raise refusal(name, f"an array of {_DTYPES}", pixels)
    # NaN fails the comparison as well.
    low, high = float(pixels.min()), float(pixels.max())
    if not (low >= 0.0 and high <= 1.0):
        raise ValueError(
            f"{name} must hold floats in [0, 1] (or be uint8), got values from {low:g} to {high:g}"
        )
    return np.rint(pixels * np.float32(255.0)).astype(np.uint8)


def _stretch(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    """Map the frame's own range to 0..255; a constant frame becomes 0, as do values not finite."""
    values = pixels.astype(np.float64)
    finite = np.isfinite(values)
    if not finite.any():
        return np.zeros(values.shape, dtype=np.uint8)
    low, high = values[finite].min(), values[finite].max()
    scale = 255.0 / (high - low) if high > low else 0.0
    return np.where(finite, np.rint((np.where(finite, values, low) - low) * scale), 0.0).astype(
        np.uint8
    )


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
    try:
        with open_image(source) as image:
            tags = dict(image.getexif().get_ifd(_SUB_IFD))
            # Tags describe the sensor, so they go with the size before turning. TIFF is turned by
            # Pillow in its size already, and turning twice gives the sensor's.
            size = image.size
            if image.format == "TIFF" and orientation(image) >= 5:
                size = size[::-1]
    except ValueError:
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
