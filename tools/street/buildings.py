"""What stands in the street: houses with rows of equal windows, shops, trees, lamps, benches."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tools.street import materials as m

if TYPE_CHECKING:
    from tools.street.shapes import Builder, Colour

STONE: Colour = (0.50, 0.46, 0.39)
IRON: Colour = (0.030, 0.032, 0.036)
WHITE: Colour = (0.66, 0.65, 0.61)

PAINTS: tuple[Colour, ...] = (
    (0.05, 0.13, 0.10), (0.30, 0.04, 0.04), (0.05, 0.09, 0.22), (0.16, 0.08, 0.04),
    (0.45, 0.33, 0.10), (0.12, 0.12, 0.13),
)  # fmt: skip
_WOODS: tuple[Colour, ...] = ((0.22, 0.12, 0.06), (0.30, 0.19, 0.10), (0.16, 0.10, 0.06))

# Shapes that stick out of a wall, in metres.
_WALL = 0.45
_REVEAL = 0.24


@dataclass(frozen=True, kw_only=True)
class House:
    """A terraced house: its front is the plane ``z``, its left end at ``x``, lengths in metres."""

    x: float
    z: float
    columns: int
    period: float
    ground: float
    storeys: int
    storey: float
    window: tuple[float, float]
    wall: int
    colour: Colour
    trim: Colour
    frame: Colour
    shutters: Colour | None
    balcony_rows: tuple[int, ...]
    bars: int
    roof: float
    dormers: bool
    variety: float
    mirror: float

    @property
    def end(self) -> float:
        """Where the right end is."""
        return self.x + self.columns * self.period

    @property
    def eaves(self) -> float:
        """Height of the eaves."""
        return self.ground + self.storeys * self.storey


def _around(middle: float, half: float) -> tuple[float, float]:
    return middle - half, middle + half


def _pick(colours: tuple[Colour, ...], rng: np.random.Generator) -> Colour:
    return colours[rng.integers(len(colours))]


def build_house(b: Builder, house: House) -> None:
    """Add a house without its ground floor's fittings."""
    _walls(b, house)
    for row in range(house.storeys):
        for column in range(house.columns):
            _window(b, house, row, column)
        if row in house.balcony_rows:
            _balcony(b, house, row)
    _roof(b, house)


def _walls(b: Builder, h: House) -> None:
    """Piers and bands in one plane: where they overlap they look the same."""
    z = (h.z, h.z + _WALL)
    gap = (h.period - h.window[0]) / 2
    for column in range(h.columns + 1):
        middle = h.x + column * h.period
        x = max(middle - gap, h.x), min(middle + gap, h.end)
        b.box(x, (h.ground, h.eaves), z, h.wall, h.colour)
    for row in range(h.storeys):
        sill, head = _opening(h, row)
        below = h.ground if row == 0 else _opening(h, row - 1)[1]
        b.box((h.x, h.end), (below, sill), z, h.wall, h.colour)
        if row == h.storeys - 1:
            b.box((h.x, h.end), (head, h.eaves), z, h.wall, h.colour)
    # The body behind, so that no light comes through; side walls show it.
    b.box((h.x, h.end), (0.0, h.eaves), (h.z + _WALL, h.z + 9.0), h.wall, h.colour)
    for level, out, thick in ((h.ground, 0.14, 0.22), (h.eaves, 0.42, 0.30)):
        b.box((h.x, h.end), _around(level, thick / 2), (h.z - out, h.z), m.PAINT, h.trim)
    b.box((h.x, h.end), (h.eaves - 0.5, h.eaves - 0.15), (h.z - 0.12, h.z), m.PAINT, h.trim)
    tooth = h.period / 6
    for k in range(6 * h.columns):
        middle = h.x + (k + 0.5) * tooth
        height, z = (h.eaves - 0.36, h.eaves - 0.15), (h.z - 0.30, h.z)
        b.centred(middle, 0.06, height, z, m.PAINT, h.trim, thin=True)


def _opening(h: House, row: int) -> tuple[float, float]:
    floor = h.ground + row * h.storey
    sill = floor + (0.25 if row in h.balcony_rows else 0.75)
    return sill, min(
        sill + h.window[1] + (0.4 if row in h.balcony_rows else 0), floor + h.storey - 0.4
    )


def _window(b: Builder, h: House, row: int, column: int) -> None:
    x = h.x + (column + 0.5) * h.period
    half = h.window[0] / 2
    sill, head = _opening(h, row)
    pane = h.z + _REVEAL
    aux = (h.bars, 0.3, h.variety, h.mirror)
    b.centred(x, half, (sill, head), (pane, pane + 0.05), m.GLASS, h.frame, aux, thin=True)
    b.centred(x, half, (sill - 0.10, sill), (h.z - 0.10, pane), m.PAINT, h.trim, margin=0.12)
    for side in (-1, 1):
        edge = x + side * half
        inner, outer = sorted((edge, edge + side * 0.13))
        b.box((inner, outer), (sill, head), (h.z - 0.035, h.z), m.PAINT, h.trim, thin=True)
    b.centred(x, half, (head, head + 0.16), (h.z - 0.05, h.z), m.PAINT, h.trim, margin=0.13)
    b.centred(x, half, (head + 0.16, head + 0.24), (h.z - 0.14, h.z), m.PAINT, h.trim, margin=0.2)
    if h.shutters is not None:
        leaf = min(half, (h.period - h.window[0]) / 2 - 0.2)
        for side in (-1, 1):
            low, high = sorted((x + side * (half + 0.14), x + side * (half + 0.14 + leaf)))
            z = (h.z - 0.06, h.z - 0.01)
            b.box((low, high), (sill, head), z, m.PAINT, h.shutters, (0.07,), thin=True)


def _balcony(b: Builder, h: House, row: int) -> None:
    floor = h.ground + row * h.storey + 0.12
    deep, out = 0.75, 0.16
    iron = functools.partial(b.centred, material=m.METAL, colour=IRON, thin=True)
    for column in range(h.columns):
        x = h.x + (column + 0.5) * h.period
        half = h.window[0] / 2 + 0.34
        b.centred(x, half, (floor - 0.13, floor), (h.z - deep, h.z), m.PAINT, h.trim)
        for side in (-1, 1):
            bracket = x + side * (half - 0.2)
            height, z = (floor - 0.42, floor - 0.13), (h.z - 0.5 * deep, h.z)
            b.centred(bracket, 0.07, height, z, m.PAINT, h.trim, thin=True)
            rail = x + side * (half - 0.03)
            iron(rail, 0.02, (floor + 0.9, floor + 0.95), (h.z - deep, h.z))
            for k in range(1, 4):
                back = h.z - deep + k * deep / 4
                iron(rail, 0.012, (floor, floor + 0.92), _around(back, 0.012))
        front = h.z - deep + 0.03
        for low, high in ((0.9, 0.95), (0.06, 0.09), (0.74, 0.765)):
            iron(x, half, (floor + low, floor + high), _around(front, 0.02))
        count = round(2 * half / out)
        for k in range(count + 1):
            bar = x - half + 2 * half * k / count
            iron(bar, 0.012, (floor, floor + 0.92), _around(front, 0.012))


def _roof(b: Builder, h: House) -> None:
    """Steep slate roof behind the eaves, dormers above the windows, chimneys."""
    top = h.eaves + 0.15
    lean = np.deg2rad(68.0)
    slope = np.array([0.0, -np.sin(lean), np.cos(lean)])
    out = np.array([0.0, -np.cos(lean), -np.sin(lean)])
    length = h.roof / np.sin(lean)
    middle = np.array([(h.x + h.end) / 2, -top, h.z + 0.1]) + slope * length / 2 - out * 0.2
    axes = np.stack([[1.0, 0.0, 0.0], -slope, out])
    half = ((h.end - h.x) / 2, length / 2, 0.2)
    slate = (0.085, 0.095, 0.115)
    b.shape((middle[0], -middle[1], middle[2]), half, m.SLATE, slate, axes=axes)
    b.box((h.x, h.end), (top, top + h.roof), (h.z + 1.6, h.z + 9.0), m.SLATE, slate)
    for column in range(h.columns if h.dormers else 0):
        x = h.x + (column + 0.5) * h.period
        front = h.z + 0.12
        low, high = top + 0.25, top + 0.25 + 0.62 * h.roof
        aux = (1, 0.0, h.variety, h.mirror)
        b.centred(x, 0.62, (low - 0.1, high), (front, front + 1.8), m.PAINT, h.trim)
        height, z = (low + 0.1, high - 0.15), (front - 0.03, front)
        b.centred(x, 0.47, height, z, m.GLASS, h.frame, aux, thin=True)
        b.centred(x, 0.78, (high, high + 0.12), (front - 0.18, front + 1.9), m.SLATE, slate)
    for place in (0.13, 0.52, 0.88):
        x = h.x + place * (h.end - h.x)
        tall = top + h.roof + 1.3
        b.centred(x, 0.55, (top, tall), (h.z + 2.2, h.z + 2.9), m.BRICK, (0.33, 0.15, 0.10))
        for k in range(3):
            pot = x - 0.33 + 0.33 * k
            b.cylinder((pot, h.z + 2.55), 0.10, (tall, tall + 0.45), m.PAINT, (0.40, 0.18, 0.10))


def build_ground_floor(b: Builder, h: House, rng: np.random.Generator) -> None:
    """Add stone piers and, between them, shops, doors and gates in changing order."""
    pier = 0.5
    words = rng.permutation(len(m.WORDS))
    for column in range(h.columns + 1):
        middle = h.x + column * h.period
        edges = max(middle - pier / 2, h.x), min(middle + pier / 2, h.end)
        b.box(edges, (0.0, h.ground - 0.1), (h.z - 0.06, h.z + 0.45), m.ASHLAR, STONE)
    b.box((h.x, h.end), (h.ground - 0.75, h.ground), (h.z, h.z + 0.45), m.ASHLAR, STONE)
    b.box((h.x, h.end), (0.0, 0.35), (h.z + 0.02, h.z + 0.45), m.ASHLAR, (0.30, 0.29, 0.27))
    for column in range(h.columns):
        x = (h.x + column * h.period + pier / 2, h.x + (column + 1) * h.period - pier / 2)
        paint = _pick(PAINTS, rng)
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
        colour = _pick(PAINTS, rng)
        b.shape((middle[0], -middle[1], middle[2]), half, m.AWNING, colour, axes=axes)
        front = h.z - deep * np.cos(lean)
        low = top - 0.35 - deep * np.sin(lean)
        wide, height = (x[0] - 0.05, x[1] + 0.05), (low - 0.2, low)
        b.box(wide, height, _around(front, 0.01), m.AWNING, colour, thin=True)


def _door(
    b: Builder, h: House, x: tuple[float, float], paint: Colour, rng: np.random.Generator
) -> None:
    top = h.ground - 0.75
    middle = (x[0] + x[1]) / 2
    half = rng.uniform(0.6, 0.75)
    b.box(x, (0.0, top), (h.z + 0.12, h.z + 0.4), m.ASHLAR, (0.42, 0.39, 0.34))
    z = (h.z + 0.05, h.z + 0.12)
    b.centred(middle, half, (0.0, 2.35), z, m.WOOD, _pick(_WOODS, rng))
    height, z, aux = (2.4, top - 0.1), (h.z + 0.06, h.z + 0.12), (2, 0.0, 1.0, 0.4)
    b.centred(middle, half, height, z, m.GLASS, paint, aux, thin=True)
    for side in (-1, 1):
        low, high = sorted((middle + side * half, middle + side * (half + 0.16)))
        b.box((low, high), (0.0, top), (h.z - 0.04, h.z + 0.12), m.PAINT, STONE)
    b.centred(
        middle, half, (0.0, 0.15), (h.z - 0.4, h.z + 0.1), m.PAINT, (0.36, 0.34, 0.31), margin=0.3
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
        b.shape((middle[0], -middle[1], middle[2]), (0.035, length, 0.035), m.BARK, bark, axes=axes)
    size = tall * 0.24
    green = (0.105, 0.19, 0.035)
    b.foliage((x, tall * 0.74, z), (size * 1.15, size, size * 1.15), leaves, 0.085, green, rng)
    b.centred(x, 0.6, (0.0, 0.012), _around(z, 0.6), m.METAL, IRON)


def build_planter(b: Builder, x: float, z: float, rng: np.random.Generator, leaves: int) -> None:
    """Add a box or pot with a bush."""
    tall = rng.uniform(0.45, 0.7)
    wide = rng.uniform(0.3, 0.45)
    if rng.random() < 0.5:
        b.centred(x, wide, (0.0, tall), _around(z, wide), m.WOOD, _pick(_WOODS, rng))
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
    b.centred(x, 0.3, (3.3, 3.34), _around(z, 0.02), m.METAL, IRON)
    b.ball((x, 4.15, z), (0.22, 0.26, 0.22), m.LAMP, (0.85, 0.84, 0.8))
    b.cylinder((x, z), 0.12, (4.38, 4.5), m.METAL, IRON)


def build_bench(b: Builder, x: float, z: float, rng: np.random.Generator) -> None:
    """Add a bench that looks at the street."""
    wood = _pick(_WOODS, rng)
    for k in range(4):
        front = z - 0.2 + 0.12 * k
        b.centred(x, 0.8, (0.42, 0.46), (front, front + 0.09), m.WOOD, wood)
    for k in range(3):
        low = 0.55 + 0.13 * k
        b.centred(x, 0.8, (low, low + 0.09), (z + 0.3, z + 0.34), m.WOOD, wood)
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
        wood = _pick(_WOODS, rng)
        b.shape((cx, level + 0.17, cz), (size, 0.17, size), m.WOOD, wood, axes=axes)
    word = int(rng.integers(len(m.WORDS)))
    board, aux = (0.04, 0.05, 0.05), (word, 0.75, 0.74, 0.7)
    b.box((x + 0.9, x + 1.6), (0.05, 0.95), (z - 0.2, z - 0.15), m.SIGN, board, aux)
