"""Images from files, arrays and Pillow, as 8-bit RGB the right way up."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._files import DAMAGE
from manymatch._optional import require
from manymatch._validate import describe, integer, refusal

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Largest image that is taken unless the caller allows more; 0.5 GB as RGB, and just below the
#: size at which Pillow refuses by itself.
MAX_PIXELS = 178_000_000

_WANT = "an image file, a Pillow image or an array of shape (H, W) or (H, W, 1, 3 or 4)"
_DTYPES = "uint8, uint16, bool or float in [0, 1]"
_DEEP_MODES = ("I;16", "I;16B", "I;16L", "I;16N", "I", "F")
_ORIENTATION = 0x0112


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
    if isinstance(source, np.ndarray):
        return _from_array(source, name, limit)
    if isinstance(source, str | os.PathLike) and os.fspath(source):
        return _from_file(Path(source), name, limit)
    pillow = sys.modules.get("PIL.Image")
    if pillow is not None and isinstance(source, pillow.Image):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return _from_pillow(source, name, limit)
        except DAMAGE as error:
            raise _unreadable(name, "a readable image", describe(source), error) from error
    raise refusal(name, _WANT, source)


def _from_file(path: Path, name: str, limit: int) -> NDArray[np.uint8]:
    """Open and decode a file."""
    want, given = "an image file", repr(str(path))
    absent = _absent(path)
    if absent is not None:
        raise _unreadable(name, want, given, _ReadError(absent))
    pillow = require_pillow()
    try:
        # Damaged metadata make Pillow warn about what does not concern the pixels.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pillow.open(path) as image:
                return _from_pillow(image, name, limit)
    except DAMAGE as error:
        raise _unreadable(name, want, given, error) from error
    except Exception as error:
        # Pillow's own refusal of huge images derives from Exception alone.
        if type(error).__name__ != "DecompressionBombError":
            raise
        raise _unreadable(name, want, given, _ReadError(_too_large(limit))) from error


def _absent(path: Path) -> str | None:
    """Say why there is nothing to read, or None."""
    try:
        if path.is_dir():
            return "it is a folder"
        if path.is_file() and path.stat().st_size == 0:
            return "it is empty"
        return None if path.exists() else "there is no such file"
    except (OSError, ValueError) as error:
        return str(error) or type(error).__name__


class _ReadError(ValueError):
    """Why a file is not taken, already in words."""


def _unreadable(name: str, want: str, given: str, error: BaseException) -> ValueError:
    """Make the error "<name> must be <want>, got <given> (<reason>)"."""
    if type(error).__name__ == "UnidentifiedImageError":
        reason = "it is in no format that Pillow reads"
    elif isinstance(error, _ReadError):
        reason = str(error)
    else:
        reason = f"it cannot be decoded: {str(error) or type(error).__name__}"
    return ValueError(f"{name} must be {want}, got {given} ({reason})")


def _too_large(limit: int) -> str:
    return f"it has more than {limit:,} pixels, see max_pixels"


def require_pillow() -> Any:
    """Import Pillow's Image module, or say how to get it."""
    return require("PIL.Image", "reading image files", "images")


def orientation(image: Any) -> int:
    """EXIF orientation of a Pillow image, 1 to 8; 1 when absent, unreadable or nonsense."""
    try:
        value = image.getexif().get(_ORIENTATION, 1)
    except DAMAGE:
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def _from_pillow(image: Any, name: str, limit: int) -> NDArray[np.uint8]:
    """Decode a Pillow image."""
    width, height = image.size
    if width == 0 or height == 0:
        raise _ReadError(f"it is {width} x {height} pixels large")
    if width * height > limit:
        raise _ReadError(_too_large(limit))
    # Decode first: some formats (TIFF) are turned by Pillow itself, which removes the tag.
    image.load()
    turn = orientation(image)
    if image.mode in _DEEP_MODES:
        pixels = _stretch(np.asarray(image))
    elif "transparency" in image.info or image.mode in ("RGBA", "RGBa", "LA", "La", "PA"):
        # Premultiplied grey converts only to its plain form.
        straight = image.convert("LA") if image.mode == "La" else image
        pixels = np.asarray(straight.convert("RGBA"))
    else:
        pixels = np.asarray(image.convert("RGB"))
    return _from_array(_turned(pixels, turn), name, limit)


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
