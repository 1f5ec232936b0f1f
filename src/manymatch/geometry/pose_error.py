"""Pose errors and the area under their cumulative curve."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from manymatch._validate import FloatArray, float_array, refusal, within
from manymatch.geometry.pose import ROTATION_TOLERANCE, RelativePose

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

#: Error of a pair that has no pose, in degrees.
FAILURE_DEG = 180.0


def rotation_error_deg(R: ArrayLike, R_true: ArrayLike) -> float:
    """Angle in degrees, 0 to 180, of the rotation between two rotations (3, 3)."""
    difference = _rotation(R, "R").T @ _rotation(R_true, "R_true")
    # Sine and cosine together: an arccosine alone would round errors below 1e-6 degrees to zero.
    skew = difference - difference.T
    sine = 0.5 * float(np.linalg.norm((skew[2, 1], skew[0, 2], skew[1, 0])))
    cosine = 0.5 * (float(np.trace(difference)) - 1.0)
    return float(np.degrees(np.arctan2(sine, cosine)))


def translation_error_deg(t: ArrayLike, t_true: ArrayLike) -> float:
    """Angle in degrees, 0 to 90, between two translation directions (3,), whatever their sign."""
    a, b = _direction(t, "t"), _direction(t_true, "t_true")
    return float(np.degrees(np.arctan2(np.linalg.norm(np.cross(a, b)), abs(float(a @ b)))))


def pose_error_deg(pose: RelativePose | None, R_true: ArrayLike, t_true: ArrayLike) -> float:
    """Pose error in degrees: the larger of the rotation and the translation-direction error.

    Parameters
    ----------
    pose : RelativePose or None
        An estimate, camera 0 to camera 1; None is a failure and counts 180 degrees.
    R_true : (3, 3) array
        True rotation, camera 0 to camera 1.
    t_true : (3,) array
        True translation, camera 0 to camera 1, of any length but zero; its sign does not matter.
    """
    if pose is None:
        _rotation(R_true, "R_true")
        _direction(t_true, "t_true")
        return FAILURE_DEG
    if not isinstance(pose, RelativePose):
        raise refusal("pose", "a RelativePose or None", pose)
    return max(rotation_error_deg(pose.R, R_true), translation_error_deg(pose.t, t_true))


def pose_auc(errors_deg: ArrayLike, thresholds: Sequence[float] = (5, 10, 20)) -> FloatArray:
    """Area under the recall curve of pose errors up to each threshold, in percent.

    The curve starts at (0, 0), rises by 1/n at each error in increasing order, straight between
    them, and is flat from the last error below a threshold up to that threshold.

    Parameters
    ----------
    errors_deg : (n,) array
        Pose errors in degrees, zero or more; a failure is 180 or infinity.
    thresholds : sequence of float
        Thresholds in degrees, above zero.

    Returns
    -------
    (len(thresholds),) float64, 0 to 100
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
    return np.array([_area(curve, recall, limit) for limit in limits])


def _area(curve: FloatArray, recall: FloatArray, limit: float) -> float:
    # The first entry is 0 and so always below the limit.
    last = int(np.searchsorted(curve, limit))
    x = np.append(curve[:last], limit)
    y = np.append(recall[:last], recall[last - 1])
    return float(50.0 * np.sum(np.diff(x) * (y[1:] + y[:-1])) / limit)


def _rotation(value: ArrayLike, name: str) -> FloatArray:
    want = "a 3x3 rotation matrix"
    R = float_array(value, name, want, (3, 3))
    if np.any(np.abs(R.T @ R - np.eye(3)) > ROTATION_TOLERANCE) or np.linalg.det(R) < 0:
        raise ValueError(f"{name} must be {want}, got columns that are no right-handed frame")
    return R


def _direction(value: ArrayLike, name: str) -> FloatArray:
    want = "a vector of three numbers, not all zero"
    t = float_array(value, name, want, (3,))
    largest = float(np.max(np.abs(t)))
    if largest == 0.0:
        raise ValueError(f"{name} must be {want}, got {t.tolist()}")
    scaled = t / largest  # so that squaring neither overflows nor vanishes
    return np.asarray(scaled / np.linalg.norm(scaled), dtype=np.float64)
