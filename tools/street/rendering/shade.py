"""From rays to light: cast, look up materials, add sun and sky."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tools.street.rendering import materials as m
from tools.street.rendering.cast import BALL, BOX, NOTHING, Leaves, Rays, Solids, cast
from tools.street.rendering.glass import glass
from tools.street.rendering.light import ShadowMap, SkyLight, Weather, sky

if TYPE_CHECKING:
    from tools.street.rendering.noise import Noise

Array: TypeAlias = NDArray[Any]
IdArray: TypeAlias = NDArray[np.int32]

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
        through, frame, paint = glass(
            s, world.noise, weather, ambient + sun_colour * direct[:, None]
        )
        framed = frame[:, None]
        return np.asarray(through * (1 - framed) + paint * light * framed, dtype=np.float32)
    colour = m.albedo(kind, s, world.noise) * light
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
