"""Warping of one image onto another."""

import numpy as np

from manymatch.viz.aligned import warp


def test_warp_is_bilinear_and_knows_the_horizon():
    image = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)
    identity = warp(image, np.eye(3), (50, 40))
    np.testing.assert_array_equal(identity[..., :3], image)
    assert (identity[..., 3] == 255).all()
    half = np.eye(3)
    half[0, 2] = 0.5
    moved = warp(image, half, (50, 40))
    expected = np.rint(0.5 * image[:, :-1].astype(float) + 0.5 * image[:, 1:])
    np.testing.assert_allclose(moved[:, :-1, :3], expected, atol=1)
    beyond = np.array([[1.0, 0, 0], [0, 1.0, 0], [0, -0.05, 1.0]])  # nothing below row 20
    assert not warp(image, beyond, (50, 40))[21:, :, 3].any()
    shrunk = warp(image, np.diag([10.0, 10.0, 1.0]), (5, 4))  # blocks of ten, averaged
    assert abs(float(shrunk[..., :3].mean()) - float(image.mean())) < 3.0
    assert shrunk[..., :3].std() < 0.5 * image.std()
