"""Camera rigs of made scenes: two calibrated cameras and the 3D points both can see."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

# Keypoints stay this far inside the image, so that noise does not push them out.
_BORDER_PX = 8.0


@dataclass(frozen=True)
class Rig:
    """Two pinhole cameras; ``X1 = R @ X0 + baseline * t`` maps camera 0 to camera 1.

    ``rows`` is the unit direction of all rows, in camera 0.
    """

    K0: FloatArray
    K1: FloatArray
    size: tuple[int, int]
    R: FloatArray
    t: FloatArray
    baseline: float
    rows: FloatArray

    def project(self, points: FloatArray) -> tuple[FloatArray, FloatArray, NDArray[np.bool_]]:
        """Pixels in both images (N, 2) of points (N, 3) in camera 0, and whether both see them."""
        moved = points @ self.R.T + self.baseline * self.t
        pixels = []
        seen = np.ones(len(points), dtype=np.bool_)
        for K, X in ((self.K0, points), (self.K1, moved)):
            depth = np.where(X[:, 2] > 0, X[:, 2], np.inf)
            x = X[:, :2] / depth[:, None] * K[0, 0] + K[:2, 2]
            low, high = _BORDER_PX, np.array(self.size) - 1 - _BORDER_PX
            seen &= (X[:, 2] > 0) & np.all((x >= low) & (x <= high), axis=1)
            pixels.append(x)
        return pixels[0], pixels[1], seen

    def lift(self, pixels: FloatArray, depth: FloatArray) -> FloatArray:
        """Points (N, 3) in camera 0 at these pixels (N, 2) of image 0 and depths (N,)."""
        ray = (pixels - self.K0[:2, 2]) / self.K0[0, 0]
        return np.column_stack((ray, np.ones(len(pixels)))) * depth[:, None]


def make_rig(
    size: tuple[int, int],
    focal: tuple[float, float],
    baseline: tuple[float, float],
    rotation_deg: tuple[float, float],
    row_angle_deg: tuple[float, float],
    rng: np.random.Generator,
) -> Rig:
    """Draw a relative pose whose baseline makes an angle in ``row_angle_deg`` with the rows."""
    axis = _direction(rng)
    R = rotation_matrix(axis * np.deg2rad(rng.uniform(*rotation_deg)))
    turn = rng.uniform(0.0, np.pi)
    rows = np.array([np.cos(turn), np.sin(turn), 0.0])
    # The camera's centre moves mostly in the image plane: forward motion has little parallax.
    across = np.array([-np.sin(turn), np.cos(turn), 0.0])
    forward = np.array([0.0, 0.0, 1.0])
    lean = rng.uniform(-np.pi / 6, np.pi / 6)
    side = rng.choice((-1.0, 1.0)) * (np.cos(lean) * across + np.sin(lean) * forward)
    angle = np.deg2rad(rng.uniform(*row_angle_deg))
    centre = np.cos(angle) * rng.choice((-1.0, 1.0)) * rows + np.sin(angle) * side
    t = -R @ centre
    return Rig(
        K0=_pinhole(focal[0], size),
        K1=_pinhole(focal[1], size),
        size=size,
        R=R,
        t=t / np.linalg.norm(t),
        baseline=float(rng.uniform(*baseline)),
        rows=rows,
    )


def rotation_matrix(vector: FloatArray) -> FloatArray:
    """Rotation (3, 3) about ``vector`` by its length in radians."""
    angle = float(np.linalg.norm(vector))
    x, y, z = vector / angle if angle > 0 else np.zeros(3)
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return np.asarray(
        np.eye(3) + np.sin(angle) * cross + (1.0 - np.cos(angle)) * (cross @ cross),
        dtype=np.float64,
    )


def _direction(rng: np.random.Generator) -> FloatArray:
    vector = rng.standard_normal(3)
    return np.asarray(vector / np.linalg.norm(vector), dtype=np.float64)


def _pinhole(focal: float, size: tuple[int, int]) -> FloatArray:
    # The middle of the image, with the centre of the top-left pixel at (0, 0).
    cx, cy = (size[0] - 1) / 2, (size[1] - 1) / 2
    return np.array([[focal, 0.0, cx], [0.0, focal, cy], [0.0, 0.0, 1.0]])
