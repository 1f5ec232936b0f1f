"""Poses of a camera relative to another and in the world, their errors, and AUC of errors."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from manymatch._validate import FloatArray, float_array, read_only, refusal, within

#: Error of a pair that has no pose, in degrees.
FAILURE_DEG = 180.0

# How far R.T @ R may be from the identity. Below the second number R is kept bit for bit.
_ROTATION_TOLERANCE, _ROUND_OFF = 1e-6, 1e-14


def _rotation(value: ArrayLike, name: str) -> tuple[FloatArray, float]:
    """Check a rotation (3, 3) and return it with the deviation of R.T @ R from the identity."""
    R = float_array(value, name, "a 3x3 rotation matrix of finite numbers", (3, 3))
    with np.errstate(over="ignore", invalid="ignore"):
        deviation = float(np.max(np.abs(R.T @ R - np.eye(3))))
    if not deviation <= _ROTATION_TOLERANCE:
        raise ValueError(
            f"{name} must be a rotation matrix with R.T @ R equal to the identity within "
            f"{_ROTATION_TOLERANCE:g}, got a deviation of {deviation:.3g}"
        )
    if np.linalg.det(R) < 0:
        raise ValueError(f"{name} must be a rotation matrix with determinant 1, got a reflection")
    return R, deviation


def _unit(t: FloatArray, name: str = "t") -> FloatArray:
    """Scale t (3,) to length 1, also where its square would overflow or underflow."""
    largest = float(np.max(np.abs(t)))
    if largest == 0.0:
        raise ValueError(f"{name} must be a direction other than zero, got [0.0, 0.0, 0.0]")
    if abs(math.hypot(*t) - 1.0) <= _ROUND_OFF:
        return t
    scaled = t / largest
    return np.asarray(scaled / np.linalg.norm(scaled), dtype=np.float64)


def _direction(value: ArrayLike, name: str) -> FloatArray:
    """Check a vector (3,) and scale it to length 1."""
    return _unit(float_array(value, name, "a vector of 3 finite numbers", (3,)), name)


@dataclasses.dataclass(frozen=True, init=False, repr=False, eq=False, slots=True)
class _Pose:
    """Rotation and translation between two frames; what all poses have in common."""

    R: FloatArray
    t: FloatArray

    def __init__(self, R: ArrayLike, t: ArrayLike) -> None:
        translation = float_array(t, "t", "a vector of 3 finite numbers", (3,))
        nearest, deviation = _rotation(R, "R")
        if deviation > _ROUND_OFF:
            u, _, vt = np.linalg.svd(nearest)
            nearest = np.ascontiguousarray(u @ vt)
        object.__setattr__(self, "R", read_only(nearest))
        object.__setattr__(self, "t", read_only(self._checked_translation(translation)))

    @staticmethod
    def _checked_translation(t: FloatArray) -> FloatArray:
        return t

    def matrix(self) -> FloatArray:
        """Return the 4x4 matrix that does the same with homogeneous coordinates."""
        matrix = np.eye(4)
        matrix[:3, :3] = self.R
        matrix[:3, 3] = self.t
        return matrix

    def inverse(self) -> Self:
        """Return the pose that maps back."""
        return type(self)(self.R.T, -self.R.T @ self.t)

    def quaternion(self) -> FloatArray:
        """Return the rotation as a unit quaternion (w, x, y, z) with w >= 0, as COLMAP has it."""
        R = self.R
        m = np.empty((4, 4))
        # Each row is the quaternion (w, x, y, z) times four of its own entries; the row with the
        # largest diagonal never divides by something small.
        m[0] = [1 + R[0, 0] + R[1, 1] + R[2, 2], R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], 0.0]
        m[0, 3] = R[1, 0] - R[0, 1]
        m[1, 1:] = [1 + R[0, 0] - R[1, 1] - R[2, 2], R[0, 1] + R[1, 0], R[0, 2] + R[2, 0]]
        m[2, 2:] = [1 - R[0, 0] + R[1, 1] - R[2, 2], R[1, 2] + R[2, 1]]
        m[3, 3] = 1 - R[0, 0] - R[1, 1] + R[2, 2]
        m = np.triu(m) + np.triu(m, 1).T
        q = m[int(np.argmax(np.diag(m)))]
        q = q / np.linalg.norm(q)
        return np.asarray(-q if q[0] < 0 else q)

    @property
    def angle_deg(self) -> float:
        """Rotation angle in degrees, in [0, 180]."""
        w, *v = self.quaternion()
        return math.degrees(2.0 * math.atan2(float(np.linalg.norm(v)), w))

    @property
    def axis(self) -> FloatArray:
        """Unit rotation axis (3,), the same in both frames; (0, 0, 1) without any rotation."""
        v = self.quaternion()[1:]
        largest = float(np.abs(v).max())
        if largest == 0.0:
            return np.array([0.0, 0.0, 1.0])
        v = v / largest  # the squares of a tiny rotation would underflow
        return np.asarray(v / np.linalg.norm(v))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Pose) or type(other) is not type(self):
            return NotImplemented
        return np.array_equal(self.R, other.R) and np.array_equal(self.t, other.t)

    # Poses that differ by round-off are unequal, so that a hash would be of little use.
    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Callable[..., Self], tuple[FloatArray, FloatArray]]:
        # Arrays come back from a pickle writeable; the constructor makes them read-only again.
        return type(self), (np.array(self.R), np.array(self.t))

    def _turn(self) -> str:
        axis = ", ".join(f"{v:+.4f}" for v in self.axis)
        return f"{self.angle_deg:.4f} deg about ({axis})"


@dataclasses.dataclass(frozen=True, init=False, repr=False, eq=False, slots=True)
class RelativePose(_Pose):
    """Pose that maps camera-0 coordinates to camera-1 coordinates, ``x1 = R @ x0 + t``.

    Parameters
    ----------
    R : (3, 3) array_like
        Rotation from camera 0 to camera 1, orthonormal within 1e-6 with positive determinant. The
        nearest exact rotation is stored, as a read-only float64 array.
    t : (3,) array_like
        Position of camera 0's centre in camera 1, of any length but zero; stored with length 1,
        since two views do not determine its length, and read-only.
    """

    @staticmethod
    def _checked_translation(t: FloatArray) -> FloatArray:
        return _unit(t)

    def essential(self) -> FloatArray:
        """Return the essential matrix ``E = [t]x R`` (3, 3), whose singular values are 1, 1 and 0.

        Its points on the normalised planes have ``x1h @ E @ x0h == 0`` with ``xh = (x, y, 1)``.
        """
        x, y, z = self.t
        return np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]]) @ self.R

    def __repr__(self) -> str:
        direction = ", ".join(f"{v:+.4f}" for v in self.t)
        return f"RelativePose({self._turn()}, t ({direction}))"


@dataclasses.dataclass(frozen=True, init=False, repr=False, eq=False, slots=True)
class AbsolutePose(_Pose):
    """Pose of a camera in the world: maps world to camera coordinates, ``x_cam = R @ X + t``.

    Parameters
    ----------
    R : (3, 3) array_like
        Rotation from the world to the camera, otherwise as in `RelativePose`.
    t : (3,) array_like
        Position of the world's origin in the camera, in the unit of the world; read-only.

    Examples
    --------
    >>> AbsolutePose([[0, -1, 0], [1, 0, 0], [0, 0, 1]], [2, 0, 5]).center
    array([ 0.,  2., -5.])
    """

    @property
    def center(self) -> FloatArray:
        """Centre (3,) of the camera in the world."""
        return np.asarray(-self.R.T @ self.t + 0.0)

    def __repr__(self) -> str:
        center = ", ".join(f"{v:.6g}" for v in self.center)
        return f"AbsolutePose({self._turn()}, center ({center}))"


def rotation_error_deg(R: ArrayLike, R_true: ArrayLike) -> float:
    """Angle in degrees, 0 to 180, of the rotation between two rotations (3, 3)."""
    difference = _rotation(R, "R")[0].T @ _rotation(R_true, "R_true")[0]
    # Sine and cosine together: an arccosine alone would round errors below 1e-6 degrees to zero.
    skew = difference - difference.T
    sine = 0.5 * float(np.linalg.norm((skew[2, 1], skew[0, 2], skew[1, 0])))
    cosine = 0.5 * (float(np.trace(difference)) - 1.0)
    return float(np.degrees(np.arctan2(sine, cosine)))


def translation_error_deg(t: ArrayLike, t_true: ArrayLike) -> float:
    """Angle in degrees, 0 to 90, between two translation directions (3,) of either sign."""
    a, b = _direction(t, "t"), _direction(t_true, "t_true")
    return float(np.degrees(np.arctan2(np.linalg.norm(np.cross(a, b)), abs(float(a @ b)))))


def pose_error_deg(pose: RelativePose | None, R_true: ArrayLike, t_true: ArrayLike) -> float:
    """Pose error in degrees: the larger of the rotation and the translation-direction error.

    The pose is an estimate, camera 0 to camera 1; None is a failure and counts 180 degrees. The
    true rotation R_true (3, 3) and translation t_true (3,), of any length but zero and either sign,
    map camera 0 to camera 1 too.
    """
    if pose is None:
        _rotation(R_true, "R_true")
        _direction(t_true, "t_true")
        return FAILURE_DEG
    if not isinstance(pose, RelativePose):
        raise refusal("pose", "a RelativePose or None", pose)
    return max(rotation_error_deg(pose.R, R_true), translation_error_deg(pose.t, t_true))


def pose_auc(errors_deg: ArrayLike, thresholds: Sequence[float] = (5, 10, 20)) -> FloatArray:
    """Area under the recall curve of pose errors up to each threshold, in percent, float64.

    The curve starts at (0, 0), rises by 1/n at each error in increasing order, straight between
    them, and is flat from the last error below a threshold up to that threshold. `errors_deg` (n,)
    and `thresholds` are in degrees; a failure is an error of 180 or infinity.
    """
    want = "a list of errors in degrees, at least one"
    errors = float_array(errors_deg, "errors_deg", want, (None,), finite=False)
    if len(errors) == 0:
        raise refusal("errors_deg", want, errors)
    within(errors, 0.0, np.inf, "errors_deg", "errors of zero or more")
    limits = float_array(thresholds, "thresholds", "a list of degrees above zero", (None,))
    within(limits, np.nextafter(0.0, 1.0), np.inf, "thresholds", "degrees above zero")
    curve = np.concatenate(([0.0], np.sort(errors)))
    recall = np.linspace(0.0, 1.0, len(curve))
    areas = []
    for limit in limits:
        last = int(np.searchsorted(curve, limit))  # the first entry is 0, below any limit
        x, y = np.append(curve[:last], limit), np.append(recall[:last], recall[last - 1])
        areas.append(50.0 * np.sum(np.diff(x) * (y[1:] + y[:-1])) / limit)
    return np.array(areas, dtype=np.float64)
