"""Houses of made pictures: rows of equal windows, balconies, shops, roofs with dormers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tools.street.rendering import materials as m

if TYPE_CHECKING:
    from tools.street.rendering.build import Builder, Colour

STONE: Colour = (0.50, 0.46, 0.39)
IRON: Colour = (0.030, 0.032, 0.036)
WHITE: Colour = (0.66, 0.65, 0.61)

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
        b.box(
            (h.x, h.end), (level - thick / 2, level + thick / 2), (h.z - out, h.z), m.PAINT, h.trim
        )
    b.box((h.x, h.end), (h.eaves - 0.5, h.eaves - 0.15), (h.z - 0.12, h.z), m.PAINT, h.trim)
    tooth = h.period / 6
    for k in range(6 * h.columns):
        middle = h.x + (k + 0.5) * tooth
        b.box(
            (middle - 0.06, middle + 0.06),
            (h.eaves - 0.36, h.eaves - 0.15),
            (h.z - 0.30, h.z),
            m.PAINT,
            h.trim,
            thin=True,
        )


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
    z = h.z + _REVEAL
    aux = (h.bars, 0.3, h.variety, h.mirror)
    b.box((x - half, x + half), (sill, head), (z, z + 0.05), m.GLASS, h.frame, aux, thin=True)
    b.box((x - half - 0.12, x + half + 0.12), (sill - 0.10, sill), (h.z - 0.10, z), m.PAINT, h.trim)
    for side in (-1, 1):
        edge = x + side * half
        inner, outer = sorted((edge, edge + side * 0.13))
        b.box((inner, outer), (sill, head), (h.z - 0.035, h.z), m.PAINT, h.trim, thin=True)
    b.box(
        (x - half - 0.13, x + half + 0.13), (head, head + 0.16), (h.z - 0.05, h.z), m.PAINT, h.trim
    )
    b.box(
        (x - half - 0.2, x + half + 0.2),
        (head + 0.16, head + 0.24),
        (h.z - 0.14, h.z),
        m.PAINT,
        h.trim,
    )
    if h.shutters is not None:
        leaf = min(half, (h.period - h.window[0]) / 2 - 0.2)
        for side in (-1, 1):
            low, high = sorted((x + side * (half + 0.14), x + side * (half + 0.14 + leaf)))
            b.box(
                (low, high),
                (sill, head),
                (h.z - 0.06, h.z - 0.01),
                m.PAINT,
                h.shutters,
                (0.07,),
                thin=True,
            )


def _balcony(b: Builder, h: House, row: int) -> None:
    floor = h.ground + row * h.storey + 0.12
    deep, out = 0.75, 0.16
    for column in range(h.columns):
        x = h.x + (column + 0.5) * h.period
        half = h.window[0] / 2 + 0.34
        b.box((x - half, x + half), (floor - 0.13, floor), (h.z - deep, h.z), m.PAINT, h.trim)
        for side in (-1, 1):
            bracket = x + side * (half - 0.2)
            b.box(
                (bracket - 0.07, bracket + 0.07),
                (floor - 0.42, floor - 0.13),
                (h.z - 0.5 * deep, h.z),
                m.PAINT,
                h.trim,
                thin=True,
            )
            rail = x + side * (half - 0.03)
            b.box(
                (rail - 0.02, rail + 0.02),
                (floor + 0.9, floor + 0.95),
                (h.z - deep, h.z),
                m.METAL,
                IRON,
                thin=True,
            )
            for k in range(1, 4):
                z = h.z - deep + k * deep / 4
                b.box(
                    (rail - 0.012, rail + 0.012),
                    (floor, floor + 0.92),
                    (z - 0.012, z + 0.012),
                    m.METAL,
                    IRON,
                    thin=True,
                )
        z = h.z - deep + 0.03
        for low, high in ((0.9, 0.95), (0.06, 0.09), (0.74, 0.765)):
            b.box(
                (x - half, x + half),
                (floor + low, floor + high),
                (z - 0.02, z + 0.02),
                m.METAL,
                IRON,
                thin=True,
            )
        count = round(2 * half / out)
        for k in range(count + 1):
            bar = x - half + 2 * half * k / count
            b.box(
                (bar - 0.012, bar + 0.012),
                (floor, floor + 0.92),
                (z - 0.012, z + 0.012),
                m.METAL,
                IRON,
                thin=True,
            )


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
    b.turned_box((middle[0], -middle[1], middle[2]), half, axes, m.SLATE, slate)
    b.box((h.x, h.end), (top, top + h.roof), (h.z + 1.6, h.z + 9.0), m.SLATE, slate)
    for column in range(h.columns if h.dormers else 0):
        x = h.x + (column + 0.5) * h.period
        front = h.z + 0.12
        low, high = top + 0.25, top + 0.25 + 0.62 * h.roof
        aux = (1, 0.0, h.variety, h.mirror)
        b.box((x - 0.62, x + 0.62), (low - 0.1, high), (front, front + 1.8), m.PAINT, h.trim)
        b.box(
            (x - 0.47, x + 0.47),
            (low + 0.1, high - 0.15),
            (front - 0.03, front),
            m.GLASS,
            h.frame,
            aux,
            thin=True,
        )
        b.box(
            (x - 0.78, x + 0.78), (high, high + 0.12), (front - 0.18, front + 1.9), m.SLATE, slate
        )
    for place in (0.13, 0.52, 0.88):
        x = h.x + place * (h.end - h.x)
        tall = top + h.roof + 1.3
        b.box(
            (x - 0.55, x + 0.55), (top, tall), (h.z + 2.2, h.z + 2.9), m.BRICK, (0.33, 0.15, 0.10)
        )
        for k in range(3):
            pot = x - 0.33 + 0.33 * k
            b.cylinder((pot, h.z + 2.55), 0.10, (tall, tall + 0.45), m.PAINT, (0.40, 0.18, 0.10))
