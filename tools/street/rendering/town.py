"""Laying out a made street: a long front of equal windows, a wing, and what stands before it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from manymatch.datasets._geometry import rotation_matrix
from tools.street.rendering import materials as m
from tools.street.rendering import street
from tools.street.rendering.build import Builder
from tools.street.rendering.film import Film
from tools.street.rendering.house import WHITE, House, build_house
from tools.street.rendering.light import Weather

if TYPE_CHECKING:
    from tools.street.rendering.build import Colour
    from tools.street.rendering.cast import Leaves, Solids

FloatArray: TypeAlias = NDArray[np.float64]

_PLASTERS: tuple[Colour, ...] = (
    (0.56, 0.47, 0.34),
    (0.58, 0.52, 0.43),
    (0.53, 0.40, 0.30),
    (0.50, 0.50, 0.46),
    (0.60, 0.50, 0.30),
)
_SHUTTERS: tuple[Colour, ...] = ((0.10, 0.17, 0.15), (0.13, 0.17, 0.22), (0.24, 0.22, 0.19))

#: Where the wing meets the front (x), and windows in a row of the wing.
CORNER = -8.0
WING_COLUMNS = 4

#: Box (low, high) that contains everything that casts or catches shadows worth seeing.
BOUNDS = np.array([-17.5, -17.5, -14.0]), np.array([25.0, 0.1, 6.0])


@dataclass(frozen=True, eq=False)
class View:
    """One photograph: where from (world), which way (rows of R: right, down, forward), and how."""

    centre: FloatArray
    R: FloatArray
    weather: Weather
    film: Film


def build_town(rng: np.random.Generator, variety: float) -> tuple[Solids, Leaves]:
    """Draw a street; `variety` in [0, 1] says how much equal windows differ."""
    b = Builder()
    kerb = -4.2
    b.box((-90.0, 90.0), (-1.0, 0.0), (-60.0, 120.0), m.GROUND, (0.3, 0.3, 0.3), (kerb,))
    b.box((-90.0, 90.0), (0.0, 0.06), (kerb - 0.16, kerb), m.PAINT, (0.40, 0.39, 0.36))
    colour = _PLASTERS[rng.integers(len(_PLASTERS))]
    shutters = _SHUTTERS[rng.integers(len(_SHUTTERS))] if rng.random() < 0.6 else None
    main = House(
        x=CORNER, z=0.0, columns=9, period=rng.uniform(2.5, 2.8), ground=rng.uniform(3.6, 4.0),
        storeys=3, storey=rng.uniform(2.95, 3.15), window=(rng.uniform(1.05, 1.2), 1.8),
        wall=m.PLASTER, colour=colour, trim=(0.60, 0.57, 0.50), frame=WHITE, shutters=shutters,
        balcony_rows=((0,), (0, 1), (1,))[rng.integers(3)], bars=1, roof=2.6, dormers=True,
        variety=variety, mirror=1.0,
    )  # fmt: skip
    build_house(b, main)
    street.build_ground_floor(b, main, rng)
    right = House(
        x=main.end + 0.02, z=rng.uniform(1.2, 3.5), columns=5, period=rng.uniform(2.2, 2.6),
        ground=3.6, storeys=int(rng.integers(2, 4)), storey=2.9, window=(1.0, 1.5), wall=m.BRICK,
        colour=(0.36, 0.16, 0.10), trim=(0.52, 0.49, 0.42), frame=WHITE, shutters=None,
        balcony_rows=(), bars=2, roof=1.9, dormers=False, variety=0.8, mirror=0.8,
    )  # fmt: skip
    build_house(b, right)
    street.build_ground_floor(b, right, rng)
    # The wing at the left meets the front in a corner and comes towards the camera.
    wing = replace(
        main, x=-WING_COLUMNS * main.period, columns=WING_COLUMNS, z=0.0, dormers=False, roof=2.6,
        balcony_rows=(),
    )  # fmt: skip
    b.face_right(CORNER, 0.0)
    build_house(b, wing)
    street.build_ground_floor(b, wing, rng)
    b.face_front()
    street.build_bollards(b, -17.0, 17.0, kerb + 0.35)
    street.build_tree(b, rng.uniform(4.0, 6.0), kerb + 1.0, rng.uniform(6.0, 7.0), rng, 5200)
    middle = rng.uniform(-4.5, -3.0)
    for place in (-11.0, 0.0, 11.0):
        street.build_lamp(b, middle + place, kerb + 0.5)
    street.build_bench(b, rng.uniform(-1.5, 1.5), kerb + 1.3, rng)
    for x in (-6.4, -2.2, 2.2, 3.4, 7.6):
        street.build_planter(b, x + rng.uniform(-0.5, 0.5), rng.uniform(-2.6, -0.9), rng, 420)
    street.build_crates(b, rng.uniform(-2.5, 1.5), -1.4, rng)
    return b.finish()


def draw_views(rng: np.random.Generator) -> tuple[View, View]:
    """Draw two views: the second nearer, aside, and some time later."""
    start = np.array([rng.uniform(-1.5, 0.5), -1.65, rng.uniform(-15.5, -14.0)])
    side = rng.uniform(1.2, 2.2)
    move = np.array([side, rng.uniform(-0.25, 0.05), rng.uniform(2.4, 3.4)])
    target = np.array([rng.uniform(0.0, 1.5), rng.uniform(-5.4, -4.8), 0.0])
    sun = np.array([rng.uniform(-0.75, -0.35), rng.uniform(-0.8, -0.6), rng.uniform(-0.75, -0.5)])
    later = sun + np.array([rng.uniform(0.5, 0.8), rng.uniform(-0.1, 0.1), 0.0])
    clouds = rng.uniform(0.0, 9.0, 2)
    warm, cool = (1.0, 0.90, 0.76), (1.0, 0.94, 0.86)
    first = View(
        start, _look(start, target, rng), _weather(sun, cool, clouds, rng.uniform(0.35, 0.6)),
        Film(1.0, (1.0, 1.0), 0.55, 2.0),
    )  # fmt: skip
    aim = target + np.array([rng.uniform(-0.8, 0.8), rng.uniform(-0.3, 0.3), 0.0])
    second = View(
        start + move, _look(start + move, aim, rng),
        _weather(later, warm, clouds + rng.uniform(1.5, 4.0, 2), rng.uniform(0.35, 0.6)),
        Film(rng.uniform(0.8, 1.2), (rng.uniform(1.0, 1.08), rng.uniform(0.9, 1.0)), 0.65, 2.4),
    )  # fmt: skip
    return first, second


def _look(centre: FloatArray, target: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Rotation world to camera that looks at a target, held nearly upright."""
    forward = target - centre
    forward /= np.sqrt((forward**2).sum())
    right = np.cross([0.0, 1.0, 0.0], forward)
    right /= np.sqrt((right**2).sum())
    upright = np.stack([right, np.cross(forward, right), forward])
    roll = rotation_matrix(np.array([0.0, 0.0, np.deg2rad(rng.uniform(-1.5, 1.5))]))
    return np.stack([(roll[k][:, None] * upright).sum(axis=0) for k in range(3)])


def _weather(sun: FloatArray, tint: Colour, clouds: FloatArray, cover: float) -> Weather:
    return Weather(
        sun=sun / np.sqrt((sun**2).sum()),
        sun_colour=2.6 * np.array(tint),
        sky_colour=np.array([0.20, 0.38, 0.78]),
        horizon_colour=np.array([0.72, 0.80, 0.90]),
        clouds=clouds,
        cover=cover,
    )
