"""Shapes of a scene: collecting them, and casting rays at them into a depth buffer.

The world is x right, y down, z forward, in metres; the ground is y = 0. Rays are linear in the
indices of a sample, which serves the perspective camera and the parallel light of shadow maps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

Array: TypeAlias = NDArray[Any]
FloatArray: TypeAlias = NDArray[np.float64]
IdArray: TypeAlias = NDArray[np.int32]
Colour: TypeAlias = tuple[float, float, float]
Span: TypeAlias = tuple[float, float]

BOX, CYLINDER, BALL = 0, 1, 2
NOTHING = -1

# Nearer than this, in metres, nothing is projected.
_NEAR = 0.05
# Leaves are tested in blocks of about this many samples.
_BLOCK = 1 << 20
# A leaf is an ellipse this much narrower than long.
LEAF_WIDTH = 0.55


@dataclass(frozen=True, eq=False)
class Solids:
    """Shapes of a scene, one row each.

    ``kind`` (N,); ``centre`` (N, 3); ``half`` (N, 3) half extents along the own axes (cylinders and
    balls: radius, half height, radius); ``axes`` (N, 3, 3) own axes as rows; ``material`` (N,);
    ``colour`` (N, 3) linear albedo; ``aux`` (N, 4) parameters of the material; ``thin`` (N,)
    whether ambient light ignores the shape.
    """

    kind: NDArray[np.int32]
    centre: FloatArray
    half: FloatArray
    axes: FloatArray
    material: NDArray[np.int32]
    colour: Array
    aux: Array
    thin: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Leaves:
    """Elliptic leaves: ``centre``, unit ``normal``, unit ``along`` (L, 3), ``radius`` (L,)."""

    centre: FloatArray
    normal: FloatArray
    along: FloatArray
    radius: FloatArray
    colour: Array


@dataclass(frozen=True, eq=False)
class Rays:
    """Rays of a grid of samples: origin and direction are ``a[0] + column a[1] + row a[2]``.

    A hit is at ``origin + t * direction``; for a camera t is the depth, for parallel light the
    distance from its plane.
    """

    origin: FloatArray
    direction: FloatArray
    width: int
    height: int

    def at(self, columns: Array, rows: Array) -> tuple[list[Array], list[Array]]:
        """Components of origins and directions at these samples; scalars where all share them."""
        parts = []
        for a in (self.origin, self.direction):
            f = a.astype(np.float32)
            if a[1:].any():
                parts.append([(f[0, k] + columns * f[1, k]) + rows * f[2, k] for k in range(3)])
            else:
                parts.append([np.asarray(f[0, k]) for k in range(3)])
        return parts[0], parts[1]

    @property
    def perspective(self) -> bool:
        """Whether the rays spread from one point, and are not parallel."""
        return bool(self.direction[1:].any())

    def project(self, points: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Column, row and t (N,) of the rays through points (N, 3)."""
        parallel = not self.perspective
        free, fixed = (self.origin, self.direction) if parallel else (self.direction, self.origin)
        # Solve free[0] * w + a free[1] + b free[2] = points - fixed part, w being t or 1.
        inverse = np.linalg.inv(np.stack([fixed[0] if parallel else free[0], free[1], free[2]]))
        offset = points - (free[0] if parallel else fixed[0])
        solved = np.stack([(offset * inverse[:, k]).sum(axis=1) for k in range(3)], axis=1)
        t = solved[:, 0]
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = np.ones_like(t) if parallel else 1.0 / t
            return solved[:, 1] * scale, solved[:, 2] * scale, t


def cast(rays: Rays, solids: Solids, leaves: Leaves | None) -> tuple[Array, IdArray]:
    """Find the nearest hit of every ray, as two arrays (height, width).

    The first is t along the ray, infinity without a hit; the second is the row of the solid, the
    number of solids plus the row of the leaf, or NOTHING.
    """
    t = np.full((rays.height, rays.width), np.inf, dtype=np.float32)
    hit = np.full(t.shape, NOTHING, dtype=np.int32)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        windows = _windows(rays, solids)
        seen = (windows[:, 0] < windows[:, 1]) & (windows[:, 2] < windows[:, 3])
        for index in np.flatnonzero(seen):
            _solid(rays, solids, int(index), windows[index], t, hit)
        if leaves is not None and len(leaves.radius):
            _leaves(rays, leaves, len(solids.kind), t, hit)
    return t, hit


def _windows(rays: Rays, solids: Solids) -> NDArray[np.int64]:
    """First and last row and column (N, 4) of a window around every shape; last ones excluded."""
    spread = _SIGNS[None] * solids.half[:, None, :]
    corners = solids.centre[:, None, :] + (spread[..., None] * solids.axes[:, None]).sum(axis=2)
    column, row, t = (a.reshape(-1, 8) for a in rays.project(corners.reshape(-1, 3)))
    if rays.perspective:
        # Of a shape that reaches behind the camera, the part in front: its edges are cut.
        cut = np.flatnonzero(t.min(axis=1) < _NEAR)
        first, second = corners[cut][:, _EDGES[:, 0]], corners[cut][:, _EDGES[:, 1]]
        t0, t1 = t[cut][:, _EDGES[:, 0]], t[cut][:, _EDGES[:, 1]]
        part = np.clip((_NEAR - t0) / np.where(t1 == t0, 1.0, t1 - t0), 0.0, 1.0)[..., None]
        where = rays.project((first + part * (second - first)).reshape(-1, 3))
        crossing = (t0 < _NEAR) != (t1 < _NEAR)
        more = [np.where(crossing, a.reshape(-1, 12), np.nan) for a in where[:2]]
        column, row = (
            np.concatenate([np.where(t < _NEAR, np.nan, a), np.full((len(t), 12), np.nan)], axis=1)
            for a in (column, row)
        )
        column[cut, 8:], row[cut, 8:] = more
    ends = []
    for place, size in ((row, rays.height), (column, rays.width)):
        low, high = np.fmin.reduce(place, axis=1), np.fmax.reduce(place, axis=1)
        ends += [np.clip(np.floor(low), 0, size), np.clip(np.ceil(high) + 1, 0, size)]
    return np.nan_to_num(np.stack(ends, axis=1), nan=0.0).astype(np.int64)


_SIGNS = np.array([[a, b, c] for a in (-1.0, 1.0) for b in (-1.0, 1.0) for c in (-1.0, 1.0)])
# Corners of a box that differ in one sign.
_EDGES = np.array([(i, i | bit) for i in range(8) for bit in (1, 2, 4) if not i & bit])


def _solid(
    rays: Rays, solids: Solids, index: int, window: NDArray[np.int64], t: Array, hit: IdArray
) -> None:
    rows, columns = slice(window[0], window[1]), slice(window[2], window[3])
    # The rays in the shape's own frame are linear in the indices as well.
    axes, half = solids.axes[index], solids.half[index].astype(np.float32)
    origin = rays.origin.copy()
    origin[0] -= solids.centre[index]
    own = Rays(_turn(origin, axes), _turn(rays.direction, axes), 0, 0)
    o, d = own.at(
        np.arange(columns.start, columns.stop, dtype=np.float32)[None, :],
        np.arange(rows.start, rows.stop, dtype=np.float32)[:, None],
    )
    found = (_box, _cylinder, _ball)[solids.kind[index]](o, d, half)
    best = t[rows, columns]
    nearer = found < best
    np.copyto(best, found, where=nearer)
    np.copyto(hit[rows, columns], np.int32(index), where=nearer)


def _turn(linear: FloatArray, axes: FloatArray) -> FloatArray:
    return np.asarray((linear[:, None, :] * axes[None]).sum(axis=2), dtype=np.float64)


def _box(o: list[Array], d: list[Array], half: Array) -> Array:
    """Entry into the slabs, infinity where the ray misses or starts inside."""
    enter: Array = np.zeros((), dtype=np.float32)
    leave: Array = np.full((), np.inf, dtype=np.float32)
    for k in range(3):
        inverse = 1.0 / d[k]
        if o[k].ndim == 0 and abs(o[k]) > half[k]:
            # A common origin outside of the slab: a ray that leaves before it enters goes away.
            low = (-np.sign(o[k]) * -half[k] - o[k]) * inverse
            high = (np.sign(o[k]) * -half[k] - o[k]) * inverse
        else:
            a, b = (-half[k] - o[k]) * inverse, (half[k] - o[k]) * inverse
            low, high = np.minimum(a, b), np.maximum(a, b)
        enter = np.maximum(enter, low)
        leave = np.minimum(leave, high)
    return np.where((enter <= leave) & (enter > 0), enter, np.float32(np.inf))


def _cylinder(o: list[Array], d: list[Array], half: Array) -> Array:
    """First hit with an upright cylinder, side or lids."""
    a = d[0] * d[0] + d[2] * d[2]
    b = o[0] * d[0] + o[2] * d[2]
    root = np.sqrt(b * b - a * (o[0] * o[0] + o[2] * o[2] - half[0] * half[0]))
    side = (-b - root) / a
    side_ok = (np.abs(o[1] + side * d[1]) <= half[1]) & (side > 0)
    lid = (-half[1] * np.sign(d[1]) - o[1]) / d[1]
    x, z = o[0] + lid * d[0], o[2] + lid * d[2]
    lid_ok = (x * x + z * z <= half[0] * half[0]) & (lid > 0)
    found = np.where(side_ok, side, np.float32(np.inf))
    return np.where(lid_ok, np.minimum(found, lid), found)


def _ball(o: list[Array], d: list[Array], half: Array) -> Array:
    """First hit with an ellipsoid."""
    a, b, c = np.float32(0.0), np.float32(0.0), np.float32(-1.0)
    for k in range(3):
        p, q = o[k] / half[k], d[k] / half[k]
        a, b, c = a + q * q, b + p * q, c + p * p
    found = (-b - np.sqrt(b * b - a * c)) / a
    return np.where(found > 0, found, np.float32(np.inf))


def _leaves(rays: Rays, leaves: Leaves, first: int, t: Array, hit: IdArray) -> None:
    """Put all leaves into the buffers, in blocks of leaves of about the same size."""
    column, row, depth = rays.project(leaves.centre)
    unit = np.sqrt((rays.direction[1] ** 2).sum()) or np.sqrt((rays.origin[1] ** 2).sum())
    scale = np.ones_like(depth) if not rays.perspective else depth
    reach = np.ceil(leaves.radius / (unit * scale))
    inside = (depth > 0.5) & (column > -reach) & (column < rays.width + reach)
    inside &= (row > -reach) & (row < rays.height + reach)
    order = np.flatnonzero(inside)
    order = order[np.argsort(reach[order], kind="stable")]
    start = 0
    while start < len(order):
        # Equal windows for a block: the largest leaf of a block is its last one.
        stop = start + 1
        step = 64
        while stop < len(order) and (stop - start) * (2 * reach[order[stop]] + 1) ** 2 < _BLOCK:
            stop = min(stop + step, len(order))
        chosen = order[start:stop]
        _leaf_block(rays, leaves, chosen, (column, row), int(reach[chosen[-1]]), first, t, hit)
        start = stop


def _leaf_block(
    rays: Rays,
    leaves: Leaves,
    chosen: NDArray[np.int64],
    place: tuple[FloatArray, FloatArray],
    reach: int,
    first: int,
    t: Array,
    hit: IdArray,
) -> None:
    offsets = np.arange(-reach, reach + 1)
    columns = np.rint(place[0][chosen]).astype(np.int64)[:, None, None] + offsets[None, None, :]
    rows = np.rint(place[1][chosen]).astype(np.int64)[:, None, None] + offsets[None, :, None]
    o, d = rays.at(columns.astype(np.float32), rows.astype(np.float32))
    vectors = (leaves.centre, leaves.normal, leaves.along)
    c, n, a = (v[chosen].astype(np.float32)[:, :, None, None] for v in vectors)
    reached = [c[:, k] - o[k] for k in range(3)]
    towards: Array = np.asarray(sum(n[:, k] * reached[k] for k in range(3)))
    found: Array = towards / sum(n[:, k] * d[k] for k in range(3))
    off = [found * d[k] - reached[k] for k in range(3)]
    length = sum(off[k] * off[k] for k in range(3))
    along = sum(a[:, k] * off[k] for k in range(3))
    across = (length - along * along) / np.float32(LEAF_WIDTH**2)
    radius = leaves.radius[chosen].astype(np.float32)[:, None, None]
    ok = (along * along + across < radius * radius) & (found > 0)
    ok &= (columns >= 0) & (columns < rays.width) & (rows >= 0) & (rows < rays.height)
    which, r, c2 = np.nonzero(ok)
    flat = rows[which, r, 0] * rays.width + columns[which, 0, c2]
    depth = found[ok]
    np.minimum.at(t.reshape(-1), flat, depth)
    won = t.reshape(-1)[flat] == depth
    hit.reshape(-1)[flat[won]] = (first + chosen[which[won]]).astype(np.int32)


# Frames whose fronts look against z, against x, along z and along x: own axes as rows.
_QUARTERS = [
    np.array([[c, 0.0, -s], [0.0, 1.0, 0.0], [s, 0.0, c]])
    for c, s in ((1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0))
]


class Builder:
    """A list of shapes that grows. Heights are given upwards, so ``y = -height``.

    What a shape looks like is the same for all of them: material, colour, ``aux`` for the material,
    and whether it is ``thin``.
    """

    def __init__(self) -> None:
        self._rows: list[tuple[Any, ...]] = []
        self._leaves: list[tuple[FloatArray, ...]] = []
        self._origin, self._axes = np.zeros(3), np.eye(3)

    def face_right(self, x: float, z: float) -> None:
        """Add the next shapes in a frame at (x, z) whose fronts look along the world's x axis."""
        self._origin = np.array([x, 0.0, z])
        self._axes = _QUARTERS[3]

    def turn(self, quarters: int) -> None:
        """Add the next shapes in a frame that is turned about the origin; 0 is the world's."""
        self._origin, self._axes = np.zeros(3), _QUARTERS[quarters % 4]

    def shape(
        self,
        centre: Sequence[float],
        half: Sequence[float],
        material: int,
        colour: Colour,
        aux: Sequence[float] = (),
        *,
        thin: bool = False,
        kind: int = BOX,
        axes: FloatArray | None = None,
    ) -> None:
        """Add a shape by its centre (x, height, z), half extents and own axes (3, 3), as rows."""
        middle = np.array([centre[0], -centre[1], centre[2]])
        place = self._origin + (middle[:, None] * self._axes).sum(axis=0)
        own = np.eye(3) if axes is None else axes
        turned = (own[:, :, None] * self._axes[None]).sum(axis=1)
        extra = np.zeros(4)
        extra[: len(aux)] = aux
        self._rows.append((kind, place, np.array(half), turned, material, colour, extra, thin))

    def box(self, x: Span, height: Span, z: Span, *look: Any, **more: Any) -> None:
        """Add a box with axes along the frame's."""
        centre = [(a + b) / 2 for a, b in (x, height, z)]
        self.shape(centre, [(b - a) / 2 for a, b in (x, height, z)], *look, **more)

    def centred(
        self,
        x: float,
        half: float,
        height: Span,
        z: Span,
        *look: Any,
        margin: float = 0.0,
        **more: Any,
    ) -> None:
        """Add a box that reaches ``half`` and a margin to both sides of x."""
        self.box((x - half - margin, x + half + margin), height, z, *look, **more)

    def cylinder(self, place: Span, radius: float, height: Span, *look: Any) -> None:
        """Add an upright cylinder at (x, z)."""
        half = radius, (height[1] - height[0]) / 2, radius
        centre = place[0], (height[0] + height[1]) / 2, place[1]
        self.shape(centre, half, *look, kind=CYLINDER)

    def ball(self, centre: Sequence[float], half: Sequence[float], *look: Any) -> None:
        """Add an ellipsoid; centre is (x, height, z)."""
        self.shape(centre, half, *look, kind=BALL)

    def foliage(
        self,
        centre: Sequence[float],
        half: Sequence[float],
        count: int,
        radius: float,
        colour: Colour,
        rng: np.random.Generator,
    ) -> None:
        """Add leaves in tufts near the surface of an ellipsoid; centre is (x, height, z)."""
        tufts = max(4, count // 45)
        place = _unit(rng.standard_normal((tufts, 3))) * rng.uniform(0.45, 1.0, (tufts, 1)) ** 0.5
        member = rng.integers(0, tufts, count)
        spread = rng.standard_normal((count, 3)) * 0.17
        point = (place[member] + spread) * np.array(half)
        middle = point + np.array([centre[0], -centre[1], centre[2]])
        # Leaves face the light: outwards and up, more or less.
        normal = _unit(
            _unit(point) * 0.6 + [0.0, -0.5, 0.0] + 0.6 * rng.standard_normal((count, 3))
        )
        other = rng.standard_normal((count, 3))
        along = _unit(np.cross(normal, other))
        size = radius * rng.uniform(0.65, 1.25, count)
        tone = rng.uniform(0.65, 1.3, (count, 1)) * (0.8 + 0.4 * rng.random(tufts))[member][:, None]
        tint = np.array(colour) * tone
        tint = tint * (1 + rng.uniform(-0.15, 0.25, (count, 1)) * np.array([1.0, 0.2, -0.3]))
        middle, normal, along = (_turn(a, self._axes.T) for a in (middle, normal, along))
        self._leaves.append((middle + self._origin, normal, along, size, tint))

    def finish(self) -> tuple[Solids, Leaves]:
        """Return everything added so far as arrays."""
        kind, centre, half, axes, material, colour, aux, thin = zip(*self._rows, strict=True)
        solids = Solids(
            np.array(kind, dtype=np.int32),
            np.array(centre),
            np.array(half),
            np.array(axes),
            np.array(material, dtype=np.int32),
            np.array(colour, dtype=np.float32),
            np.array(aux, dtype=np.float32),
            np.array(thin),
        )
        nothing = (np.zeros((0, 3)), np.zeros((0, 3)), np.zeros((0, 3)), np.zeros(0))
        middle, normal, along, size, tint = (
            np.concatenate(a) for a in zip((*nothing, np.zeros((0, 3))), *self._leaves, strict=True)
        )
        leaves = Leaves(middle, normal, along, size, tint.astype(np.float32))
        return solids, leaves


def _unit(vectors: FloatArray) -> FloatArray:
    norm = np.sqrt((vectors**2).sum(axis=1, keepdims=True))
    return np.asarray(vectors / np.maximum(norm, 1e-9), dtype=np.float64)
