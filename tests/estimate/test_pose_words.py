import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manymatch.estimate.words import (
    camera_centre,
    describe_pose,
    describe_rotation,
    describe_translation,
)
from manymatch.geometry.pose import RelativePose
from tests.oracles.geometry import rotation_from_vector

RIGHT, DOWN, FORWARD = UNTURNED = np.eye(3)


def pose_of(turn=UNTURNED, centre=RIGHT):
    """Pose of a camera 1 whose axes in frame 0 are the columns of ``turn``, standing at centre."""
    return RelativePose(turn.T, -turn.T @ np.asarray(centre, dtype=float))


def turn(axis, degrees):
    """Right-handed rotation, written as what it does to the camera's own axes."""
    return rotation_from_vector(np.radians(degrees) * np.asarray(axis, dtype=float))


def looking(towards, angle):
    """Camera that looks ``angle`` degrees off straight ahead, towards a direction across it."""
    angle = np.radians(angle)
    forward = np.cos(angle) * FORWARD + np.sin(angle) * np.asarray(towards, dtype=float)
    # The shortest turn that takes FORWARD there.
    axis = np.cross(FORWARD, forward)
    camera = rotation_from_vector(angle * axis / np.linalg.norm(axis))
    np.testing.assert_allclose(camera @ FORWARD, forward, atol=1e-12)
    return camera


@pytest.mark.parametrize(
    ("centre", "words"),
    [
        (RIGHT, "moved to the right"),
        (-RIGHT, "moved to the left"),
        (DOWN, "moved down"),
        (-DOWN, "moved up"),
        (FORWARD, "moved forward"),
        (-FORWARD, "moved backward"),
        ((0.9, 0.0, 0.43), "moved mostly to the right and forward"),
        ((-0.2, 0.1, -0.97), "moved backward"),
        ((-1, -1.1, 1.2), "moved forward, up and to the left"),
        ((-1, 0.05, 1.2), "moved forward and to the left"),
        ((3, -1, 1.2), "moved mostly to the right, forward and up"),
    ],
)
@pytest.mark.parametrize("camera", [np.eye(3), turn(DOWN, 30), turn((0.6, 0.8, 0), -170)])
def test_where_the_camera_went_does_not_depend_on_how_it_is_turned(centre, words, camera):
    assert describe_translation(pose_of(camera, centre)) == words


@pytest.mark.parametrize(
    ("towards", "words"),
    [
        (RIGHT, "turned 20.0° to the right about an axis close to vertical"),
        (-RIGHT, "turned 20.0° to the left about an axis close to vertical"),
        (-DOWN, "turned 20.0° up about an axis close to horizontal"),
        (DOWN, "turned 20.0° down about an axis close to horizontal"),
        (
            (-0.8, -0.6, 0),
            "turned 20.0° about a slanted axis, to the left and up",
        ),
        ((0.96, 0.28, 0), "turned 20.0° about a slanted axis, mostly to the right and down"),
    ],
)
def test_a_camera_that_looks_elsewhere(towards, words):
    assert describe_rotation(pose_of(looking(towards, 20))) == words


def test_a_rolled_camera():
    # Clockwise for somebody behind it: the right-hand side goes down.
    camera = np.column_stack([DOWN, -RIGHT, FORWARD])
    assert describe_rotation(pose_of(camera)) == (
        "turned 90.0° clockwise about an axis close to the viewing direction"
    )
    assert "counter-clockwise" in describe_rotation(pose_of(camera.T))


def test_no_turn_and_half_a_turn():
    assert describe_pose(pose_of()) == "not turned, moved to the right"
    assert describe_rotation(pose_of(turn(DOWN, 0.04))) == "not turned"
    assert describe_rotation(pose_of(turn(DOWN, 0.06))).startswith("turned 0.1° to the right")
    # Facing back: neither to the left nor to the right.
    for degrees in (180, 179.6, -179.6):
        text = describe_rotation(pose_of(turn(DOWN, degrees)))
        assert text.startswith("turned half around (1")
        assert text.endswith("about an axis close to vertical")
    assert describe_rotation(pose_of(turn((0.6, 0.8, 0), 180))) == (
        "turned half around (180.0°) about a slanted axis"
    )


unit = st.tuples(*[st.floats(-1, 1)] * 3).filter(lambda v: np.linalg.norm(v) > 0.1)


@given(unit, st.floats(-150, 150), unit)
def test_every_word_is_true(axis, degrees, centre):
    axis = np.array(axis) / np.linalg.norm(axis)
    camera = turn(axis, degrees)
    pose = pose_of(camera, centre)
    np.testing.assert_allclose(camera_centre(pose), centre / np.linalg.norm(centre), atol=1e-9)
    moved = describe_translation(pose)
    opposite = describe_translation(pose_of(camera, -np.array(centre)))
    for side, axis_index, sign in (
        ("to the right", 0, 1),
        ("to the left", 0, -1),
        ("down", 1, 1),
        ("up", 1, -1),
        ("forward", 2, 1),
        ("backward", 2, -1),
    ):
        if side in moved:
            assert sign * centre[axis_index] > 0
            assert side not in opposite
    # A single turn to the left or right takes the view there.
    turned = describe_rotation(pose)
    if "close to vertical" in turned:
        assert ("to the right" in turned) == ((camera @ FORWARD)[0] > 0)
