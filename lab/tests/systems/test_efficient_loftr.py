"""Efficient LoFTR: matching against slow twins, and where in the image a match is."""

from __future__ import annotations

import types

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from transformers.utils import logging  # noqa: E402

from manymatch.features.extractor import Extractor  # noqa: E402
from manymatch.features.feature_config import FeatureConfig  # noqa: E402
from manymatch.features.matchers import matcher_graph  # noqa: E402
from manymatch.features.weights import random_weights  # noqa: E402
from manymatch_lab.systems.efficient_loftr import (  # noqa: E402
    EfficientLoftr,
    coarse_matches,
    fine_offsets,
)

logging.disable_progress_bar()
SETTINGS = transformers.EfficientLoFTRConfig(coarse_matching_threshold=0.01)


def softmax(values, axis):
    values = np.exp(values - values.max(axis=axis, keepdims=True))
    return values / values.sum(axis=axis, keepdims=True)


def slow_coarse(features0, features1, config):
    channels, height, width = features0.shape
    flat0, flat1 = (f.reshape(channels, -1).T.astype(np.float64) for f in (features0, features1))
    similarity = (
        (flat0 / channels**0.5) @ (flat1 / channels**0.5).T / config.coarse_matching_temperature
    )
    confidence = softmax(similarity, 0) * softmax(similarity, 1)
    found = []
    for i in range(height * width):
        for j in range(height * width):
            rows, columns = (i // width, j // width), (i % width, j % width)
            b = config.coarse_matching_border_removal
            inner = all(b <= r < height - b for r in rows) and all(
                b <= c < width - b for c in columns
            )
            value = confidence[i, j]
            largest = value == confidence[i].max() and value == confidence[:, j].max()
            if inner and largest and value > config.coarse_matching_threshold:
                found.append((i, j, value))
    return found


def slow_fine(window0, window1, config):
    """One pair of windows, place by place."""
    n, m = (round(len(w) ** 0.5) for w in (window0, window1))
    channels = window0.shape[1]
    split = channels - config.fine_matching_slice_dim
    product = (window0[:, :split] / split**0.5) @ (window1[:, :split] / split**0.5).T
    confidence = softmax(product, 0) * softmax(product, 1)
    best, place = -1.0, None
    for a in range(n * n):
        for y in range(1, m - 1):
            for x in range(1, m - 1):
                if confidence[a, y * m + x] > best:
                    best, place = confidence[a, y * m + x], (a, x, y)
    a, x, y = place
    weights = {}
    for dy in (-1, 0, 1):
        for dx in (-1, 0, 1):
            other = window1[(y + dy) * m + x + dx, split:] / config.fine_matching_slice_dim**0.5
            weights[dx, dy] = np.exp(
                window0[a, split:] @ other / config.fine_matching_regress_temperature
            )
    total = sum(weights.values())
    shift = [sum(w * d[axis] for d, w in weights.items()) / total for axis in (0, 1)]
    return (a % n, a // n), (x - 1 + shift[0], y - 1 + shift[1])


@pytest.mark.parametrize("seed", range(4))
def test_coarse_matches_are_the_mutual_maxima_of_the_dual_softmax(seed):
    rng = np.random.default_rng(seed)
    features0 = rng.normal(size=(16, 9, 11)).astype(np.float32) * 2.0
    order = rng.permutation(99)
    features1 = features0.reshape(16, -1)[:, order].reshape(16, 9, 11)
    features1 = features1 + 0.5 * rng.normal(size=features1.shape).astype(np.float32)
    expected = slow_coarse(features0, features1, SETTINGS)
    cells0, cells1, scores = coarse_matches(
        torch.from_numpy(features0), torch.from_numpy(features1.astype(np.float32)), SETTINGS
    )
    assert len(expected) > 3
    assert list(zip(cells0.tolist(), cells1.tolist(), strict=True)) == [e[:2] for e in expected]
    np.testing.assert_allclose(scores.numpy(), [e[2] for e in expected], rtol=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_fine_places_are_those_of_the_slow_twin(seed):
    rng = np.random.default_rng(seed)
    windows0 = rng.normal(size=(6, 64, 24)).astype(np.float32) * 2.0
    windows1 = rng.normal(size=(6, 100, 24)).astype(np.float32) * 2.0
    places0, places1 = fine_offsets(
        torch.from_numpy(windows0), torch.from_numpy(windows1), SETTINGS
    )
    for k in range(6):
        first, second = slow_fine(
            windows0[k].astype(np.float64), windows1[k].astype(np.float64), SETTINGS
        )
        np.testing.assert_allclose(places0[k].numpy(), first)
        np.testing.assert_allclose(places1[k].numpy(), second, atol=1e-4)


class FakeNetwork:
    """Features that match one cell and one place only, as the real networks would return them."""

    def __init__(self, cells, places, grid):
        self.cells, self.places, self.grid = cells, places, grid
        published = transformers.EfficientLoFTRConfig().to_dict()
        self.config = types.SimpleNamespace(**published | {"hidden_size": 4})
        self.seen = None

    def efficientloftr(self, pixels):
        self.seen = pixels
        height, width = self.grid
        assert pixels.shape == (1, 2, 3, 8 * height, 8 * width)
        coarse = torch.zeros(1, 2, 4, height, width)
        for side, (x, y) in enumerate(self.cells):
            coarse[0, side, 0, y, x] = 9.0
        return types.SimpleNamespace(feature_maps=(coarse, "residual"))

    def refinement_layer(self, coarse, residual):
        assert coarse.shape == (1, 2, 4, *self.grid)
        assert residual == ["residual"]
        height, width = self.grid
        windows0 = torch.zeros(1, height * width, 64, 24)
        windows1 = torch.zeros(1, height * width, 100, 24)
        for side, windows in enumerate((windows0, windows1)):
            (cx, cy), (x, y) = self.cells[side], self.places[side]
            row, margin = (8, 0) if side == 0 else (10, 1)
            windows[0, cy * width + cx, (y + margin) * row + x + margin, 0] = 20.0
        return windows0, windows1


def with_network(network):
    matcher = EfficientLoftr(device="cpu", offline=True)
    matcher.__dict__["network"] = network
    return matcher


def features(image):
    return Extractor(FeatureConfig(detector="images", longest=0)).extract(image)


def test_a_match_is_at_its_cell_and_place_less_half_a_window():
    network = FakeNetwork(cells=((3, 4), (5, 2)), places=((1, 6), (7, 0)), grid=(8, 12))
    image0 = np.full((60, 90, 3), (255, 0, 0), np.uint8)
    image1 = np.full((64, 80, 3), 255, np.uint8)
    points0, points1, scores = with_network(network).match(image0, image1)
    # x = 8 * cell + place - 3.5, in both images; the second stage is undecided and adds nothing.
    np.testing.assert_allclose(points0, [[3 * 8 + 1 - 3.5, 4 * 8 + 6 - 3.5]], atol=1e-6)
    np.testing.assert_allclose(points1, [[5 * 8 + 7 - 3.5, 2 * 8 + 0 - 3.5]], atol=1e-6)
    assert 0.2 < scores[0] <= 1.0
    # Grey, in [0, 1], each image in the top-left corner of its own plane and zero beyond.
    seen = network.seen.numpy()
    np.testing.assert_allclose(seen[0, 0, :, :60, :90], 0.299, atol=1e-6)
    np.testing.assert_allclose(seen[0, 1, :, :64, :80], 1.0, atol=1e-6)
    assert not seen[0, 0, :, 60:].any()
    assert not seen[0, 0, :, :, 90:].any()
    assert not seen[0, 1, :, :, 80:].any()


def test_matches_in_the_padding_are_dropped():
    network = FakeNetwork(cells=((9, 4), (9, 4)), places=((4, 4), (4, 4)), grid=(8, 12))
    narrow = features(np.zeros((60, 70, 3), np.uint8))
    wide = features(np.zeros((60, 90, 3), np.uint8))
    assert len(matcher_graph(with_network(network), wide, wide)) == 1
    graph = matcher_graph(with_network(network), wide, narrow)
    assert len(graph) == len(graph.points0) == len(graph.points1) == 0


def small_config():
    return transformers.EfficientLoFTRConfig(
        stage_num_blocks=[1, 1, 1, 1],
        out_features=[16, 16, 32, 32],
        hidden_size=32,
        num_attention_layers=1,
        num_attention_heads=8,
        coarse_matching_threshold=0.0,
    )


def test_the_networks_of_transformers_fit_and_are_read_from_the_folder(tmp_path, monkeypatch):
    network = random_weights(transformers.EfficientLoFTRForKeypointMatching(small_config()))
    network.save_pretrained(tmp_path / "efficient-loftr")
    monkeypatch.setenv("MANYMATCH_WEIGHTS", str(tmp_path))
    matcher = EfficientLoftr(device="cpu", offline=True)
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (96, 128, 3), dtype=np.uint8)
    points0, points1, _ = matcher.match(image, image)
    # Even with random weights a place is most like itself.
    assert len(points0) >= 1
    np.testing.assert_allclose(points1, points0, atol=0.01)
    np.testing.assert_allclose(points0 % 1.0, 0.5)
    assert matcher.settings()["fine_matching_slice_dim"] == 8
