"""Places that look the same from several sides: many photographs with true cameras and overlap.

A courtyard with equal fronts, a street of equal houses, a kiosk and a cup with equal sides. Most
pairs of photographs that resemble each other do not show the same thing. ``variety`` says how much
there is to tell the sides apart: shops, signs, plants, stains and the depth of the fronts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from manymatch._validate import choice, integer, real
from tools.street import buildings
from tools.street import materials as m
from tools.street.light import Weather
from tools.street.photograph import Film
from tools.street.scene import View, look_at, photographs, random_streams
from tools.street.shapes import NOTHING, Builder, FloatArray

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from manymatch.geometry.camera import Camera
    from tools.street.shapes import Colour, Leaves, Solids

Kind = Literal["courtyard", "street", "kiosk", "cup"]
KINDS: tuple[Kind, ...] = get_args(Kind)
# Every such pixel of an image is looked up in another to measure overlap.
_STRIDE = 2
# Surfaces whose depths differ by less than this share are the same one.
_SAME_DEPTH = 0.01
# What does not count as overlap: it looks alike all over the place.
_FLOOR = (m.GROUND, m.PLAIN)
_WALLS: tuple[Colour, ...] = ((0.56, 0.47, 0.34), (0.53, 0.40, 0.30), (0.50, 0.50, 0.46))


@dataclass(frozen=True, eq=False)
class RenderedPlace:
    """Photographs (H, W, 3) of one place, the camera of all, the view of each, and its surfaces.

    ``depths`` (H, W) are z in metres at the centres of pixels, infinity in the sky; ``surfaces``
    (H, W) are numbers of shapes, negative in the sky; ``counts`` (H, W) says where a pixel counts
    for overlap: not in the sky and not on the floor.
    """

    images: list[NDArray[np.uint8]]
    camera: Camera
    views: list[View]
    depths: list[NDArray[np.float32]]
    surfaces: list[NDArray[np.int32]]
    counts: list[NDArray[np.bool_]]

    def translation(self, i: int) -> FloatArray:
        """Return the translation t of photograph i, world to camera: ``X_i = R X + t``."""
        return np.asarray(-(self.views[i].R * self.views[i].centre).sum(axis=1))

    def warp(self, i: int, j: int, pixels: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Where whole pixels (N, 2) of photograph i are in j, and their depths (N,) there."""
        at = pixels.astype(np.int64)
        depth = self.depths[i][at[:, 1], at[:, 0]].astype(np.float64)
        K, first, second = self.camera.K, self.views[i], self.views[j]
        rays = np.c_[(pixels - K[:2, 2]) / [K[0, 0], K[1, 1]], np.ones(len(pixels))]
        with np.errstate(invalid="ignore", divide="ignore"):
            world = (rays * depth[:, None]) @ first.R + first.centre
            own = (world - second.centre) @ second.R.T
            return own[:, :2] / own[:, 2:] * [K[0, 0], K[1, 1]] + K[:2, 2], own[:, 2]

    def seen(self, i: int, j: int, pixels: FloatArray) -> NDArray[np.bool_]:
        """Whether photograph j shows what is at whole pixels (N, 2) of photograph i."""
        there, depth = self.warp(i, j, pixels)
        height, width = self.depths[j].shape
        with np.errstate(invalid="ignore"):
            inside = (there >= -0.5).all(axis=1) & (there < [width - 0.5, height - 0.5]).all(axis=1)
            inside &= depth > 0
        at = np.rint(np.where(inside[:, None], there, 0.0)).astype(np.int64)
        found = self.depths[j][at[:, 1], at[:, 0]]
        with np.errstate(invalid="ignore"):
            return np.asarray(inside & (np.abs(found - depth) < _SAME_DEPTH * depth))

    def overlap(self) -> FloatArray:
        """Share of the pixels of photograph i that j shows, (n, n); sky and floor do not count."""
        count = len(self.images)
        share = np.zeros((count, count))
        for i in range(count):
            grid = np.argwhere(self.counts[i][::_STRIDE, ::_STRIDE])[:, ::-1] * float(_STRIDE)
            for j in range(count):
                share[i, j] = self.seen(i, j, grid).mean() if len(grid) else 0.0
        return share


def render_place(
    kind: Kind = "courtyard",
    seed: int = 0,
    size: Sequence[int] = (640, 480),
    *,
    count: int = 24,
    variety: float = 0.3,
    supersample: int = 2,
) -> RenderedPlace:
    """Render photographs of one place from all sides; a function of the arguments only.

    Parameters
    ----------
    kind : {"courtyard", "street", "kiosk", "cup"}
        A courtyard with four equal fronts (with an odd seed, opposite ones are equal); a street
        with equal houses on both sides; a kiosk whose opposite sides (odd seed: all sides) are
        equal; a cup with a handle and the same motif two (odd seed: three) times.
    seed : int
        Zero or more.
    size : (int, int)
        Width and height of the images in pixels, 8 to 4096.
    count : int
        Number of photographs, 2 to 2,000.
    variety : float
        How much there is to tell equal sides apart, 0 (next to nothing) to 1.
    supersample : int
        Rays per pixel and axis, 1 to 4.
    """
    choice(kind, "kind", KINDS)
    integer(count, "count", 2, 2000)
    real(variety, "variety", 0.0, 1.0, closed=True)
    streams = random_streams(seed)
    build, walk, reach = _PLACES[kind]
    town = build(streams[0], variety, seed)
    places = walk(streams[1], count)
    weather = _weather(streams[1], clear=kind in ("kiosk", "cup"))
    views = [
        View(centre, look_at(centre, target, streams[1]), weather, _film(streams[1]))
        for centre, target in places
    ]
    bounds = np.array([-reach[0], -reach[1], -reach[2]]), np.array([reach[0], 0.1, reach[2]])
    images, hits, camera = photographs(views, town, bounds, streams, size, supersample)
    solids = town[0]
    floor = np.append(np.isin(solids.material, _FLOOR), False)
    counts = [(hit != NOTHING) & ~floor[np.minimum(hit, len(solids.material))] for _, hit in hits]
    depths, surfaces = ([pair[k] for pair in hits] for k in (0, 1))
    return RenderedPlace(images, camera, views, depths, surfaces, counts)


def _weather(rng: np.random.Generator, *, clear: bool) -> Weather:
    """Thin cloud: all sides of a place look much the same under it."""
    sun = np.array([rng.uniform(-0.5, 0.5), -1.0, rng.uniform(-0.5, 0.5)])
    return Weather(
        sun=sun / np.sqrt((sun**2).sum()),
        sun_colour=rng.uniform(0.5, 1.2) * np.array([1.0, 0.95, 0.88]),
        sky_colour=np.array([0.55, 0.62, 0.72]),
        horizon_colour=np.array([0.78, 0.80, 0.84]),
        clouds=rng.uniform(0.0, 9.0, 2),
        cover=-1.0 if clear else rng.uniform(0.3, 0.6),
    )


def _film(rng: np.random.Generator) -> Film:
    white = float(rng.uniform(0.98, 1.04)), float(rng.uniform(0.96, 1.02))
    return Film(float(rng.uniform(0.9, 1.1)), white, float(rng.uniform(0.45, 0.65)), 2.0)


# ------------------------------------------------------------------------------- courtyard

_SIDE = 11.0
Places = list[tuple[FloatArray, FloatArray]]


def _house(
    rng: np.random.Generator, columns: int, period: float, variety: float
) -> buildings.House:
    return buildings.House(
        x=0.0, z=0.0, columns=columns, period=period, ground=rng.uniform(3.6, 4.0), storeys=3,
        storey=rng.uniform(2.95, 3.15), window=(rng.uniform(1.05, 1.2), 1.8),
        wall=(m.PLASTER, m.BRICK)[rng.integers(2)], colour=_WALLS[rng.integers(len(_WALLS))],
        trim=(0.60, 0.57, 0.50), frame=buildings.WHITE,
        shutters=(0.10, 0.17, 0.15) if rng.random() < 0.5 else None,
        balcony_rows=((0,), (1,), ())[rng.integers(3)], bars=int(rng.integers(1, 3)), roof=2.6,
        dormers=bool(rng.random() < 0.6), variety=variety, mirror=0.6,
    )  # fmt: skip


def _courtyard(rng: np.random.Generator, variety: float, seed: int) -> tuple[Solids, Leaves]:
    b = Builder()
    b.box((-40.0, 40.0), (-1.0, 0.0), (-40.0, 40.0), m.GROUND, (0.3, 0.3, 0.3), (-90.0,))
    types = [_house(rng, 8, 2 * _SIDE / 8, variety) for _ in range(2)]
    for side in range(4):
        kind = side % 2 if seed % 2 else 0
        # Turned about the middle, equal fronts have equal textures, unless they are set back.
        b.turn(side)
        house = replace(types[kind], x=-_SIDE, z=_SIDE + 3.0 * variety * rng.random())
        buildings.build_house(b, house)
        own = rng.random() < variety
        buildings.build_ground_floor(b, house, np.random.default_rng([seed, kind, own * side]))
        for _ in range(rng.poisson(6.0 * variety)):
            x, z = rng.uniform(1 - _SIDE, _SIDE - 1), house.z - rng.uniform(0.7, 1.6)
            buildings.build_planter(b, x, z, rng, 300)
        if rng.random() < variety:
            buildings.build_bench(b, rng.uniform(-6.0, 6.0), house.z - 1.4, rng)
        if rng.random() < variety:
            buildings.build_crates(b, rng.uniform(-7.0, 7.0), house.z - 1.2, rng)
        buildings.build_lamp(b, 0.0, _SIDE - 2.2)
        # The corner, which is open where a front is set back.
        corner = (_SIDE, _SIDE + 4.0)
        b.box(corner, (0.0, house.eaves), corner, house.wall, house.colour)
    b.turn(0)
    if rng.random() < variety:
        buildings.build_tree(b, *rng.uniform(-3.0, 3.0, 2), rng.uniform(5.0, 6.0), rng, 3500)
    return b.finish()


def _ring(rng: np.random.Generator, count: int) -> Places:
    """Photographs of a front from the other side of the courtyard, all the way round."""
    places = []
    for k in range(count):
        angle = 2 * np.pi * (k + rng.uniform(-0.25, 0.25)) / count
        towards = np.array([np.sin(angle), 0.0, np.cos(angle)])
        centre = -rng.uniform(4.0, 7.0) * towards + [0.0, -rng.uniform(1.5, 1.8), 0.0]
        target = _SIDE * towards + [0.0, -rng.uniform(4.5, 6.0), 0.0] + rng.uniform(-1.0, 1.0, 3)
        places.append((centre, target))
    return places


# ---------------------------------------------------------------------------------- street

_WIDTH, _HOUSES, _PERIOD = 7.0, 6, 2.6


def _row_of_houses(rng: np.random.Generator, variety: float, seed: int) -> tuple[Solids, Leaves]:
    b = Builder()
    b.box((-90.0, 90.0), (-1.0, 0.0), (-60.0, 60.0), m.GROUND, (0.3, 0.3, 0.3), (-90.0,))
    kind, last = _house(rng, 4, _PERIOD, variety), _house(rng, 6, _PERIOD, variety)
    length = 4 * _PERIOD
    for side in (0, 2):
        b.turn(side)
        for k in range(_HOUSES):
            look = kind
            if rng.random() < variety:
                look = replace(kind, colour=_WALLS[rng.integers(len(_WALLS))])
            house = replace(look, x=(k - _HOUSES / 2) * length, z=_WIDTH)
            buildings.build_house(b, house)
            own = rng.random() < variety
            number = (1 + side) * 10 + k if own else 0
            buildings.build_ground_floor(b, house, np.random.default_rng([seed, number]))
            for _ in range(rng.poisson(2.0 * variety)):
                x, z = house.x + rng.uniform(1.0, length - 1.0), _WIDTH - rng.uniform(0.7, 1.5)
                buildings.build_planter(b, x, z, rng, 300)
            buildings.build_lamp(b, house.x + 0.5 * length, _WIDTH - 2.4)
    b.turn(1)
    house = replace(last, x=-3 * _PERIOD, z=0.5 * _HOUSES * length + 2.0)
    buildings.build_house(b, house)
    buildings.build_ground_floor(b, house, rng)
    b.turn(0)
    return b.finish()


def _walk(rng: np.random.Generator, count: int) -> Places:
    """Along one side, round at the house at the end, and back along the other."""
    turning = max(2, count // 6)
    there = (count - turning) // 2
    end = 0.5 * _HOUSES * 4 * _PERIOD - 8.0
    places = []
    for k in range(count):
        if k < there:
            x, angle, z = end * (2 * k / max(there - 1, 1) - 1), 25.0, -3.5
        elif k < there + turning:
            part = (k - there + 1) / (turning + 1)
            x, angle, z = end, 25.0 + 130.0 * part, -3.5 + 7.0 * part
        else:
            back = (k - there - turning) / max(count - there - turning - 1, 1)
            x, angle, z = end * (1 - 2 * back), 205.0 if back > 0 else 180.0, 3.5
        turn = np.deg2rad(angle + rng.uniform(-4.0, 4.0))
        centre = np.array([x, -1.65, z]) + rng.uniform(-0.3, 0.3, 3)
        forward = np.array([np.sin(turn), -rng.uniform(0.2, 0.3), np.cos(turn)])
        places.append((centre, centre + 10.0 * forward))
    return places


# --------------------------------------------------------------------------------- objects


def _kiosk(rng: np.random.Generator, variety: float, seed: int) -> tuple[Solids, Leaves]:
    b = Builder()
    b.box((-9.0, 9.0), (-1.0, 0.0), (-9.0, 9.0), m.PLAIN, (0.30, 0.30, 0.29))
    half, equal = 1.2, 4 if seed % 2 else 2
    paint = buildings.PAINTS[rng.integers(len(buildings.PAINTS))]
    words = rng.permutation(len(m.WORDS))
    patterns = rng.integers(0, 40, 4)
    for side in range(4):
        b.turn(side)
        kind = side % (4 // equal)
        front, out = -half - 0.2, half + 0.3
        b.box((-half - 0.2, half + 0.2), (0.0, 2.5), (front, -half), m.PAINT, paint)
        b.box((-out, out), (2.5, 2.62), (-out - 0.05, 0.0), m.PAINT, (0.5, 0.5, 0.46))
        word = int(words[kind])
        look = (m.SIGN, (0.6, 0.58, 0.5), (word, 0.3, 0.04, 0.04))
        b.box((-1.1, 1.1), (2.05, 2.42), (front - 0.03, front), *look)
        aux = (2 - kind, 0.3, 0.0, 0.3)
        b.box((-0.75, 0.75), (1.0, 1.95), (front - 0.02, front), m.GLASS, paint, aux)
        b.box((-0.95, 0.95), (0.9, 0.97), (front - 0.3, front), m.PAINT, (0.45, 0.42, 0.36))
        for place, pattern in ((-1.1, patterns[kind]), (1.1, patterns[2 + kind])):
            at = (place - 0.25, place + 0.25)
            cream, aux = (0.66, 0.63, 0.55), (4, int(pattern), 0.0, 0.0)
            b.box(at, (0.15, 1.95), (front - 0.015, front), m.MOTIF, cream, aux)
        lower = (4, int(patterns[kind]) + 3, 0.0, 0.0)
        b.box((-0.7, 0.7), (0.1, 0.8), (front - 0.015, front), m.MOTIF, (0.5, 0.5, 0.5), lower)
        for _ in range(rng.poisson(1.5 * variety)):
            low, left = rng.uniform(0.2, 1.6), rng.uniform(-1.2, 0.9)
            ink = tuple(rng.uniform(0.05, 0.5, 3))
            word = int(rng.integers(len(m.WORDS)))
            look = (m.SIGN, tuple(rng.uniform(0.2, 0.7, 3)), (word, *ink))
            z = (front - 0.03, front - 0.01)
            b.box((left, left + 0.3), (low, low + 0.2), z, *look)
        if rng.random() < variety:
            x, z = rng.uniform(-1.0, 1.0), front - rng.uniform(0.6, 1.0)
            buildings.build_planter(b, x, z, rng, 300)
    b.turn(0)
    return b.finish()


def _cup(rng: np.random.Generator, variety: float, seed: int) -> tuple[Solids, Leaves]:
    b = Builder()
    b.box((-9.0, 9.0), (-1.0, 0.0), (-9.0, 9.0), m.PLAIN, (0.34, 0.33, 0.31))
    glaze: Colour = (0.68, 0.66, 0.60)
    aux = (3 if seed % 2 else 2, int(rng.integers(0, 40)), variety, 1.0)
    b.cylinder((0.0, 0.0), 1.0, (0.05, 2.3), m.MOTIF, glaze, aux)
    b.cylinder((0.0, 0.0), 0.9, (0.0, 2.302), m.PLAIN, (0.05, 0.04, 0.03))
    b.cylinder((0.0, 0.0), 1.03, (2.22, 2.3), m.PLAIN, (0.05, 0.09, 0.22))
    for k in range(9):
        angle = np.pi * (k / 8 - 0.5)
        centre = 1.0 + 0.6 * np.cos(angle), 1.2 + 0.65 * np.sin(angle), 0.0
        b.ball(centre, (0.14, 0.14, 0.11), m.PLAIN, (0.05, 0.09, 0.22))
    return b.finish()


def _around(radius: float, middle: float, height: float) -> Any:
    def walk(rng: np.random.Generator, count: int) -> Places:
        places = []
        for k in range(count):
            angle = 2 * np.pi * (k + rng.uniform(-0.2, 0.2)) / count
            towards = np.array([np.sin(angle), 0.0, np.cos(angle)])
            up = np.array([0.0, -height * rng.uniform(0.9, 1.15), 0.0])
            target = np.array([0.0, -middle, 0.0]) + rng.uniform(-0.1, 0.1, 3)
            places.append((-radius * rng.uniform(0.92, 1.1) * towards + up, target))
        return places

    return walk


# Shapes of a place, where photographs are taken and what they aim at, half extents of its shadows.
_PLACES = {
    "courtyard": (_courtyard, _ring, (21.0, 17.0, 21.0)),
    "street": (_row_of_houses, _walk, (40.0, 17.0, 17.0)),
    "kiosk": (_kiosk, _around(4.2, 1.3, 1.7), (9.0, 3.0, 9.0)),
    "cup": (_cup, _around(4.0, 1.1, 2.4), (9.0, 3.0, 9.0)),
}
