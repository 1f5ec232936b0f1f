"""Windows of made pictures: frame, panes that mirror the street, and rooms with curtains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tools.street.rendering.light import Weather, sky
from tools.street.rendering.materials import line
from tools.street.rendering.noise import Noise, hashed, rgb, smoothstep

if TYPE_CHECKING:
    from tools.street.rendering.materials import Surface

Array: TypeAlias = NDArray[Any]

_FRAME = 0.07
_BAR = 0.06
_CURTAIN_DEPTH = 0.16


def glass(
    s: Surface, noise: Noise, weather: Weather, irradiance: Array
) -> tuple[Array, Array, Array]:
    """Look of window panes.

    aux of a window: number of vertical bars, height of the transom as a share of the height,
    how much windows differ from each other (0 to 1), and how much they mirror.

    Returns
    -------
    radiance : (N, 3)
        Light that comes through and off the panes.
    frame : (N,)
        Share of the sample that is frame.
    paint : (N, 3)
        Albedo of the frame.
    """
    x, y = s.local[0], s.local[1]
    half_x, half_y = s.half[0], s.half[1]
    frame = np.maximum(
        line(half_x - np.abs(x), 2 * _FRAME, s.spacing),
        line(half_y - np.abs(y), 2 * _FRAME, s.spacing),
    )
    panes = s.aux[:, 0] + 1.0
    width = 2.0 * half_x / panes
    pane = np.clip(np.floor((x + half_x) / width), 0, panes - 1)
    bar = np.minimum(x + half_x - pane * width, (pane + 1) * width - x - half_x)
    inner = np.abs(np.abs(x) - half_x) > _FRAME
    frame = np.maximum(frame, line(bar, _BAR, s.spacing) * inner)
    transom = y + half_y - 2 * half_y * s.aux[:, 1]
    frame = np.maximum(frame, line(transom, _BAR, s.spacing) * (s.aux[:, 1] > 0))

    radiance = _room(s, x, y, irradiance)
    upper = (transom < 0).astype(np.int32)
    mirrored, share = _mirror(s, noise, weather, pane, upper)
    radiance = radiance * (1 - share[:, None]) + mirrored * share[:, None]
    dirt = 1.0 - 0.1 * smoothstep(0.0, 2.0, noise(s.u, s.v, 2.7, s.spacing))
    paint = np.asarray(s.colour * dirt[:, None], dtype=np.float32)
    return radiance, frame, paint


def _room(s: Surface, x: Array, y: Array, irradiance: Array) -> Array:
    """Curtains a hand behind the pane, and a dark room behind them."""
    depth = np.maximum(np.abs(s.sight[2]), 0.05)
    cx = x + s.sight[0] / depth * np.float32(_CURTAIN_DEPTH)
    cy = y + s.sight[1] / depth * np.float32(_CURTAIN_DEPTH)
    vary = s.aux[:, 2]
    pick = [hashed(s.key, k) for k in range(5)]
    open_share = 0.62 + vary * (0.9 * pick[0] - 0.45)
    folds = np.sin(cx * (38.0 + 6.0 * vary * pick[1]) + 3.0 * np.sin(cx * 9.0 + 6 * vary * pick[2]))
    covered = smoothstep(0.0, 0.03, np.abs(cx) / s.half[0] - open_share)
    blind = smoothstep(0.0, 0.02, (0.9 * vary * (pick[3] - 0.45) - 0.5 * (cy / s.half[1] + 1)))
    cloth = (0.42 + 0.12 * folds) * covered
    cloth = np.maximum(cloth, 0.45 * blind * (0.9 + 0.1 * np.sin(cy * 125.0)))
    room = 0.035 * (1.0 + 0.5 * cy / s.half[1]) * (0.8 + 0.5 * vary * pick[4])
    reflectance = np.where(cloth > 0.01, cloth * 0.55, room)
    warm = rgb(1.0, 0.96, 0.88)
    radiance: Array = reflectance[:, None] * irradiance * warm * np.float32(0.33)
    return np.asarray(radiance, np.float32)


def _mirror(
    s: Surface, noise: Noise, weather: Weather, pane: Array, upper: NDArray[np.int32]
) -> tuple[Array, Array]:
    """Mirrored sky and houses, and the share of mirrored light; every pane leans a little."""
    lean = np.float32(0.035)
    tilt_x = lean * (hashed(s.key, pane, upper, 11) - 0.5) * s.aux[:, 2]
    tilt_y = lean * (hashed(s.key, pane, upper, 12) - 0.5) * s.aux[:, 2]
    n = [s.normal[0] + tilt_x, s.normal[1] + tilt_y, s.normal[2]]
    cosine = -(s.view[0] * n[0] + s.view[1] * n[1] + s.view[2] * n[2])
    d = [s.view[k] + 2 * cosine * n[k] for k in range(3)]
    wave = np.float32(0.01) * noise(s.local[0] + pane, s.local[1], 1.9, s.spacing)
    d[1] = d[1] + wave
    size = np.sqrt(d[0] * d[0] + d[1] * d[1] + d[2] * d[2])
    d = [a / size for a in d]
    mirrored = sky(weather, noise, d, 0.004)
    # Houses across the street: roofs of different heights, walls with rows of windows.
    turn = np.arctan2(d[0], -d[2])
    house = np.floor(turn * np.float32(9.0))
    rise = -d[1] / np.maximum(np.sqrt(d[0] * d[0] + d[2] * d[2]), 1e-3)
    top = 0.34 + 0.3 * hashed(house, 3)
    row, column = np.floor(rise * 14), np.floor(turn * 34)
    dark = 0.55 * ((rise * 14 - row > 0.35) & (turn * 34 - column > 0.45))
    wall = (0.10 + 0.16 * hashed(house, 5)) * (1 - dark)
    colour = wall[:, None] * (weather.sky_colour + weather.horizon_colour).astype(np.float32)
    over = smoothstep(0.0, 0.02, rise - top)[:, None]
    mirrored = mirrored * over + colour * (1 - over)
    fresnel = 0.09 + 0.9 * (1 - np.clip(cosine, 0, 1)) ** 5
    return np.asarray(mirrored, np.float32), np.clip(fresnel * (1 + 2.2 * s.aux[:, 3]), 0, 0.95)
