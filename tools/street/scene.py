"""Rendered pairs of photographs with known pose and depth: a street with a long front of windows.

The windows are nearly equal, so most of what a matcher sees in the front fits in several places;
shops, signs, a tree and the neighbouring houses do not repeat. The second view is nearer and later:
the sun and the clouds have moved, and the windows mirror what is opposite the camera.
Everything is computed by ray casting in NumPy; no picture is read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from manymatch._validate import integer, real, refusal
from manymatch.geometry.camera import Camera
from manymatch.geometry.pose import RelativePose
from tools.street import buildings
from tools.street import materials as m
from tools.street.light import ShadowMap, SkyLight, Weather
from tools.street.noise import Noise
from tools.street.photograph import Film, World, develop, radiance
from tools.street.shapes import Builder, FloatArray, Rays, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tools.street.shapes import Colour, Leaves, Solids

_PLASTERS: tuple[Colour, ...] = (
    (0.56, 0.47, 0.34), (0.58, 0.52, 0.43), (0.53, 0.40, 0.30), (0.50, 0.50, 0.46),
    (0.60, 0.50, 0.30),
)  # fmt: skip
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
    main = buildings.House(
        x=CORNER, z=0.0, columns=9, period=rng.uniform(2.5, 2.8), ground=rng.uniform(3.6, 4.0),
        storeys=3, storey=rng.uniform(2.95, 3.15), window=(rng.uniform(1.05, 1.2), 1.8),
        wall=m.PLASTER, colour=colour, trim=(0.60, 0.57, 0.50), frame=buildings.WHITE,
        shutters=shutters, balcony_rows=((0,), (0, 1), (1,))[rng.integers(3)], bars=1, roof=2.6,
        dormers=True, variety=variety, mirror=1.0,
    )  # fmt: skip
    buildings.build_house(b, main)
    buildings.build_ground_floor(b, main, rng)
    right = buildings.House(
        x=main.end + 0.02, z=rng.uniform(1.2, 3.5), columns=5, period=rng.uniform(2.2, 2.6),
        ground=3.6, storeys=int(rng.integers(2, 4)), storey=2.9, window=(1.0, 1.5),
        wall=m.BRICK, colour=(0.36, 0.16, 0.10), trim=(0.52, 0.49, 0.42), frame=buildings.WHITE,
        shutters=None, balcony_rows=(), bars=2, roof=1.9, dormers=False, variety=0.8, mirror=0.8,
    )  # fmt: skip
    buildings.build_house(b, right)
    buildings.build_ground_floor(b, right, rng)
    # The wing at the left meets the front in a corner and comes towards the camera.
    wing = replace(
        main, x=-WING_COLUMNS * main.period, columns=WING_COLUMNS, z=0.0, dormers=False, roof=2.6,
        balcony_rows=(),
    )  # fmt: skip
    b.face_right(CORNER, 0.0)
    buildings.build_house(b, wing)
    buildings.build_ground_floor(b, wing, rng)
    b.turn(0)
    buildings.build_bollards(b, -17.0, 17.0, kerb + 0.35)
    buildings.build_tree(b, rng.uniform(4.0, 6.0), kerb + 1.0, rng.uniform(6.0, 7.0), rng, 5200)
    middle = rng.uniform(-4.5, -3.0)
    for place in (-11.0, 0.0, 11.0):
        buildings.build_lamp(b, middle + place, kerb + 0.5)
    buildings.build_bench(b, rng.uniform(-1.5, 1.5), kerb + 1.3, rng)
    for x in (-6.4, -2.2, 2.2, 3.4, 7.6):
        buildings.build_planter(b, x + rng.uniform(-0.5, 0.5), rng.uniform(-2.6, -0.9), rng, 420)
    buildings.build_crates(b, rng.uniform(-2.5, 1.5), -1.4, rng)
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
        start, look_at(start, target, rng), _weather(sun, cool, clouds, rng.uniform(0.35, 0.6)),
        Film(1.0, (1.0, 1.0), 0.55, 2.0),
    )  # fmt: skip
    aim = target + np.array([rng.uniform(-0.8, 0.8), rng.uniform(-0.3, 0.3), 0.0])
    second = View(
        start + move, look_at(start + move, aim, rng),
        _weather(later, warm, clouds + rng.uniform(1.5, 4.0, 2), rng.uniform(0.35, 0.6)),
        Film(rng.uniform(0.8, 1.2), (rng.uniform(1.0, 1.08), rng.uniform(0.9, 1.0)), 0.65, 2.4),
    )  # fmt: skip
    return first, second


def look_at(centre: FloatArray, target: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Rotation world to camera that looks at a target, held nearly upright."""
    forward = target - centre
    forward /= np.sqrt((forward**2).sum())
    right = np.cross([0.0, 1.0, 0.0], forward)
    right /= np.sqrt((right**2).sum())
    upright = np.stack([right, np.cross(forward, right), forward])
    angle = np.deg2rad(rng.uniform(-1.5, 1.5))
    # 1 - cos is small and rounded first, as in Rodrigues' formula.
    c, s = 1.0 - (1.0 - np.cos(angle)), np.sin(angle)
    roll = np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
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


# Focal length in units of the longer side: a phone's main camera.
_FOCAL = 0.80
_SUN_TEXELS = 1600
_SMALLEST, _LARGEST = 8, 4096


@dataclass(frozen=True, eq=False)
class RenderedScene:
    """Two photographs (H, W, 3), sRGB, and what is true about them.

    The pose maps camera 0 to camera 1 with a unit translation; ``baseline`` is the distance of the
    cameras in metres, ``X1 = R @ X0 + baseline * t``; depth (H, W) is z in metres at the pixel
    centres, infinity in the sky.
    """

    image0: NDArray[np.uint8]
    image1: NDArray[np.uint8]
    camera0: Camera
    camera1: Camera
    pose: RelativePose
    baseline: float
    depth0: NDArray[np.float32]
    depth1: NDArray[np.float32]
    seed: int

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of both images in pixels."""
        return self.image0.shape[1], self.image0.shape[0]


def render_scene(
    seed: int = 0, size: Sequence[int] = (960, 720), *, supersample: int = 2, variety: float = 0.35
) -> RenderedScene:
    """Render two photographs of a street; the scene is a function of the arguments only.

    Parameters
    ----------
    seed : int
        Zero or more.
    size : (int, int)
        Width and height of the images in pixels, 8 to 4096.
    supersample : int
        Rays per pixel and axis, 1 to 4.
    variety : float
        How much the windows of the front differ from each other, 0 (not at all) to 1.
    """
    streams = random_streams(seed)
    views = draw_views(streams[1])
    images, depths, camera = _render(views, streams, size, supersample, variety)
    pose, baseline = between(*views)
    return RenderedScene(*images, camera, camera, pose, baseline, *depths, seed)


@dataclass(frozen=True, eq=False)
class RenderedWalk:
    """Photographs (H, W, 3) of one street, the camera of all, and the view of each."""

    images: list[NDArray[np.uint8]]
    camera: Camera
    views: list[View]

    def between(self, i: int, j: int) -> tuple[RelativePose, float]:
        """Relative pose of photographs i and j, and their distance in metres."""
        return between(self.views[i], self.views[j])


def render_walk(
    seed: int = 0,
    size: Sequence[int] = (960, 720),
    *,
    count: int = 4,
    supersample: int = 2,
    variety: float = 0.35,
) -> RenderedWalk:
    """Render a walk along a street, `count` photographs within a minute; arguments as above.

    Each photograph is about a metre from the one before, and turned towards the front.
    """
    integer(count, "count", 2, 16)
    streams = random_streams(seed)
    rng = streams[1]
    first, second = draw_views(rng)
    # Aside more than forward, so that triangles of all pairs are wide.
    step = np.array([1.1, -0.02, 0.3])
    views = [first]
    for i in range(1, count):
        centre = first.centre + i * step + rng.uniform(-0.1, 0.1, 3)
        aim = np.array([1.0 + 0.5 * i, -5.0 + rng.uniform(-0.4, 0.4), 0.0])
        views.append(View(centre, look_at(centre, aim, rng), first.weather, second.film))
    images, _, camera = _render(views, streams, size, supersample, variety)
    return RenderedWalk(images, camera, views)


def random_streams(seed: int) -> list[np.random.Generator]:
    """One stream each for town, views, noise and film: a change of one leaves the others."""
    integer(seed, "seed", 0)
    parts = np.random.SeedSequence(seed).spawn(4)
    return [np.random.Generator(np.random.PCG64(part)) for part in parts]


def between(first: View, second: View) -> tuple[RelativePose, float]:
    """Relative pose of two views, and their distance in metres."""
    R = np.stack([(second.R[k] * first.R).sum(axis=1) for k in range(3)])
    t = (second.R * (first.centre - second.centre)).sum(axis=1)
    return RelativePose(R, t), float(np.sqrt((t**2).sum()))


def _render(
    views: Sequence[View],
    streams: list[np.random.Generator],
    size: Sequence[int],
    supersample: int,
    variety: float,
) -> tuple[list[NDArray[np.uint8]], list[NDArray[np.float32]], Camera]:
    """Photographs, depths and the camera of some views of one street."""
    real(variety, "variety", 0.0, 1.0, closed=True)
    town = build_town(streams[0], variety)
    images, hits, camera = photographs(views, town, BOUNDS, streams, size, supersample)
    return images, [depth for depth, _ in hits], camera


Hits = tuple["NDArray[np.float32]", "NDArray[np.int32]"]


def photographs(
    views: Sequence[View],
    town: tuple[Solids, Leaves],
    bounds: tuple[FloatArray, FloatArray],
    streams: list[np.random.Generator],
    size: Sequence[int],
    supersample: int,
) -> tuple[list[NDArray[np.uint8]], list[Hits], Camera]:
    """Photographs, depth and shape at every pixel's centre, and the camera of some views.

    `bounds` are corners of a box that contains everything that casts or catches shadows.
    """
    if np.shape(size) != (2,):
        raise refusal("size", "a pair (width, height)", size)
    width, height = (integer(n, "size", _SMALLEST, _LARGEST) for n in size)
    integer(supersample, "supersample", 1, 4)
    _, _, noise_rng, film_rng = streams
    solids, leaves = town
    world = World(solids, leaves, Noise(noise_rng), SkyLight(solids, *bounds))
    focal = _FOCAL * max(width, height)
    K = np.array([[focal, 0.0, (width - 1) / 2], [0.0, focal, (height - 1) / 2], [0.0, 0.0, 1.0]])
    images, hits, shadow, weather = [], [], None, None
    for view in views:
        if shadow is None or view.weather is not weather:
            weather = view.weather
            shadow = ShadowMap(weather.sun, solids, leaves, *bounds, _SUN_TEXELS)
        rays, step = _rays(view, K, (width, height), supersample)
        # Highlights that would outshine a pixel's other samples are cut first, as they would alias.
        light = np.minimum(radiance(rays, world, view.weather, shadow, step, supersample), 6.0)
        fine = light.reshape(height, supersample, width, supersample, 3)
        light = fine.mean(axis=(1, 3), dtype=np.float32)
        images.append(develop(light, view.film, film_rng))
        hits.append(cast(_rays(view, K, (width, height), 1)[0], solids, leaves))
    return images, hits, Camera.from_matrix(K, width, height)


def _rays(view: View, K: FloatArray, size: tuple[int, int], supersample: int) -> tuple[Rays, float]:
    """Rays of a camera, and the angle between them in its middle.

    Sample k of an axis is at pixel ``(k + 0.5) / supersample - 0.5``.
    """
    first = 0.5 / supersample - 0.5
    step = 1.0 / (supersample * K[0, 0])
    corner = np.array([(first - K[0, 2]) / K[0, 0], (first - K[1, 2]) / K[1, 1], 1.0])
    direction = np.stack([corner, [step, 0.0, 0.0], [0.0, step, 0.0]])
    turned = (direction[:, :, None] * view.R[None]).sum(axis=1)
    origin = np.stack([view.centre, np.zeros(3), np.zeros(3)])
    return Rays(origin, turned, size[0] * supersample, size[1] * supersample), step
