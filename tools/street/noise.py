"""Noise for textures: tileable multi-octave tables with mip levels, and integer hashes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

# float32 throughout; products with NumPy scalars have too many types to spell out.
Array: TypeAlias = NDArray[Any]


class Noise:
    """A square tile of fractal noise with mean 0 and standard deviation 1, and coarser copies.

    ``side`` is the number of texels on a side, ``cells`` that of lattice cells, one entry per
    octave, all powers of two; ``persistence`` is the amplitude of an octave relative to the one
    before.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        side: int = 1024,
        cells: Sequence[int] = (4, 8, 16, 32, 64, 128, 256, 512),
        persistence: float = 0.7,
    ) -> None:
        total = np.zeros((side, side), dtype=np.float64)
        for octave, count in enumerate(cells):
            lattice = rng.standard_normal((count, count))
            total += persistence**octave * _enlarge(_enlarge(lattice, side).T, side).T
        total -= total.mean()
        level = (total / total.std()).astype(np.float32)
        self.side = side
        tables, offsets, start = [], [], 0
        while len(level) >= 4:
            tables.append(level.ravel())
            offsets.append(start)
            start += level.size
            level = 0.25 * (
                level[::2, ::2] + level[1::2, ::2] + level[::2, 1::2] + level[1::2, 1::2]
            )
        self._table = np.concatenate(tables)
        self._offset = np.array(offsets, dtype=np.int64)

    def __call__(self, u: Array, v: Array, period: float, spacing: Array | float) -> Array:
        """Sample at (u, v) (N,); all arguments are in metres, ``period`` is the tile's width.

        Coarser copies are used where the spacing of neighbouring samples is larger than a texel, so
        that distant surfaces do not flicker.
        """
        texel = period / self.side
        wanted = np.log2(np.maximum(np.asarray(spacing, dtype=np.float32) / texel, 1.0))
        level = np.minimum(np.rint(wanted).astype(np.int64), len(self._offset) - 1)
        side = self.side >> level
        column = np.floor(u * (side / period)).astype(np.int64) & (side - 1)
        row = np.floor(v * (side / period)).astype(np.int64) & (side - 1)
        return np.asarray(self._table[self._offset[level] + row * side + column])


def _enlarge(table: NDArray[np.float64], rows: int) -> NDArray[np.float64]:
    """Interpolate the rows of a periodic table to `rows` rows, smoothly."""
    place = np.arange(rows) * (len(table) / rows)
    low = np.floor(place).astype(np.int64)
    part = (place - low)[:, None]
    part = part * part * (3.0 - 2.0 * part)
    return np.asarray(table[low] * (1.0 - part) + table[(low + 1) % len(table)] * part)


def hashed(*keys: Any) -> Array:
    """Uniform numbers in [0, 1) that are a function of integer arrays, which broadcast."""
    value: Array = np.array(2166136261, dtype=np.uint32)
    for key in keys:
        whole = np.asarray(key).astype(np.int64).astype(np.uint32)
        value = (value ^ whole) * np.uint32(2246822519)
        value = (value ^ (value >> np.uint32(15))) * np.uint32(3266489917)
        value = value ^ (value >> np.uint32(13))
    return np.asarray((value >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24))


def rgb(red: float, green: float, blue: float) -> Array:
    """Make a linear colour (3,)."""
    return np.array([red, green, blue], dtype=np.float32)


def smoothstep(low: float, high: float, x: Array) -> Array:
    """Rise from 0 at `low` to 1 at `high`, smoothly."""
    part = np.clip((x - np.float32(low)) * np.float32(1.0 / (high - low)), 0.0, 1.0)
    return np.asarray(part * part * (3.0 - 2.0 * part), dtype=np.float32)
