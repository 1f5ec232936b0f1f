"""From light to a photograph: lens blur, glow, exposure, white balance, tone curve and grain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

_CURVE_STEPS = 4096
_CURVE_END = 8.0


@dataclass(frozen=True)
class Film:
    """How one view was taken.

    ``exposure`` is a factor on what the exposure meter chose, ``white`` are gains of red and blue,
    ``blur_px`` is the standard deviation of the lens, ``grain`` that of the noise in 8-bit levels.
    """

    exposure: float
    white: tuple[float, float]
    blur_px: float
    grain: float


def develop(light: Array, film: Film, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Turn linear light (H, W, 3) into an 8-bit sRGB picture of the same size."""
    height, width = light.shape[:2]
    # Glare of bright places: a wide and faint second blur.
    picture = blurred(light, film.blur_px)
    picture = 0.96 * picture + 0.04 * blurred(np.minimum(picture, 4.0), 0.012 * width)
    key = float(np.exp(np.log(picture.mean(axis=2, dtype=np.float64) + 1e-3).mean()))
    y = (np.arange(height, dtype=np.float32) - 0.5 * (height - 1))[:, None]
    x = (np.arange(width, dtype=np.float32) - 0.5 * (width - 1))[None, :]
    corner = 1.0 - 0.22 * (x * x + y * y) / np.float32(0.25 * (width**2 + height**2))
    gain = np.array([film.white[0], 1.0, film.white[1]]) * (0.20 * film.exposure / key)
    picture = picture * corner[:, :, None] * gain.astype(np.float32)
    place = np.sqrt(np.clip(picture * np.float32(1.0 / _CURVE_END), 0.0, 1.0))
    level = _curve()[np.rint(place * (_CURVE_STEPS - 1)).astype(np.int32)]
    # Shot noise is strongest in the mid-tones after the curve; chroma noise is part of it.
    shade = 0.6 + 0.8 * np.sqrt(np.clip(level, 0, 255) / 255) * (1.1 - level / 255)
    level = level + np.float32(film.grain) * shade * rng.standard_normal(level.shape, np.float32)
    return np.asarray(np.clip(np.rint(level), 0, 255), dtype=np.uint8)


def _curve() -> Array:
    """Table from the square root of light to 8-bit levels: a filmic shoulder, then sRGB."""
    x = np.linspace(0.0, 1.0, _CURVE_STEPS) ** 2 * _CURVE_END
    x = 0.92 * x
    toned = np.clip(x * (2.51 * x + 0.03) / (x * (2.43 * x + 0.59) + 0.14), 0.0, 1.0)
    low = 12.92 * toned
    high = 1.055 * np.maximum(toned, 1e-9) ** (1 / 2.4) - 0.055
    return (255.0 * np.where(toned <= 0.0031308, low, high)).astype(np.float32)


def blurred(picture: Array, sigma: float) -> Array:
    """Blur (H, W, 3) with a Gaussian, the border repeated."""
    reach = int(np.ceil(3.0 * sigma))
    if reach == 0:
        return picture
    if reach > 8:
        # A wide blur needs no fine grid: shrink, blur there, enlarge linearly.
        factor = max(2, int(sigma / 2))
        small = _shrink(picture, factor)
        return _grow(blurred(small, sigma / factor), factor, picture.shape[:2])
    weight = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
    weight /= weight.sum()
    for axis in (0, 1):
        margin = [(reach, reach) if k == axis else (0, 0) for k in range(3)]
        padded = np.pad(picture, margin, mode="edge")
        total = np.zeros_like(picture)
        for k, w in enumerate(weight):
            part = slice(k, k + picture.shape[axis])
            total += np.float32(w) * (padded[part] if axis == 0 else padded[:, part])
        picture = total
    return picture


def _shrink(picture: Array, factor: int) -> Array:
    height, width = picture.shape[:2]
    margin = [(0, -height % factor), (0, -width % factor), (0, 0)]
    padded = np.pad(picture, margin, mode="edge")
    rows, columns = padded.shape[0] // factor, padded.shape[1] // factor
    blocks = padded.reshape(rows, factor, columns, factor, 3)
    return np.asarray(blocks.mean(axis=(1, 3), dtype=np.float32))


def _grow(picture: Array, factor: int, size: tuple[int, ...]) -> Array:
    for axis in (0, 1):
        place = (np.arange(size[axis]) + 0.5) / factor - 0.5
        place = np.clip(place, 0.0, picture.shape[axis] - 1.0)
        low = np.minimum(np.floor(place).astype(np.int64), max(picture.shape[axis] - 2, 0))
        high = np.minimum(low + 1, picture.shape[axis] - 1)
        part = (place - low).astype(np.float32)
        part = part[:, None, None] if axis == 0 else part[None, :, None]
        first, second = np.take(picture, low, axis), np.take(picture, high, axis)
        picture = first * (1 - part) + second * part
    return picture
