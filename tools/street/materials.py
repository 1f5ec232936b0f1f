"""Materials: procedural albedo of walls, ground, wood, metal and plants; lettering; windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tools.street.light import Weather, sky
from tools.street.noise import Noise, hashed, rgb, smoothstep

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.street.shapes import Array, IdArray

(
    PLASTER, ASHLAR, BRICK, PAINT, METAL, GLASS, GROUND, BARK, LEAF, SLATE, SIGN, AWNING, WOOD,
    LAMP, MOTIF, PLAIN,
) = range(16)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Surface:
    """Samples of one material.

    ``point`` and ``normal``, ``view`` (direction of the ray, unit) are lists of x, y, z (N,) in the
    world; ``local`` and ``sight`` are the place and the view in the shape's own frame, and ``half``
    its half extents, in metres;
    ``u``, ``v`` coordinates on the face in metres, v downwards on walls; ``spacing`` the distance
    of neighbouring samples; ``colour`` (N, 3), ``aux`` (N, 4) and ``key`` (N,) belong to the shape.
    """

    point: list[Array]
    normal: list[Array]
    view: list[Array]
    local: list[Array]
    sight: list[Array]
    half: list[Array]
    u: Array
    v: Array
    spacing: Array
    colour: Array
    aux: Array
    key: IdArray


def line(offset: Array, width: float, spacing: Array) -> Array:
    """Coverage of a line of this width at a distance (N,) from its middle, anti-aliased."""
    edge = (np.float32(0.5 * width) - np.abs(offset)) / np.maximum(spacing, 1e-4) + np.float32(0.5)
    # A line thinner than the spacing fades instead of growing.
    return np.clip(edge, 0, 1) * np.minimum(width / np.maximum(spacing, 1e-4), 1.0)


def _period(x: Array, period: float) -> tuple[Array, Array]:
    """Return the number of the cell, and the offset from the nearest cell border."""
    cell = np.floor(x * np.float32(1 / period))
    inside = x - cell * np.float32(period)
    return cell, np.minimum(inside, np.float32(period) - inside)


def _bonded(s: Surface, width: float, height: float, joint: float) -> tuple[Array, Array, Array]:
    """Lay stones in running bond: coverage of the joints, row and column of the stone."""
    row, to_row = _period(s.v, height)
    column, to_column = _period(s.u + np.float32(0.5 * width) * (row % 2), width)
    joints = np.maximum(line(to_row, joint, s.spacing), line(to_column, joint, s.spacing))
    return joints, row, column


def _scaled(s: Surface, factor: Array) -> Array:
    return np.asarray(s.colour * factor[:, None], dtype=np.float32)


def _plaster(s: Surface, noise: Noise) -> Array:
    fine = noise(s.u, s.v, 1.7, s.spacing)
    broad = noise(s.u + 3.1, s.v * 0.5 + 7.7, 11.0, s.spacing)
    # Rain leaves streaks: noise stretched downwards.
    streak = smoothstep(0.7, 2.2, noise(s.u * 3.0, s.v * 0.25, 7.3, s.spacing))
    foot = smoothstep(-1.6, 0.0, s.point[1])
    return _scaled(s, 1.0 + 0.035 * fine + 0.05 * broad - 0.16 * streak - 0.15 * foot)


def _ashlar(s: Surface, noise: Noise) -> Array:
    joints, row, column = _bonded(s, 0.9, 0.42, 0.022)
    tone = 0.16 * (hashed(row, column) - 0.5)
    grain = 0.05 * noise(s.u, s.v, 1.3, s.spacing) + 0.05 * noise(s.u, s.v, 9.1, s.spacing)
    foot = smoothstep(-0.9, 0.0, s.point[1])
    return _scaled(s, (1.0 + tone + grain - 0.25 * foot) * (1 - 0.5 * joints))


def _brick(s: Surface, noise: Noise) -> Array:
    joints, row, column = _bonded(s, 0.24, 0.075, 0.012)
    shade = hashed(row, column)
    tone = 0.75 + 0.5 * shade + 0.07 * noise(s.u, s.v, 1.1, s.spacing)
    tone += 0.08 * noise(s.u, s.v, 8.0, s.spacing)
    burnt = (hashed(row, column, 7) > 0.9).astype(np.float32)
    body = _scaled(s, tone * (1 - 0.45 * burnt))
    mortar = np.array([0.42, 0.39, 0.35], dtype=np.float32)
    return np.asarray(body * (1 - joints[:, None]) + mortar * joints[:, None], dtype=np.float32)


def _paint(s: Surface, noise: Noise) -> Array:
    dirt = smoothstep(0.5, 2.0, noise(s.u, s.v, 3.3, s.spacing))
    tone = 1.0 + 0.03 * noise(s.u, s.v, 0.9, s.spacing) - 0.12 * dirt
    # aux[0] is the pitch of louvres in metres, 0 for a flat panel.
    pitch = np.maximum(s.aux[:, 0], 1e-3)
    phase = s.v / pitch
    phase -= np.floor(phase)
    visible = np.clip(0.5 * pitch / s.spacing - 0.5, 0, 1) * (s.aux[:, 0] > 0)
    return _scaled(s, tone * (1 - visible * 0.55 * smoothstep(0.45, 1.0, phase)))


def _metal(s: Surface, noise: Noise) -> Array:
    rust = smoothstep(1.0, 2.4, noise(s.u, s.v, 1.9, s.spacing))[:, None]
    base = _scaled(s, 1.0 + 0.12 * noise(s.u, s.v, 0.7, s.spacing))
    return np.asarray(base * (1 - rust) + rust * rgb(0.16, 0.07, 0.03), dtype=np.float32)


def _ground(s: Surface, noise: Noise) -> Array:
    x, z = s.point[0], s.point[2]
    grit = noise(x, z, 1.1, s.spacing)
    broad = noise(x, z, 13.0, s.spacing)
    # Pavement near the house (z above aux[0]), setts in the street.
    slab_x, to_x = _period(x, 0.6)
    slab_z, to_z = _period(z, 0.6)
    joints = np.maximum(line(to_x, 0.014, s.spacing), line(to_z, 0.014, s.spacing))
    slab = 0.36 * (1 + 0.22 * (hashed(slab_x, slab_z) - 0.5) + 0.07 * grit + 0.07 * broad)
    slab *= 1 - 0.5 * joints
    row, to_row = _period(z, 0.16)
    sett, to_sett = _period(x + np.float32(0.37) * hashed(row), 0.17)
    gap = np.maximum(line(to_row, 0.03, s.spacing), line(to_sett, 0.03, s.spacing))
    dome = 0.82 + 0.36 * smoothstep(0.0, 0.07, np.minimum(to_row, to_sett))
    stone = 0.21 * (1 + 0.55 * (hashed(row, sett) - 0.5) + 0.08 * grit + 0.14 * broad) * dome
    stone *= 1 - 0.6 * gap
    paved = (z > s.aux[:, 0]).astype(np.float32)
    tone = np.where(paved > 0, slab, stone)
    stain = smoothstep(0.9, 2.2, noise(x + 5.0, z + 2.0, 6.1, s.spacing))
    tone = tone * (1 - 0.35 * stain)
    return np.asarray(tone[:, None] * rgb(1.03, 1.0, 0.95), dtype=np.float32)


def _bark(s: Surface, noise: Noise) -> Array:
    angle = np.arctan2(s.local[2], s.local[0])
    ridge = noise(angle * 0.35, s.v * 0.12, 0.8, s.spacing)
    patch = smoothstep(0.3, 0.9, noise(angle * 0.3, s.v * 0.4, 2.1, s.spacing))
    base = _scaled(s, 1.0 + 0.3 * ridge)
    pale = rgb(0.36, 0.33, 0.25)
    return np.asarray(base * (1 - 0.6 * patch[:, None]) + 0.6 * patch[:, None] * pale, np.float32)


def _leaf(s: Surface, noise: Noise) -> Array:  # noqa: ARG001
    return s.colour


def _slate(s: Surface, noise: Noise) -> Array:
    joints, row, column = _bonded(s, 0.3, 0.22, 0.016)
    lap = s.v / np.float32(0.22)
    lap -= np.floor(lap)
    tone = 1.0 + 0.5 * (hashed(row, column) - 0.5) + 0.08 * noise(s.u, s.v, 2.0, s.spacing)
    moss = smoothstep(0.8, 2.2, noise(s.u, s.v, 7.0, s.spacing))
    return _scaled(s, tone * (1 - 0.4 * joints) * (0.85 + 0.25 * lap) * (1 - 0.2 * moss))


def _sign(s: Surface, noise: Noise) -> Array:
    # Letters on the front; aux: number of the word, then the colour of the letters.
    ink = lettering(s.local[0], s.local[1], s.half[0], s.half[1], s.aux[:, 0], s.spacing)
    ink = ink * (np.abs(s.local[2]) > s.half[2] - 1e-3)
    board = _scaled(s, 1.0 + 0.04 * noise(s.u, s.v, 1.5, s.spacing))
    return np.asarray(board * (1 - ink[:, None]) + s.aux[:, 1:4] * ink[:, None], np.float32)


def _awning(s: Surface, noise: Noise) -> Array:
    band = np.floor(s.local[0] * np.float32(1 / 0.28))
    light = (band % 2)[:, None]
    tone = (1.0 + 0.04 * noise(s.u, s.v, 2.3, s.spacing))[:, None]
    cream = rgb(0.72, 0.68, 0.58)
    return np.asarray((s.colour * (1 - light) + cream * light) * tone, dtype=np.float32)


def _wood(s: Surface, noise: Noise) -> Array:
    plank, to_plank = _period(s.u, 0.14)
    grain = noise(s.u * 2.2 + plank * np.float32(0.37), s.v * 0.18, 1.4, s.spacing)
    tone = 1.0 + 0.14 * grain + 0.3 * (hashed(plank, s.key) - 0.5)
    return _scaled(s, tone * (1 - 0.6 * line(to_plank, 0.012, s.spacing)))


_INKS = np.array(
    [[0.55, 0.06, 0.05], [0.04, 0.16, 0.42], [0.62, 0.45, 0.06], [0.05, 0.26, 0.12]], np.float32
)


def _motif(s: Surface, noise: Noise) -> Array:
    # A pattern that is the same on every side. aux: number of sides, number of the pattern, how
    # much stains tell the sides apart, and 1 for a cylinder (0 for a box).
    sides, number, stained = s.aux[:, 0], s.aux[:, 1], s.aux[:, 2]
    angle = np.arctan2(s.local[2], s.local[0]) + np.float32(np.pi)
    sector = np.float32(2 * np.pi) / sides
    end = np.abs(s.local[0]) - s.half[0] > np.abs(s.local[2]) - s.half[2]
    along = np.where(
        end, -s.local[2] * np.sign(s.local[0]), s.local[0] * np.sign(s.local[2])
    )  # along the face, seen from outside
    along = along + np.where(end & (sides < 4), np.float32(17.3), np.float32(0.0))
    u = np.where(s.aux[:, 3] > 0, (angle - np.floor(angle / sector) * sector) * s.half[0], along)
    v = s.local[1]
    colour = s.colour
    for layer, (period, edge) in enumerate(((1.9, 0.5), (1.1, 0.9), (2.7, 1.1))):
        shift = 3.7 * number + 1.3 * layer
        ink = smoothstep(edge, edge + 0.12, noise(u + shift, v + 2 * shift, period, s.spacing))
        tint = _INKS[(number.astype(np.int64) + layer) % len(_INKS)]
        colour = colour * (1 - ink[:, None]) + tint * ink[:, None]
    stain = smoothstep(0.6, 1.1, noise(angle * s.half[0] + 5.0, v - 3.0, 2.3, s.spacing))
    return np.asarray(colour * (1 - 0.8 * stained * stain)[:, None], dtype=np.float32)


#: Functions to linear albedo (N, 3), by the numbers above; glass has a function of its own.
ALBEDO: tuple[Callable[[Surface, Noise], Array], ...] = (
    _plaster, _ashlar, _brick, _paint, _metal, _leaf, _ground, _bark, _leaf, _slate, _sign, _awning,
    _wood, _leaf, _motif, _leaf,
)  # fmt: skip


WORDS = ("CAFE", "HOTEL", "BAKERY", "BOOKS", "FLORIST", "PHARMACY", "OPTICS", "TAILOR")

_ROWS, _COLUMNS = 7, 5
# Seven rows of five dots, as bits, top row first.
_FONT = {
    "A": (14, 17, 17, 31, 17, 17, 17), "B": (30, 17, 17, 30, 17, 17, 30),
    "C": (14, 17, 16, 16, 16, 17, 14), "E": (31, 16, 16, 30, 16, 16, 31),
    "F": (31, 16, 16, 30, 16, 16, 16), "H": (17, 17, 17, 31, 17, 17, 17),
    "I": (14, 4, 4, 4, 4, 4, 14), "K": (17, 18, 20, 24, 20, 18, 17),
    "L": (16, 16, 16, 16, 16, 16, 31), "M": (17, 27, 21, 21, 17, 17, 17),
    "O": (14, 17, 17, 17, 17, 17, 14), "P": (30, 17, 17, 30, 16, 16, 16),
    "R": (30, 17, 17, 30, 20, 18, 17), "S": (15, 16, 16, 14, 1, 1, 30),
    "T": (31, 4, 4, 4, 4, 4, 4), "Y": (17, 17, 10, 4, 4, 4, 4),
}  # fmt: skip
_STEP = 8


def _stencils() -> list[Array]:
    """One smoothed picture per word, (9 * _STEP, width) with values in [0, 1]."""
    pictures = []
    for word in WORDS:
        dots = np.zeros((_ROWS + 2, (_COLUMNS + 1) * len(word) + 1), dtype=np.float32)
        for place, letter in enumerate(word):
            for row, bits in enumerate(_FONT[letter]):
                for column in range(_COLUMNS):
                    if bits >> (_COLUMNS - 1 - column) & 1:
                        dots[1 + row, 1 + (_COLUMNS + 1) * place + column] = 1.0
        fine = np.kron(dots, np.ones((_STEP, _STEP), dtype=np.float32))
        # A box blur of one dot, cut at the middle, rounds the corners of the letters.
        for axis in (0, 1):
            total = sum(np.roll(fine, k, axis) for k in range(-_STEP // 2, _STEP // 2 + 1))
            fine = np.asarray(total, dtype=np.float32) / (_STEP + 1)
        pictures.append(np.clip((fine - 0.34) * 6.0, 0.0, 1.0).astype(np.float32))
    return pictures


def lettering(
    x: Array, y: Array, half_x: Array, half_y: Array, word: Array, spacing: Array
) -> Array:
    """Coverage (N,) by letters of boards with half extents, at places (x, y) from their middle."""
    ink = np.zeros(len(x), dtype=np.float32)
    pictures = _stencils()
    for number in np.unique(word.astype(np.int64)):
        picture = pictures[number % len(WORDS)]
        mine = np.flatnonzero(word.astype(np.int64) == number)
        # As large as the board allows, with a margin.
        texel = np.minimum(
            2.0 * half_x[mine] / (picture.shape[1] + 2 * _STEP), 2.0 * half_y[mine] / len(picture)
        )
        column = np.rint(x[mine] / texel + 0.5 * picture.shape[1]).astype(np.int64)
        row = np.rint(y[mine] / texel + 0.5 * picture.shape[0]).astype(np.int64)
        inside = (column >= 0) & (column < picture.shape[1]) & (row >= 0) & (row < len(picture))
        value = picture[row.clip(0, len(picture) - 1), column.clip(0, picture.shape[1] - 1)]
        far = np.clip(_STEP * texel / spacing[mine] - 1.0, 0.3, 1.0)
        ink[mine] = value * inside * far
    return ink


_FRAME = 0.07
_BAR = 0.06
_CURTAIN_DEPTH = 0.16


def glass(
    s: Surface, noise: Noise, weather: Weather, irradiance: Array
) -> tuple[Array, Array, Array]:
    """Return light (N, 3) of window panes, share (N,) that is frame, albedo (N, 3) of the frame.

    aux of a window: number of vertical bars, height of the transom as a share of the height,
    how much windows differ from each other (0 to 1), and how much they mirror.
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
    s: Surface, noise: Noise, weather: Weather, pane: Array, upper: IdArray
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
