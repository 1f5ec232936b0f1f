"""Images as 8-bit RGB the right way up, and the focal length that EXIF gives."""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import struct
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manymatch._validate import describe, refusal, require
from manymatch.io import files
from manymatch.io.files import PathLike

# Formats whose decoders hold several copies of the image; their pixels count twice.
_HUNGRY_FORMATS = ("AVIF", "HEIF", "JPEG2000", "WEBP")
# Pixels that are converted at once; whole images would be in memory several times.
_BAND_PIXELS = 1 << 18
_WANT = "an image file, a Pillow image or an array of shape (H, W) or (H, W, 1, 3 or 4)"
_CHANNELS = (1, 3, 4)
_DTYPES = "uint8, uint16, bool or float in [0, 1]"
_DEEP_MODES = ("I;16", "I;16B", "I;16L", "I;16N", "I", "F")
_NEEDS_HEIF = "HEIC needs another package: pip install pillow-heif; or convert it to JPEG"
_HEIC, _MAGIC_BYTES = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"), 12
# What to do about files that Pillow does not read, by their ending.
_ADVICE = {
    **dict.fromkeys((".heic", ".heif"), f": {_NEEDS_HEIF}"),
    **dict.fromkeys(
        (".mp4", ".mov", ".avi", ".mkv", ".webm", ".m4v"),
        ": of a video, give two of its frames as images",
    ),
}

# What Pillow's readers, many of them plain Python, raise for damaged files.
_PILLOW_ERRORS = (
    *(OSError, ValueError, SyntaxError, TypeError, LookupError, EOFError, ArithmeticError),
    *(MemoryError, RuntimeError, struct.error, zlib.error),
)

_ORIENTATION, _SUB_IFD = 0x0112, 0x8769
# Orientations whose files have the columns or rows of the upright image in reverse; those from 5 on
# exchange columns and rows after that.
_FLIPPED_X, _FLIPPED_Y = (2, 3, 6, 7), (3, 4, 7, 8)
_FOCAL_LENGTH, _FOCAL_35MM = 0x920A, 0xA405
_PLANE_DENSITY, _PLANE_UNIT, _EXIF_SIZE = (0xA20E, 0xA20F), 0xA210, (0xA002, 0xA003)
# Millimetres per unit of FocalPlaneResolutionUnit; 1 ("none") is taken as inches, the default.
_UNIT_MM: dict[float | None, float] = {1: 25.4, 2: 25.4, 3: 10.0, 4: 1.0, 5: 0.001}
_DIAGONAL_35MM = math.hypot(36.0, 24.0)
# Fields of view along the longer edge of about 1 and 170 degrees: outside, the tags are wrong.
_SHORTEST, _LONGEST = 0.04, 60.0


def require_pillow() -> Any:
    """Import Pillow's Image module, or say how to get it."""
    return require("PIL.Image", "reading image files", "images")


@contextlib.contextmanager
def _decoding(name: str, want: str, given: str, image: Any = None) -> Iterator[Any]:
    """Turn errors of Pillow into "<name> must be <want>, got <given> (<reason>)"."""
    pillow = require_pillow()
    try:
        # Damaged metadata make Pillow warn about things that do not concern the pixels.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield image
    except (*_PILLOW_ERRORS, pillow.DecompressionBombError) as error:
        reason = files.brief(error)
        if isinstance(error, pillow.DecompressionBombError):
            reason = f"it has more than {files.limit('pixels'):,} pixels, see MANYMATCH_MAX_PIXELS"
        elif isinstance(error, sys.modules["PIL"].UnidentifiedImageError):
            ending = PurePath(given.strip("'\"")).suffix.lower()
            reason = f"it is in no format that Pillow reads{_ADVICE.get(ending, '')}"
        wrong = files.error_type(error)
        raise wrong(f"{name} must be {want}, got {given} ({reason})") from error


def _allow_heic(start: bytes) -> None:
    """Let Pillow read a file that begins like HEIC, if a package for that is installed."""
    if start[4:8] != b"ftyp" or start[8:12] not in _HEIC:
        return
    for package in ("pillow_heif", "pi_heif"):
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(package).register_heif_opener()
            return
    if start[8:12] != b"mif1":  # which may be AVIF
        raise ValueError(_NEEDS_HEIF)


@contextlib.contextmanager
def open_image(path: PathLike, name: str = "path", want: str = "an image file") -> Iterator[Any]:
    """Open an image file as a Pillow image.

    A `ValueError` "<name> must be <want>, got <path> (<reason>)" is raised for a file that is
    missing, empty or no image, and for everything that Pillow raises in the block, which should
    hold nothing but calls of Pillow.
    """
    source = files.as_path(path, name)
    with _decoding(name, want, repr(str(source))), files.open_regular(source) as file:
        pillow, start = require_pillow(), file.read(_MAGIC_BYTES)
        if not start:
            raise ValueError("it is empty")
        # The usual formats come first; all forty take longer to import than to decode one.
        pillow.preinit()
        if not start.startswith((b"\xff\xd8\xff", b"\x89PNG")):
            pillow.init()
        _allow_heic(start)
        file.seek(0)
        # EPS is a program, which another program would run.
        formats = [known for known in pillow.OPEN if known != "EPS"]
        with pillow.open(file, formats=formats) as image:
            yield image


def load_image(source: PathLike | NDArray[Any] | Any, name: str = "image") -> NDArray[np.uint8]:
    """Read an image as 8-bit RGB.

    Parameters
    ----------
    source : path, ndarray, torch.Tensor or PIL.Image.Image
        A file in any format that Pillow reads (of several frames the first one), HEIC if
        pillow-heif or pi-heif is installed, a Pillow image,
        or an array of shape (H, W), (H, W, 1), (H, W, 3) or (H, W, 4), RGB order, of uint8,
        uint16, bool or float in [0, 1]. A tensor, on any device and with or without gradient, has
        its channels first, (3, H, W), or last; (1, 3, H, W) is one image as well.
    name : str
        What errors call it.

    Returns
    -------
    (H, W, 3) uint8 ndarray
        RGB, a copy. Grey is repeated in all channels. Files and Pillow images are turned as their
        EXIF orientation says (not at all if EXIF is unreadable); arrays are taken as they are.
        Transparent pixels become black, half transparent ones half as bright.
        One channel of more than 8 bits (thermal, depth) is stretched so that the darkest pixel of
        the frame becomes 0 and the brightest 255, since such frames often use a small part of
        their range; arrays of 16-bit colour are divided by 257, float arrays multiplied by 255.

    Images of more than 178 million pixels, or what the environment variable
    ``MANYMATCH_MAX_PIXELS`` says, are refused before they are decoded. Decoding takes about three
    times the memory of the result; JPEG 2000, WebP and AVIF take twice that, so their pixels count
    twice.
    """
    most = files.limit("pixels")
    if _is_a(source, "torch", "Tensor"):
        source = _tensor_array(source, name)
    if isinstance(source, np.ndarray):
        pixels = _array_pixels(source, name, most)
        stretch = source.dtype.itemsize == 2 and source.dtype.kind == "u" and pixels.shape[2] == 1
        return _eight_bit(pixels.__getitem__, pixels.shape[:2], name, stretch=stretch)
    if isinstance(source, str | os.PathLike) and os.fspath(source):
        if most > files.LIMITS["pixels"]:
            # Pillow has a limit of its own, for the whole process, and refuses twice of it.
            require_pillow().MAX_IMAGE_PIXELS = most
        want, given = "an image file", repr(str(files.as_path(source)))
        opened = open_image(source, name)
    elif _is_a(source, "PIL.Image", "Image"):
        want, given = "a readable image", describe(source)
        opened = _decoding(name, want, given, source)
    else:
        raise refusal(name, _WANT, source)
    with opened as image:
        turn = _decode(image, most)

    def rows(band: slice) -> NDArray[Any]:
        with _decoding(name, want, given):
            return _pixels(image.crop((0, band.start, image.width, band.stop)))

    deep = image.mode in _DEEP_MODES
    return _upright(_eight_bit(rows, image.size[::-1], name, stretch=deep), turn)


def orientation(image: Any) -> int:
    """EXIF orientation of a Pillow image, 1 to 8; 1 when absent, unreadable or nonsense."""
    try:
        value = image.getexif().get(_ORIENTATION, 1)
    except _PILLOW_ERRORS:
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def _is_a(source: Any, module: str, name: str) -> bool:
    """Say whether an object is of a class whose module need not be here.

    Another thread may be importing the module now; then the class is not there yet, nor an object.
    """
    return isinstance(source, getattr(sys.modules.get(module), name, ()))


def stored_orientation(source: object) -> int:
    """EXIF orientation by which `load_image` turns an image; 1 for arrays and unreadable files.

    Pixels (x, y) of what `load_image` returns are those of the file as it is stored after
    `orientation_axes`; COLMAP and hloc read images as they are stored.
    """
    if _is_a(source, "PIL.Image", "Image"):
        return orientation(source)
    if not isinstance(source, str | os.PathLike):
        return 1
    try:
        # Before it is decoded, when TIFF loses the tag.
        with open_image(source) as image:
            return orientation(image)
    except (ValueError, ModuleNotFoundError):
        return 1


def orientation_axes(turn: int) -> NDArray[np.float64]:
    """Matrix (2, 2) from directions in an upright image to those in the file of an orientation."""
    flips = np.diag([-1.0 if turn in _FLIPPED_X else 1.0, -1.0 if turn in _FLIPPED_Y else 1.0])
    return flips[::-1] if turn >= 5 else flips


def image_size(path: PathLike) -> tuple[int, int]:
    """Read width and height of an image file as it is shown, turned as EXIF says."""
    with open_image(path, want="an image") as image:
        width, height = image.size
        # TIFF is turned by Pillow, in its size already.
        turned = orientation(image) >= 5 and image.format != "TIFF"
        return (height, width) if turned else (width, height)


def _decode(image: Any, most: int) -> int:
    """Decode a Pillow image of at most `most` pixels, and return its EXIF orientation."""
    width, height = image.size
    if width == 0 or height == 0:
        raise ValueError(f"it is {width} x {height} pixels large")
    if width * height * (2 if image.format in _HUNGRY_FORMATS else 1) > most:
        raise ValueError(f"it has more than {most:,} pixels, see MANYMATCH_MAX_PIXELS")
    # Decode first: some formats (TIFF) are turned by Pillow itself, which removes the tag.
    image.load()
    return orientation(image)


def _pixels(image: Any) -> NDArray[Any]:
    """Pixels (H, W, C) of a Pillow image, 8-bit unless it has one deeper channel."""
    if image.mode in _DEEP_MODES:
        return np.asarray(image)[:, :, None]
    if "transparency" in image.info or image.mode in ("RGBA", "RGBa", "LA", "La", "PA"):
        # Premultiplied grey converts only to its plain form.
        straight = image.convert("LA") if image.mode == "La" else image
        return np.asarray(straight.convert("RGBA"))
    return np.asarray(image.convert("RGB"))


def _upright(stored: NDArray[np.uint8], turn: int) -> NDArray[np.uint8]:
    """Turn an image as EXIF says: the orientation tells which edges row 0 and column 0 show."""
    view = stored.swapaxes(0, 1) if turn >= 5 else stored
    view = view[::-1] if turn in _FLIPPED_Y else view
    return np.ascontiguousarray(view[:, ::-1] if turn in _FLIPPED_X else view)


def _tensor_array(tensor: Any, name: str) -> NDArray[Any]:
    """Copy a tensor to an array with its channels last."""
    one = tensor[0] if tensor.ndim == 4 and len(tensor) == 1 else tensor
    if one.ndim == 3 and one.shape[0] in _CHANNELS:
        if one.shape[2] in _CHANNELS:
            raise ValueError(
                f"{name} must have its channels first or last, got a tensor of shape "
                f"{tuple(tensor.shape)}, which may be either: give an array with the channels last"
            )
        one = one.permute(1, 2, 0)
    try:
        # NumPy has no bfloat16.
        plain = one.detach().cpu()
        return np.asarray(plain.float() if plain.is_floating_point() else plain)
    except (RuntimeError, TypeError, NotImplementedError) as error:
        raise ValueError(f"{name} must be a dense tensor ({files.brief(error)})") from error


def _array_pixels(array: NDArray[Any], name: str, most: int) -> NDArray[Any]:
    """Check an array, and view it as (H, W, C)."""
    shape, dtype = array.shape, array.dtype
    if array.ndim not in (2, 3) or (array.ndim == 3 and shape[2] not in _CHANNELS):
        error = refusal(name, _WANT, array)
        if array.ndim == 3 and shape[0] in _CHANNELS:
            raise ValueError(f"{error}: move its channels to the end with transpose(1, 2, 0)")
        raise error
    if 0 in shape:
        raise refusal(name, "an image with at least one pixel", array)
    if shape[0] * shape[1] > most:
        raise ValueError(
            f"{name} must have at most {most:,} pixels (see MANYMATCH_MAX_PIXELS), got "
            f"{describe(array)}"
        )
    if np.ma.is_masked(array):
        raise ValueError(f"{name} must be {_WANT}, got a masked array with masked values")
    if not (dtype in (np.uint8, np.bool_) or dtype.kind == "f" or dtype.newbyteorder("=") == "u2"):
        raise refusal(name, f"an array of {_DTYPES}", array)
    plain = np.asarray(array)
    return plain if plain.ndim == 3 else plain[:, :, None]


def _eight_bit(
    rows: Callable[[slice], NDArray[Any]], size: tuple[int, ...], name: str, *, stretch: bool
) -> NDArray[np.uint8]:
    """Bring rows (H, W, C) to 8-bit RGB, band by band; `stretch` maps their range to 0..255."""
    height, width = size
    step = max(1, _BAND_PIXELS // width)
    bands = [slice(top, min(top + step, height)) for top in range(0, height, step)]
    low, high = 0.0, 1.0
    if stretch or rows(slice(0, 1)).dtype.kind == "f":
        parts = (part[np.isfinite(part)] if stretch else part for part in map(rows, bands))
        ranges = [(float(part.min()), float(part.max())) for part in parts if part.size]
        # An image without a finite value is a constant frame.
        low, high = float(np.min(ranges or 0.0)), float(np.max(ranges or 0.0))
        # NaN fails the comparison as well.
        if not stretch and not (low >= 0.0 and high <= 1.0):
            raise ValueError(
                f"{name} must hold floats in [0, 1] (or be uint8), got values from {low:g} to "
                f"{high:g}"
            )
    colour = np.empty((height, width, 3), dtype=np.uint8)
    for band in bands:
        part = rows(band)
        if stretch:
            finite = np.isfinite(part)
            values = np.where(finite, part, low).astype(np.float64) - low
            scale = 255.0 / (high - low) if high > low else 0.0  # a constant frame becomes 0
            part = np.where(finite, np.rint(values * scale), 0.0)
        elif part.dtype == np.bool_:
            part = part * np.uint8(255)
        elif part.dtype.kind == "u" and part.dtype.itemsize == 2:
            part = (part.astype(np.uint32) + 128) // 257
        elif part.dtype.kind == "f":
            part = np.rint(part * np.float32(255.0))
        if part.shape[2] == 4:
            solid = part[:, :, :3].astype(np.uint16) * part[:, :, 3:].astype(np.uint16)
            part = (solid + 127) // 255
        colour[band] = part
    return colour


def exif_focal(path: PathLike) -> float | None:
    """Focal length from a photograph's EXIF, in pixels of the full image.

    It is taken from the 35 mm equivalent, by the diagonal, ``f35 * diagonal_px / 43.27``; where it
    is absent, from the focal length in millimetres and the resolution of the sensor. None is
    returned when the tags are absent or make no sense, or the file is not an image. The focal
    length is the same for both axes, so an image that EXIF turns by a quarter keeps it.
    """
    try:
        with open_image(path) as image:
            tags = image.getexif().get_ifd(_SUB_IFD)
            known = {tag: _positive(value) for tag, value in tags.items()}
            # Tags describe the sensor, so they go with the size before turning. TIFF is turned by
            # Pillow in its size already, and turning twice gives the sensor's.
            size = image.size
            if image.format == "TIFF" and orientation(image) >= 5:
                size = size[::-1]
    except files.MissingFileError:
        raise
    except ValueError:
        return None
    focals = []
    if equivalent := known.get(_FOCAL_35MM):
        # By the diagonal, as the standard defines the equivalent.
        focals.append(equivalent * math.hypot(*size) / _DIAGONAL_35MM)
    millimetres, unit = known.get(_FOCAL_LENGTH), _UNIT_MM.get(known.get(_PLANE_UNIT, 2.0))
    for density, recorded, now in zip(_PLANE_DENSITY, _EXIF_SIZE, size, strict=True):
        if millimetres and unit and (per_unit := known.get(density)):
            # The density is that of the image as it was taken, which may have been resized since.
            resized = now / (known.get(recorded) or now)
            focals.append(millimetres * per_unit / unit * resized)
            break
    fits = (focal for focal in focals if _SHORTEST <= focal / max(size) <= _LONGEST)
    return next(fits, None)


def _positive(value: object) -> float:
    """Return a positive finite number, or 0 for anything else."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):
        return 0.0
    return number if math.isfinite(number) and number > 0.0 else 0.0
