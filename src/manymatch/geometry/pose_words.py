"""A relative pose in words: how the second camera is turned and where it stands.

Everything is described from the first camera's point of view: x right, y down, z forward. The
second camera stands at ``-R.T @ t`` there, and its axes are the columns of ``R.T``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from manymatch._validate import FloatArray
    from manymatch.geometry.pose import RelativePose

# A direction within 15 degrees of an axis is "close to" it; parts smaller than a quarter of the
# whole (15 degrees out of the plane of the others) are not mentioned.
_CLOSE = float(np.cos(np.radians(15.0)))
_SMALLEST_PART = 0.25
_NO_TURN_DEG = 0.05
# From here on, left and right or up and down of a turn are nearly the same.
_HALF_TURN_DEG = 179.5

_AXES = ("horizontal", "vertical", "the viewing direction")
# What a positive and a negative turn about x (right), y (down) and z (forward) do to the view.
_TURNS = (("up", "down"), ("to the right", "to the left"), ("clockwise", "counter-clockwise"))
_MOVES = (("to the right", "to the left"), ("down", "up"), ("forward", "backward"))


def camera_centre(pose: RelativePose) -> FloatArray:
    """Return where camera 1 stands in the frame of camera 0, (3,), unit length."""
    centre: FloatArray = -pose.R.T @ pose.t
    return centre


def describe_rotation(pose: RelativePose) -> str:
    """Describe how camera 1 is turned against camera 0.

    Parameters
    ----------
    pose : RelativePose
        Maps camera-0 to camera-1 coordinates.

    Returns
    -------
    str
        Such as "turned 23.4° to the left about an axis close to vertical". Clockwise is as seen by
        somebody who stands behind the camera.
    """
    angle = pose.angle_deg
    if angle < _NO_TURN_DEG:
        return "not turned"
    # The camera turns by the transpose of R, which turns about the same axis the other way.
    axis = -pose.axis
    nearest = int(np.argmax(np.abs(axis)))
    close = abs(float(axis[nearest])) >= _CLOSE
    about = f"about an axis close to {_AXES[nearest]}" if close else "about a slanted axis"
    if angle >= _HALF_TURN_DEG:
        return f"turned half around ({angle:.1f}°) {about}"
    if close:
        return f"turned {angle:.1f}° {_side(axis, nearest, _TURNS)} {about}"
    return f"turned {angle:.1f}° {about}, {_parts(axis, _TURNS)}"


def describe_translation(pose: RelativePose) -> str:
    """Describe in which direction camera 1 stands from camera 0; two views do not show how far.

    Parameters
    ----------
    pose : RelativePose
        Maps camera-0 to camera-1 coordinates.

    Returns
    -------
    str
        Such as "moved mostly to the right and forward".
    """
    centre = camera_centre(pose)
    nearest = int(np.argmax(np.abs(centre)))
    if abs(float(centre[nearest])) >= _CLOSE:
        return f"moved {_side(centre, nearest, _MOVES)}"
    return f"moved {_parts(centre, _MOVES)}"


def describe_pose(pose: RelativePose) -> str:
    """Describe a relative pose in one phrase whose subject is camera 1.

    Parameters
    ----------
    pose : RelativePose
        Maps camera-0 to camera-1 coordinates.

    Returns
    -------
    str
        Rotation and translation, from the point of view of camera 0.

    Examples
    --------
    >>> import numpy as np
    >>> from manymatch.geometry.pose import RelativePose
    >>> describe_pose(RelativePose(np.eye(3), [-1.0, 0.0, 0.0]))
    'not turned, moved to the right'
    """
    return f"{describe_rotation(pose)}, {describe_translation(pose)}"


def _side(vector: FloatArray, axis: int, words: tuple[tuple[str, str], ...]) -> str:
    """Return the word for the sign of one component."""
    return words[axis][int(vector[axis] < 0)]


def _parts(vector: FloatArray, words: tuple[tuple[str, str], ...]) -> str:
    """Return the words of all components that matter, the largest first."""
    order = np.argsort(-np.abs(vector), kind="stable")
    said = [_side(vector, int(k), words) for k in order if abs(vector[k]) >= _SMALLEST_PART]
    # "Mostly" needs one part that is much larger than the others.
    first, second = np.abs(vector[order[:2]])
    mostly = "mostly " if first > 1.5 * second else ""
    return mostly + " and ".join(filter(None, (", ".join(said[:-1]), said[-1])))
