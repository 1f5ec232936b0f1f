"""Photographs and colours that are kept in JSON."""

import json

import numpy as np
import pytest

from manymatch.features.maps import FeatureMap
from manymatch_lab.pca import pca_colours
from manymatch_lab.style import _array, overlays, photograph


def test_pictures_survive_json():
    pytest.importorskip("PIL")
    image = np.zeros((30, 1280, 3), dtype=np.uint8)
    image[:, 640:] = 200
    kept = json.loads(json.dumps(photograph(image)))
    assert kept["size"] == [1280, 30]
    small = _array(kept["jpeg"])
    assert small.shape == (15, 640, 3)
    assert abs(int(small[7, 100, 0])) < 5
    assert abs(int(small[7, 600, 0]) - 200) < 5
    rng = np.random.default_rng(0)
    maps = [
        FeatureMap(rng.normal(size=(5, 3, 4)).astype(np.float32), (7.5, 7.5), (16.0, 8.0))
        for _ in range(2)
    ]
    shown = overlays(*maps)
    colours = pca_colours(maps[0].values, maps[1].values)
    for overlay, colour in zip(shown, colours, strict=True):
        np.testing.assert_array_equal(_array(overlay["png"]), np.rint(255 * colour))
    # Cells reach half a stride around their centres.
    assert shown[0]["extent"] == [-0.5, 63.5, 27.5, 3.5]
