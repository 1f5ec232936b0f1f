"""Matches of pairs to be written and read, and their comparison."""

import dataclasses

import numpy as np

from manymatch import RelativePose
from manymatch.io import AlternativePose, PairMatches

CONFIG = {"method": "auto", "versions": {"numpy": "2"}, "cameras": [{"a": 1}, {}]}


def rotation(rng):
    q, r = np.linalg.qr(rng.normal(size=(3, 3)))
    q *= np.sign(np.diag(r))
    return q * np.linalg.det(q)


def random_pair(seed, images=(0, 1), whole=True):
    """Return matches between two images, whose keypoints are the same in all of their pairs."""
    rng = np.random.default_rng([seed, *images])
    points = [np.random.default_rng(k).uniform(0, 900, (20 + k, 2)) for k in images]
    matches = np.stack([rng.permutation(20)[:12], rng.permutation(20)[:12]], axis=1)
    poses = [RelativePose(rotation(rng), rng.normal(size=3)) for _ in range(3)]
    pair = PairMatches(*points, matches, config=CONFIG | {"orientations": [1, seed % 8]})
    if not whole:
        return pair
    return dataclasses.replace(
        pair,
        confidence=rng.random(12).astype(np.float32),
        pose=poses[0],
        inliers=matches[:5],
        alternatives=(
            AlternativePose(poses[1], 0.25, matches[:4]),
            AlternativePose(poses[2], 0.125, matches[:0]),
        ),
        source=rng.integers(0, 2, 12),
        inlier_source=rng.integers(0, 2, 5),
        source_names=("sift", "disk"),
    )


def same(first, second):
    """Compare two pairs, numbers bit by bit."""
    for field in dataclasses.fields(PairMatches):
        one, two = getattr(first, field.name), getattr(second, field.name)
        if isinstance(one, np.ndarray):
            assert one.dtype == two.dtype
            np.testing.assert_array_equal(one, two)
        elif field.name == "alternatives":
            assert len(one) == len(two)
            for a, b in zip(one, two, strict=True):
                np.testing.assert_array_equal(a.pose.matrix(), b.pose.matrix())
                assert a.probability == b.probability
                np.testing.assert_array_equal(a.matches, b.matches)
        elif field.name == "pose" and one is not None:
            np.testing.assert_array_equal(one.matrix(), two.matrix())
        else:
            assert one == two
