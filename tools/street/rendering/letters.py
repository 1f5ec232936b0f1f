"""Letters for the shop signs of made pictures: a small pixel alphabet, drawn smoothly."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

WORDS = ("CAFE", "HOTEL", "BAKERY", "BOOKS", "FLORIST", "PHARMACY", "OPTICS", "TAILOR")

_ROWS, _COLUMNS = 7, 5
# Seven rows of five dots, as bits, top row first.
_FONT = {
    "A": (14, 17, 17, 31, 17, 17, 17),
    "B": (30, 17, 17, 30, 17, 17, 30),
    "C": (14, 17, 16, 16, 16, 17, 14),
    "E": (31, 16, 16, 30, 16, 16, 31),
    "F": (31, 16, 16, 30, 16, 16, 16),
    "H": (17, 17, 17, 31, 17, 17, 17),
    "I": (14, 4, 4, 4, 4, 4, 14),
    "K": (17, 18, 20, 24, 20, 18, 17),
    "L": (16, 16, 16, 16, 16, 16, 31),
    "M": (17, 27, 21, 21, 17, 17, 17),
    "O": (14, 17, 17, 17, 17, 17, 14),
    "P": (30, 17, 17, 30, 16, 16, 16),
    "R": (30, 17, 17, 30, 20, 18, 17),
    "S": (15, 16, 16, 14, 1, 1, 30),
    "T": (31, 4, 4, 4, 4, 4, 4),
    "Y": (17, 17, 10, 4, 4, 4, 4),
}
_STEP = 8


def _stencils() -> list[Array]:
    """One smoothed picture per word, (9 * _STEP, width) with values in [0, 1]."""
    pictures = []
    for word in WORDS:
        dots = np.zeros((_ROWS + 2, (_COLUMNS + 1) * len(word) + 1), dtype=np.float32)
        for place, letter in enumerate(word):
            for row, bits in enumerate(_FONT[letter]):
                for column in range(_COLUMNS):
                    if bits >> (_COLUMNS - 1 - column) & 1:
                        dots[1 + row, 1 + (_COLUMNS + 1) * place + column] = 1.0
        fine = np.kron(dots, np.ones((_STEP, _STEP), dtype=np.float32))
        # A box blur of one dot, cut at the middle, rounds the corners of the letters.
        for axis in (0, 1):
            total = sum(np.roll(fine, k, axis) for k in range(-_STEP // 2, _STEP // 2 + 1))
            fine = np.asarray(total, dtype=np.float32) / (_STEP + 1)
        pictures.append(np.clip((fine - 0.34) * 6.0, 0.0, 1.0).astype(np.float32))
    return pictures


def lettering(
    x: Array, y: Array, half_x: Array, half_y: Array, word: Array, spacing: Array
) -> Array:
    """Coverage (N,) by letters of boards with half extents, at places (x, y) from their middle."""
    ink = np.zeros(len(x), dtype=np.float32)
    pictures = _stencils()
    for number in np.unique(word.astype(np.int64)):
        picture = pictures[number % len(WORDS)]
        mine = np.flatnonzero(word.astype(np.int64) == number)
        # As large as the board allows, with a margin.
        texel = np.minimum(
            2.0 * half_x[mine] / (picture.shape[1] + 2 * _STEP), 2.0 * half_y[mine] / len(picture)
        )
        column = np.rint(x[mine] / texel + 0.5 * picture.shape[1]).astype(np.int64)
        row = np.rint(y[mine] / texel + 0.5 * picture.shape[0]).astype(np.int64)
        inside = (column >= 0) & (column < picture.shape[1]) & (row >= 0) & (row < len(picture))
        value = picture[row.clip(0, len(picture) - 1), column.clip(0, picture.shape[1] - 1)]
        far = np.clip(_STEP * texel / spacing[mine] - 1.0, 0.3, 1.0)
        ink[mine] = value * inside * far
    return ink
