"""Matches of pairs to be written and read, and their comparison."""

import dataclasses

import numpy as np

from manymatch.io import PairMatches

CONFIG = {"method": "auto", "versions": {"numpy": "2"}, "cameras": [{"a": 1}, {}]}


def rotation(rng):
    q, r = np.linalg.qr(rng.normal(size=(3, 3)))
    q *= np.sign(np.diag(r))
    return q * np.linalg.det(q)


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
