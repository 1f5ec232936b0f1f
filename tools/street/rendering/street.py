"""The street of made pictures: shops, tree, lamps, planters and other things that are unique."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tools.street.rendering import materials as m
from tools.street.rendering.house import IRON, STONE
from tools.street.rendering.letters import WORDS

if TYPE_CHECKING:
    from tools.street.rendering.build import Builder, Colour
    from tools.street.rendering.house import House

_PAINTS: tuple[Colour, ...] = (
    (0.05, 0.13, 0.10),
    (0.30, 0.04, 0.04),
    (0.05, 0.09, 0.22),
    (0.16, 0.08, 0.04),
    (0.45, 0.33, 0.10),
    (0.12, 0.12, 0.13),
)
_WOODS: tuple[Colour, ...] = ((0.22, 0.12, 0.06), (0.30, 0.19, 0.10), (0.16, 0.10, 0.06))


def build_ground_floor(b: Builder, h: House, rng: np.random.Generator) -> None:
    """Add stone piers and, between them, shops, doors and gates in changing order."""
    pier = 0.5
    words = rng.permutation(len(WORDS))
    for column in range(h.columns + 1):
        middle = h.x + column * h.period
        edges = max(middle - pier / 2, h.x), min(middle + pier / 2, h.end)
        b.box(edges, (0.0, h.ground - 0.1), (h.z - 0.06, h.z + 0.45), m.ASHLAR, STONE)
    b.box((h.x, h.end), (h.ground - 0.75, h.ground), (h.z, h.z + 0.45), m.ASHLAR, STONE)
    b.box((h.x, h.end), (0.0, 0.35), (h.z + 0.02, h.z + 0.45), m.ASHLAR, (0.30, 0.29, 0.27))
    for column in range(h.columns):
        x = (h.x + column * h.period + pier / 2, h.x + (column + 1) * h.period - pier / 2)
        paint = _PAINTS[rng.integers(len(_PAINTS))]
        kind = rng.random()
        if kind < 0.25:
            _door(b, h, x, paint, rng)
        else:
            _shop(b, h, x, paint, int(words[column % len(words)]), rng, awning=kind > 0.6)


def _shop(
    b: Builder,
    h: House,
    x: tuple[float, float],
    paint: Colour,
    word: int,
    rng: np.random.Generator,
    *,
    awning: bool,
) -> None:
    top = h.ground - 0.75
    b.box(x, (0.0, 0.55), (h.z + 0.05, h.z + 0.3), m.PAINT, paint)
    aux = (int(rng.integers(0, 3)), 0.25, 1.0, 0.5)
    b.box(x, (0.55, top - 0.45), (h.z + 0.16, h.z + 0.2), m.GLASS, paint, aux, thin=True)
    ink = (0.75, 0.66, 0.42) if rng.random() < 0.6 else (0.8, 0.8, 0.78)
    b.box(x, (top - 0.45, top + 0.12), (h.z - 0.02, h.z + 0.3), m.SIGN, paint, (word, *ink))
    if awning:
        lean = np.deg2rad(rng.uniform(24.0, 34.0))
        deep = 1.25
        down = np.array([0.0, np.sin(lean), -np.cos(lean)])
        up = np.array([0.0, -np.cos(lean), -np.sin(lean)])
        middle = np.array([(x[0] + x[1]) / 2, -(top - 0.35), h.z]) + down * deep / 2
        half = ((x[1] - x[0]) / 2 + 0.05, 0.015, deep / 2)
        axes = np.stack([[1.0, 0.0, 0.0], up, down])
        colour = _PAINTS[rng.integers(len(_PAINTS))]
        b.turned_box((middle[0], -middle[1], middle[2]), half, axes, m.AWNING, colour)
        front = h.z - deep * np.cos(lean)
        low = top - 0.35 - deep * np.sin(lean)
        b.box(
            (x[0] - 0.05, x[1] + 0.05),
            (low - 0.2, low),
            (front - 0.01, front + 0.01),
            m.AWNING,
            colour,
            thin=True,
        )


def _door(
    b: Builder, h: House, x: tuple[float, float], paint: Colour, rng: np.random.Generator
) -> None:
    top = h.ground - 0.75
    middle = (x[0] + x[1]) / 2
    half = rng.uniform(0.6, 0.75)
    b.box(x, (0.0, top), (h.z + 0.12, h.z + 0.4), m.ASHLAR, (0.42, 0.39, 0.34))
    b.box(
        (middle - half, middle + half),
        (0.0, 2.35),
        (h.z + 0.05, h.z + 0.12),
        m.WOOD,
        _WOODS[rng.integers(len(_WOODS))],
    )
    b.box(
        (middle - half, middle + half),
        (2.4, top - 0.1),
        (h.z + 0.06, h.z + 0.12),
        m.GLASS,
        paint,
        (2, 0.0, 1.0, 0.4),
        thin=True,
    )
    for side in (-1, 1):
        low, high = sorted((middle + side * half, middle + side * (half + 0.16)))
        b.box((low, high), (0.0, top), (h.z - 0.04, h.z + 0.12), m.PAINT, STONE)
    b.box(
        (middle - half - 0.3, middle + half + 0.3),
        (0.0, 0.15),
        (h.z - 0.4, h.z + 0.1),
        m.PAINT,
        (0.36, 0.34, 0.31),
    )
    b.ball((middle + 0.7 * half, 1.05, h.z + 0.02), (0.04, 0.04, 0.04), m.METAL, (0.5, 0.36, 0.12))


def build_tree(
    b: Builder, x: float, z: float, tall: float, rng: np.random.Generator, leaves: int
) -> None:
    """Add a street tree with its grate."""
    bark = (0.17, 0.14, 0.10)
    crown = tall * 0.62
    b.cylinder((x, z), 0.15, (0.0, crown + 0.3), m.BARK, bark)
    for _ in range(9):
        turn, rise = rng.uniform(0, 2 * np.pi), rng.uniform(0.5, 1.1)
        along = np.array([np.cos(turn), -rise, np.sin(turn)])
        along /= np.sqrt((along**2).sum())
        side = np.cross(along, [0.0, 1.0, 0.0])
        side /= np.sqrt((side**2).sum())
        length = rng.uniform(0.5, 0.9) * tall * 0.25
        start = np.array([x, -crown * rng.uniform(0.72, 1.0), z])
        middle = start + along * length
        axes = np.stack([side, along, np.cross(side, along)])
        b.turned_box((middle[0], -middle[1], middle[2]), (0.035, length, 0.035), axes, m.BARK, bark)
    size = tall * 0.24
    green = (0.105, 0.19, 0.035)
    b.foliage((x, tall * 0.74, z), (size * 1.15, size, size * 1.15), leaves, 0.085, green, rng)
    b.box((x - 0.6, x + 0.6), (0.0, 0.012), (z - 0.6, z + 0.6), m.METAL, IRON)


def build_planter(b: Builder, x: float, z: float, rng: np.random.Generator, leaves: int) -> None:
    """Add a box or pot with a bush."""
    tall = rng.uniform(0.45, 0.7)
    wide = rng.uniform(0.3, 0.45)
    if rng.random() < 0.5:
        b.box(
            (x - wide, x + wide),
            (0.0, tall),
            (z - wide, z + wide),
            m.WOOD,
            _WOODS[rng.integers(len(_WOODS))],
        )
    else:
        b.cylinder((x, z), wide, (0.0, tall), m.PAINT, (0.42, 0.19, 0.11))
    green = (0.07, 0.15, 0.04) if rng.random() < 0.6 else (0.13, 0.17, 0.05)
    b.foliage((x, tall + 0.33, z), (wide * 1.2, 0.42, wide * 1.2), leaves, 0.05, green, rng)
    bright = ((0.6, 0.08, 0.1), (0.7, 0.5, 0.08), (0.5, 0.2, 0.5))[rng.integers(3)]
    b.foliage((x, tall + 0.42, z), (wide * 1.2, 0.42, wide * 1.2), leaves // 9, 0.035, bright, rng)


def build_lamp(b: Builder, x: float, z: float) -> None:
    """Add a street lamp."""
    b.cylinder((x, z), 0.11, (0.0, 0.7), m.METAL, IRON)
    b.cylinder((x, z), 0.055, (0.7, 3.9), m.METAL, IRON)
    b.box((x - 0.3, x + 0.3), (3.3, 3.34), (z - 0.02, z + 0.02), m.METAL, IRON)
    b.ball((x, 4.15, z), (0.22, 0.26, 0.22), m.LAMP, (0.85, 0.84, 0.8))
    b.cylinder((x, z), 0.12, (4.38, 4.5), m.METAL, IRON)


def build_bench(b: Builder, x: float, z: float, rng: np.random.Generator) -> None:
    """Add a bench that looks at the street."""
    wood = _WOODS[rng.integers(len(_WOODS))]
    for k in range(4):
        front = z - 0.2 + 0.12 * k
        b.box((x - 0.8, x + 0.8), (0.42, 0.46), (front, front + 0.09), m.WOOD, wood)
    for k in range(3):
        low = 0.55 + 0.13 * k
        b.box((x - 0.8, x + 0.8), (low, low + 0.09), (z + 0.3, z + 0.34), m.WOOD, wood)
    for side in (-0.65, 0.65):
        b.box((x + side - 0.03, x + side + 0.03), (0.0, 0.42), (z - 0.2, z + 0.3), m.METAL, IRON)
        b.box((x + side - 0.03, x + side + 0.03), (0.42, 0.95), (z + 0.26, z + 0.31), m.METAL, IRON)


def build_bollards(b: Builder, low: float, high: float, z: float) -> None:
    """Add a row of bollards along the kerb."""
    for x in np.arange(low, high, 1.8):
        b.cylinder((float(x), z), 0.06, (0.0, 0.85), m.METAL, IRON)
        b.ball((float(x), 0.9, z), (0.085, 0.085, 0.085), m.METAL, IRON)


def build_crates(b: Builder, x: float, z: float, rng: np.random.Generator) -> None:
    """Add a heap of crates and a board with a word."""
    for _ in range(4):
        cx, cz = x + rng.uniform(-0.5, 0.5), z + rng.uniform(-0.25, 0.25)
        size, level = rng.uniform(0.22, 0.32), 0.34 * rng.integers(0, 2)
        turn = rng.uniform(-0.5, 0.5)
        c, s = np.cos(turn), np.sin(turn)
        axes = np.array([[c, 0.0, s], [0.0, 1.0, 0.0], [-s, 0.0, c]])
        b.turned_box(
            (cx, level + 0.17, cz),
            (size, 0.17, size),
            axes,
            m.WOOD,
            _WOODS[rng.integers(len(_WOODS))],
        )
    word = int(rng.integers(len(WORDS)))
    b.box(
        (x + 0.9, x + 1.6),
        (0.05, 0.95),
        (z - 0.2, z - 0.15),
        m.SIGN,
        (0.04, 0.05, 0.05),
        (word, 0.75, 0.74, 0.7),
    )
