"""A size given as (height, width) is noticed where keypoints show it."""

import warnings

import numpy as np
import pytest

import manymatch
from manymatch import AssociationGraph, Camera

POINTS = np.random.default_rng(0).uniform(0, 1, (60, 2)) * (639, 479)
SPACE = np.random.default_rng(1).uniform(3, 6, (60, 3))
PLAIN = AssociationGraph.from_matches(POINTS, POINTS + 1)
CALLS = {
    "size1": lambda size: manymatch.gms_filter(PLAIN, (640, 480), size),
    "camera0": lambda size: manymatch.estimate_relative_pose(
        PLAIN, Camera.unknown(*size), Camera.unknown(640, 480), max_iterations=50
    ),
    "camera": lambda size: manymatch.estimate_absolute_pose(
        AssociationGraph.from_matches(POINTS, SPACE), Camera.unknown(*size), max_iterations=50
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_swapped_width_and_height_are_noticed(name):
    words = rf"^{name} must have width and height in this order, got 480 x 640 .* be swapped$"
    with pytest.warns(UserWarning, match=words):
        CALLS[name]((480, 640))


@pytest.mark.parametrize("size", [(640, 480), (638, 480), (400, 400), (320, 240), (700, 700)])
def test_other_sizes_are_taken_as_they_are(size):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        manymatch.gms_filter(PLAIN, (640, 480), size)
