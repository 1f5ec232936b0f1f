"""Collecting the shapes of a made scene."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tools.street.rendering.cast import BALL, BOX, CYLINDER, Leaves, Solids

if TYPE_CHECKING:
    from collections.abc import Sequence

FloatArray: TypeAlias = NDArray[np.float64]
Colour: TypeAlias = tuple[float, float, float]


class Builder:
    """A list of shapes that grows. Heights are given upwards, so ``y = -height``."""

    def __init__(self) -> None:
        self._rows: list[
            tuple[int, FloatArray, FloatArray, FloatArray, int, Colour, FloatArray, bool]
        ]
        self._rows = []
        self._leaves: list[tuple[FloatArray, ...]] = []
        self._origin, self._axes = np.zeros(3), np.eye(3)

    def face_right(self, x: float, z: float) -> None:
        """Add the next shapes in a frame at (x, z) whose fronts look along the world's x axis."""
        self._origin = np.array([x, 0.0, z])
        self._axes = np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]])

    def face_front(self) -> None:
        """Add the next shapes in the world's frame again."""
        self._origin, self._axes = np.zeros(3), np.eye(3)

    def box(
        self,
        x: tuple[float, float],
        height: tuple[float, float],
        z: tuple[float, float],
        material: int,
        colour: Colour,
        aux: Sequence[float] = (),
        *,
        thin: bool = False,
    ) -> None:
        """Add a box with axes along the world's."""
        low, high = np.array([x[0], -height[1], z[0]]), np.array([x[1], -height[0], z[1]])
        self._add(BOX, (low + high) / 2, (high - low) / 2, np.eye(3), material, colour, aux, thin)

    def turned_box(
        self,
        centre: Sequence[float],
        half: Sequence[float],
        axes: FloatArray,
        material: int,
        colour: Colour,
        aux: Sequence[float] = (),
        *,
        thin: bool = False,
    ) -> None:
        """Add a box with its own axes (3, 3), as rows; centre is (x, height, z)."""
        middle = np.array([centre[0], -centre[1], centre[2]])
        self._add(BOX, middle, np.array(half), axes, material, colour, aux, thin)

    def cylinder(
        self,
        place: tuple[float, float],
        radius: float,
        height: tuple[float, float],
        material: int,
        colour: Colour,
    ) -> None:
        """Add an upright cylinder at (x, z)."""
        middle = np.array([place[0], -(height[0] + height[1]) / 2, place[1]])
        half = np.array([radius, (height[1] - height[0]) / 2, radius])
        self._add(CYLINDER, middle, half, np.eye(3), material, colour, (), thin=False)

    def ball(
        self, centre: Sequence[float], half: Sequence[float], material: int, colour: Colour
    ) -> None:
        """Add an ellipsoid; centre is (x, height, z)."""
        middle = np.array([centre[0], -centre[1], centre[2]])
        self._add(BALL, middle, np.array(half), np.eye(3), material, colour, (), thin=False)

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
        self._leaves.append((middle, normal, along, size, tint))

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
        middle, normal, along, size, tint = (
            np.concatenate(a) for a in zip(*self._leaves, strict=True)
        )
        leaves = Leaves(middle, normal, along, size, tint.astype(np.float32))
        return solids, leaves

    def _add(
        self,
        kind: int,
        centre: FloatArray,
        half: FloatArray,
        axes: FloatArray,
        material: int,
        colour: Colour,
        aux: Sequence[float],
        thin: bool,
    ) -> None:
        extra = np.zeros(4)
        extra[: len(aux)] = aux
        turned = (axes[:, :, None] * self._axes[None]).sum(axis=1)
        self._rows.append((kind, self._moved(centre), half, turned, material, colour, extra, thin))

    def _moved(self, point: FloatArray) -> FloatArray:
        return np.asarray(self._origin + (point[:, None] * self._axes).sum(axis=0))


def _unit(vectors: FloatArray) -> FloatArray:
    norm = np.sqrt((vectors**2).sum(axis=1, keepdims=True))
    return np.asarray(vectors / np.maximum(norm, 1e-9), dtype=np.float64)
