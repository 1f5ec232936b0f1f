"""Light: sun with cast shadows, sky light with occlusion, the sky itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tools.street.noise import Noise, smoothstep
from tools.street.shapes import Array, FloatArray, Leaves, Rays, Solids, cast

# Directions from which the sky shines, and texels on a side of their shadow maps.
_SKY_DIRECTIONS = 18
_SKY_TEXELS = 320
# A surface is not in its own shadow: what is nearer than this, in metres, does not count.
_BIAS = 0.05


@dataclass(frozen=True, eq=False)
class Weather:
    """The light of one view: ``sun`` unit direction towards the sun, colours linear RGB (3,).

    ``clouds`` shifts the clouds, ``cover`` in [0, 1] says how many there are.
    """

    sun: FloatArray
    sun_colour: FloatArray
    sky_colour: FloatArray
    horizon_colour: FloatArray
    clouds: FloatArray
    cover: float


class ShadowMap:
    """What parallel light from the unit direction ``towards`` reaches.

    ``low`` and ``high`` are corners of a box with everything that matters, and ``texels`` is the
    number of texels on the longer side of the map.
    """

    def __init__(
        self,
        towards: FloatArray,
        solids: Solids,
        leaves: Leaves | None,
        low: FloatArray,
        high: FloatArray,
        texels: int,
    ) -> None:
        across = np.cross(towards, np.array([0.0, 1.0, 0.0]))
        across /= np.sqrt((across**2).sum())
        up = np.cross(across, towards)
        corners = np.array([[x, y, z] for x in (low[0], high[0]) for y in (low[1], high[1])
                            for z in (low[2], high[2])])  # fmt: skip
        u, v, w = ((corners * axis).sum(axis=1) for axis in (across, up, towards))
        self._step = float(max(np.ptp(u), np.ptp(v)) / texels)
        size = [int(np.ceil(np.ptp(a) / self._step)) + 2 for a in (u, v)]
        self._axes = [a.astype(np.float32) for a in (across, up, towards)]
        self._low = float(u.min()), float(v.min()), float(w.max() + 1.0)
        origin = across * (u.min() - 0.5 * self._step) + up * (v.min() - 0.5 * self._step)
        origin += towards * self._low[2]
        zero = np.zeros(3)
        rays = Rays(
            np.stack([origin, across * self._step, up * self._step]),
            np.stack([-towards, zero, zero]),
            size[0],
            size[1],
        )
        self._distance, _ = cast(rays, solids, leaves)

    def lit(self, point: list[Array], *, soft: bool) -> Array:
        """Share of the light that arrives at world points (N,), in [0, 1]."""
        u, v, w = (a[0] * point[0] + a[1] * point[1] + a[2] * point[2] for a in self._axes)
        column = (u - np.float32(self._low[0])) * np.float32(1 / self._step) + np.float32(0.5)
        row = (v - np.float32(self._low[1])) * np.float32(1 / self._step) + np.float32(0.5)
        behind = np.float32(self._low[2] - _BIAS) - w
        height, width = self._distance.shape
        table = self._distance.reshape(-1)
        if not soft:
            c = np.clip(np.rint(column), 0, width - 1).astype(np.int32)
            r = np.clip(np.rint(row), 0, height - 1).astype(np.int32)
            return np.asarray(table[r * np.int32(width) + c] >= behind, dtype=np.float32)
        c = np.clip(np.floor(column), 0, width - 2).astype(np.int32)
        r = np.clip(np.floor(row), 0, height - 2).astype(np.int32)
        a, b = np.clip(column - c, 0, 1), np.clip(row - r, 0, 1)
        at = r * np.int32(width) + c
        top = (table[at] >= behind) * (1 - a) + (table[at + 1] >= behind) * a
        below = (table[at + width] >= behind) * (1 - a) + (table[at + width + 1] >= behind) * a
        return np.asarray(top * (1 - b) + below * b, dtype=np.float32)


class SkyLight:
    """Light of the whole sky: shadow maps from evenly spread directions of the upper half."""

    def __init__(self, solids: Solids, low: FloatArray, high: FloatArray) -> None:
        thick = np.flatnonzero(~solids.thin)
        coarse = Solids(*(getattr(solids, name)[thick] for name in Solids.__dataclass_fields__))
        # A spiral in which every direction stands for the same solid angle.
        place = np.arange(_SKY_DIRECTIONS) + 0.5
        height = place / _SKY_DIRECTIONS
        turn = place * (np.pi * (3.0 - np.sqrt(5.0)))
        flat = np.sqrt(1.0 - height**2)
        self._towards = np.stack([flat * np.cos(turn), -height, flat * np.sin(turn)], axis=1)
        self._maps = [ShadowMap(d, coarse, None, low, high, _SKY_TEXELS) for d in self._towards]

    def __call__(self, weather: Weather, point: list[Array], normal: list[Array]) -> Array:
        """Irradiance at world points, and the visible share of the sky they face, (N, 4)."""
        total = np.zeros((4, len(point[0])), dtype=np.float32)
        weight = np.full(len(point[0]), 1e-3, dtype=np.float32)
        lifted = [p + np.float32(0.06) * n for p, n in zip(point, normal, strict=True)]
        for towards, shadow in zip(self._towards, self._maps, strict=True):
            d = towards.astype(np.float32)
            cosine = np.maximum(normal[0] * d[0] + normal[1] * d[1] + normal[2] * d[2], 0.0)
            lit = shadow.lit(lifted, soft=False) * cosine
            mixed = weather.horizon_colour + (weather.sky_colour - weather.horizon_colour) * -d[1]
            for k in range(3):
                total[k] += lit * np.float32(mixed[k])
            total[3] += lit
            weight += cosine
        total[:3] *= np.float32(2.0 / _SKY_DIRECTIONS)
        total[3] /= weight
        return total.T


def sky(weather: Weather, noise: Noise, d: list[Array], spacing: float) -> Array:
    """Radiance (N, 3) of the sky in unit directions d, clouds included."""
    up = np.maximum(-d[1], 0.0)
    blue = np.sqrt(up)[:, None]
    colour = weather.horizon_colour.astype(np.float32) * (
        1 - blue
    ) + blue * weather.sky_colour.astype(np.float32)
    # Clouds are a plane far above; towards the horizon they shrink and dissolve into haze.
    reach = 1.0 / (up + 0.12)
    u, v = (
        d[0] * reach + np.float32(weather.clouds[0]),
        d[2] * reach + np.float32(weather.clouds[1]),
    )
    grain = spacing * reach
    shape = noise(u, v, 9.0, grain) + 0.35 * noise(v * 1.7, u * 1.7, 5.0, grain)
    edge = float(1.1 - 2.0 * weather.cover)
    thick = smoothstep(edge - 0.5, edge + 1.3, shape) * smoothstep(0.02, 0.2, up)
    sun = sum(d[k] * np.float32(weather.sun[k]) for k in range(3))
    white = (0.62 + 0.38 * smoothstep(-1.0, 2.0, 1.4 - shape))[:, None] * (
        0.75 * weather.sun_colour * 0.36 + 0.45 * weather.horizon_colour
    ).astype(np.float32)
    colour = colour * (1 - thick[:, None]) + white * thick[:, None]
    glow = np.float32(0.3) * np.maximum(sun, 0.0) ** 8
    return np.asarray(colour + glow[:, None] * weather.sun_colour.astype(np.float32), np.float32)
