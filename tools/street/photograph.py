"""From rays to a photograph: materials lit by sun and sky, then lens, exposure and grain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tools.street import materials as m
from tools.street.light import ShadowMap, SkyLight, Weather, sky
from tools.street.shapes import BALL, BOX, NOTHING, Array, IdArray, Leaves, Rays, Solids, cast

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tools.street.noise import Noise

# Samples that are shaded at once: the arrays of a block stay in the cache.
_BLOCK = 1 << 16
_GLOSS = {m.METAL: 0.25, m.PAINT: 0.05, m.SIGN: 0.08, m.SLATE: 0.10, m.LAMP: 0.3, m.GROUND: 0.03}


@dataclass(frozen=True, eq=False)
class World:
    """Everything that both views share."""

    solids: Solids
    leaves: Leaves
    noise: Noise
    light: SkyLight


def radiance(
    rays: Rays, world: World, weather: Weather, shadow: ShadowMap, step: float, supersample: int
) -> Array:
    """Linear light (height, width, 3) along the rays of a camera.

    `step` is the angle between neighbouring samples in radians, `supersample` the number of samples
    on a side of a pixel.
    """
    t, hit = cast(rays, world.solids, world.leaves)
    flat_t, flat_hit = t.reshape(-1), hit.reshape(-1)
    # One more entry for the rays that hit nothing, which index -1 finds.
    kinds = np.concatenate(
        [world.solids.material, np.full(len(world.leaves.radius), m.LEAF), [NOTHING]]
    )
    material = kinds[flat_hit].astype(np.int8)
    leader = _leaders(hit, supersample)
    first = leader == np.arange(t.size)
    ambient = np.zeros((t.size, 4), dtype=np.float32)
    out = np.zeros((t.size, 3), dtype=np.float32)
    for kind, leads in [(k, lead) for k in np.unique(material) for lead in (True, False)]:
        samples = np.flatnonzero((material == kind) & (first == leads))
        for start in range(0, len(samples), _BLOCK):
            block = samples[start : start + _BLOCK]
            o, d = rays.at(
                (block % rays.width).astype(np.float32), (block // rays.width).astype(np.float32)
            )
            length = np.sqrt(d[0] * d[0] + d[1] * d[1] + d[2] * d[2])
            view = [a / length for a in d]
            if kind == NOTHING:
                out[block] = sky(weather, world.noise, view, step)
                continue
            depth = flat_t[block]
            point = [o[k] + depth * d[k] for k in range(3)]
            surface = _surface(world, flat_hit[block], point, view, depth * np.float32(step))
            if leads:
                ambient[block] = world.light(weather, surface.point, surface.normal)
            light = _shade(int(kind), surface, world, weather, shadow, ambient[leader[block]])
            haze = (depth * np.float32(1 / 900.0))[:, None]
            out[block] = light + haze * (weather.horizon_colour.astype(np.float32) - light)
    return out.reshape(*t.shape, 3)


def _leaders(hit: IdArray, supersample: int) -> NDArray[np.int64]:
    """Sample (N,) whose sky light serves a sample: its pixel's first one if both hit one shape."""
    height, width = hit.shape
    corner = np.s_[::supersample, ::supersample]
    place = np.arange(hit.size).reshape(height, width)
    blown = [np.repeat(np.repeat(a[corner], supersample, 0), supersample, 1) for a in (place, hit)]
    return np.where(blown[1] == hit, blown[0], place).reshape(-1)


def _surface(
    world: World, index: IdArray, point: list[Array], view: list[Array], spacing: Array
) -> m.Surface:
    solids, leaves = world.solids, world.leaves
    if index[0] >= len(solids.kind):
        row = index - len(solids.kind)
        normal = [leaves.normal[row, k].astype(np.float32) for k in range(3)]
        zero = np.zeros(len(row), dtype=np.float32)
        away = sum(normal[k] * view[k] for k in range(3)) > 0
        normal = [np.where(away, -a, a) for a in normal]
        aux = np.zeros((len(row), 4), dtype=np.float32)
        nothing = [zero, zero, zero]
        return m.Surface(point, normal, view, nothing, nothing, nothing, zero, zero, spacing,
                         leaves.colour[row], aux, index)  # fmt: skip
    off = [point[k] - solids.centre[index, k].astype(np.float32) for k in range(3)]
    axes = solids.axes.astype(np.float32)[index]
    local = _own(axes, off)
    half = [solids.half[index, k].astype(np.float32) for k in range(3)]
    kind = solids.kind[index]
    reach = np.stack([np.abs(local[k]) - half[k] for k in range(3)])
    face = np.argmax(reach, axis=0)
    own = []
    lid = (kind != BOX) & (kind != BALL) & (np.abs(local[1]) > half[1] - 1e-3)
    for k in range(3):
        flat = np.sign(local[k]) * (face == k)
        bent = local[k] / (half[k] * half[k])
        upright = np.where(lid, np.sign(local[k]) * (k == 1), bent if k != 1 else 0.0)
        own.append(np.where(kind == BOX, flat, np.where(kind == BALL, bent, upright)))
    normal = [sum(axes[:, j, k] * own[j] for j in range(3)) for k in range(3)]
    size = np.sqrt(sum(a * a for a in normal))
    normal = [np.asarray(a / size, dtype=np.float32) for a in normal]
    # Textures run in the shape's own directions but start at the world's origin, so that walls
    # made of several boxes have one pattern.
    whole = _own(axes, point)
    u = np.where(face == 0, whole[2], whole[0])
    v = np.where(face == 1, whole[2], whole[1])
    sight = _own(axes, view)
    return m.Surface(point, normal, view, local, sight, half, u, v, spacing, solids.colour[index],
                     solids.aux[index], index)  # fmt: skip


def _own(axes: Array, vector: list[Array]) -> list[Array]:
    """Components of a vector along the rows of axes (N, 3, 3)."""
    return [np.asarray(sum(axes[:, j, k] * vector[k] for k in range(3))) for j in range(3)]


def _shade(
    kind: int, s: m.Surface, world: World, weather: Weather, shadow: ShadowMap, sky_light: Array
) -> Array:
    towards = weather.sun.astype(np.float32)
    cosine = sum(s.normal[k] * towards[k] for k in range(3))
    lifted = [p + np.float32(0.02) * n for p, n in zip(s.point, s.normal, strict=True)]
    lit = shadow.lit(lifted, soft=True)
    ambient, seen = sky_light[:, :3], sky_light[:, 3]
    sun_colour = weather.sun_colour.astype(np.float32)
    direct = np.maximum(cosine, 0.0) * lit
    if kind == m.LEAF:
        # Light also comes through a leaf from behind.
        direct = (0.75 * np.maximum(cosine, 0.0) + 0.45 * np.maximum(-cosine, 0.0) + 0.12) * lit
    # What the sunlit street and fronts send back, from below and from the front.
    back = 0.10 * (0.6 + 0.6 * np.clip(s.normal[1], -0.5, 1.0)) * (0.35 + 0.65 * seen)
    light = ambient + sun_colour * direct[:, None] + back[:, None] * sun_colour
    if kind == m.GLASS:
        through, frame, paint = m.glass(
            s, world.noise, weather, ambient + sun_colour * direct[:, None]
        )
        framed = frame[:, None]
        return np.asarray(through * (1 - framed) + paint * light * framed, dtype=np.float32)
    colour = m.ALBEDO[kind](s, world.noise) * light
    gloss = _GLOSS.get(kind, 0.0)
    if gloss:
        colour = colour + _shine(s, weather, gloss, lit, ambient)
    return np.asarray(colour, dtype=np.float32)


def _shine(s: m.Surface, weather: Weather, gloss: float, lit: Array, ambient: Array) -> Array:
    """Highlight of the sun, and sky mirrored at grazing angles."""
    facing = -sum(s.normal[k] * s.view[k] for k in range(3))
    towards = weather.sun.astype(np.float32)
    mirrored = [s.view[k] + 2 * facing * s.normal[k] for k in range(3)]
    aligned = np.maximum(sum(mirrored[k] * towards[k] for k in range(3)), 0.0)
    spot = (gloss * 3.0 * lit * aligned**24)[:, None] * weather.sun_colour.astype(np.float32)
    graze = (gloss * (1 - np.clip(facing, 0, 1)) ** 4)[:, None] * ambient
    return np.asarray(spot + graze, dtype=np.float32)


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
