"""A linear ramp in pixels is read back exactly from a feature map in every frame."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manymatch.features.maps import FeatureMap, dense_maps
from manymatch.features.resize import Resize

SIZES = st.tuples(st.integers(1, 700), st.integers(1, 700))
POLICIES = st.sampled_from(
    [
        Resize(),
        Resize(longest=333),
        Resize(longest=512, enlarge=False),
        Resize.none(),
        Resize.budget(64),
        Resize.budget(1024),
    ]
)
PATCHES = st.sampled_from([8, 14, 16])


@given(SIZES, POLICIES, PATCHES, st.integers(0, 2**32 - 1))
def test_ramp_is_read_back_at_any_keypoint(size, policy, patch, seed):
    frame = policy.plan(size, patch)
    rows, columns = frame.content[1] // patch, frame.content[0] // patch
    if min(rows, columns) < 1:
        return
    # Where the cells of the network's input are in the user's image, by the rule of the resize.
    u, v = np.meshgrid(np.arange(columns), np.arange(rows))
    x = (u * patch + (patch - 1) / 2 + 0.5) * size[0] / frame.content[0] - 0.5
    y = (v * patch + (patch - 1) / 2 + 0.5) * size[1] / frame.content[1] - 0.5
    values = np.stack([x, y, 2.0 * x - 3.0 * y + 1.0]).astype(np.float32)
    painted = FeatureMap.of_network(values, frame, patch, (patch - 1) / 2)
    rng = np.random.default_rng(seed)
    low, high = painted.centres()[0], painted.centres()[-1]
    points = low + rng.random((50, 2)) * (high - low)
    points = np.concatenate([points, painted.centres()[:20]])
    assert painted.inside(points).all()
    read = painted.sample(points)
    scale = max(size) * 5.0
    assert np.allclose(read[:, 0], points[:, 0], atol=1e-5 * scale)
    assert np.allclose(read[:, 1], points[:, 1], atol=1e-5 * scale)
    assert np.allclose(read[:, 2], 2 * points[:, 0] - 3 * points[:, 1] + 1, atol=1e-5 * scale)


@given(SIZES, POLICIES, PATCHES)
def test_resized_pixels_map_back(size, policy, patch):
    frame = policy.plan(size, patch)
    # The corners of the pixel area, not the centres of pixels, are what a resize keeps.
    corners = np.array([[0, 0], frame.content, [frame.content[0], 0]])
    expected = np.array([[0, 0], size, [size[0], 0]])
    assert np.allclose(frame.to_original(corners - 0.5), expected - 0.5)
    assert all(
        p % patch == 0 and 0 <= p - c < patch
        for p, c in zip(frame.padded, frame.content, strict=True)
    )


@given(SIZES, st.integers(1, 2000), PATCHES)
def test_budget_is_kept_and_used(size, patches, patch):
    frame = Resize.budget(patches).plan(size, patch)
    cells = (frame.content[0] // patch) * (frame.content[1] // patch)
    aspect = max(size) / min(size)
    assert frame.content == frame.padded
    if patches >= aspect:
        assert cells <= patches


def test_longer_edge_is_exact_and_the_other_truncated():
    assert Resize().plan((1241, 376)).content == (1024, 310)
    assert Resize().plan((640, 480)).content == (1024, 768)
    assert Resize(enlarge=False).plan((640, 480)).content == (640, 480)
    assert Resize().plan((5000, 1)).content == (1024, 1)
    assert Resize.none().plan((640, 512), 16).padded == (640, 512)
    assert Resize.budget(1024).plan((1024, 768), 16).content == (36 * 16, 27 * 16)


def test_sampling_equals_a_slow_twin():
    rng = np.random.default_rng(4)
    grid = FeatureMap(rng.random((3, 4, 5), dtype=np.float32), (7.5, 3.0), (16.0, 12.0))
    for point in rng.uniform([7.5, 3.0], [7.5 + 64, 3.0 + 36], (40, 2)):
        column, row = (point - [7.5, 3.0]) / [16.0, 12.0]
        expected = np.zeros(3)
        for i in range(4):
            for j in range(5):
                weight = max(0.0, 1 - abs(i - row)) * max(0.0, 1 - abs(j - column))
                expected += weight * grid.values[:, i, j]
        assert np.allclose(grid.sample([point])[0], expected, atol=1e-6)


def test_points_off_the_hull_are_told():
    grid = FeatureMap(np.ones((1, 2, 3), np.float32), (10.0, 20.0), (4.0, 8.0))
    points = [[10, 20], [18, 28], [9.9, 20], [18.1, 28], [14, 19.9], [14, 28.1]]
    assert grid.inside(points).tolist() == [True, True, False, False, False, False]


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Resize(longest=0), "longest must be"),
        (lambda: Resize(enlarge=1), "enlarge must be"),
        (lambda: Resize(patches=9), "longest must be None"),
        (lambda: Resize.budget(-1), "patches must be"),
        (lambda: FeatureMap(np.ones((2, 0, 3), np.float32), (0, 0), (1, 1)), "values must be"),
        (lambda: FeatureMap(np.ones((2, 1, 3), np.float32), (0, 0), (1, 0)), "stride must be"),
    ],
)
def test_bad_arguments(build, words):
    with pytest.raises(ValueError, match=words):
        build()


def _mean_pool():
    """Backbone whose cell is the mean colour of its patch: its map knows where it is."""
    torch = pytest.importorskip("torch")
    from manymatch.features.backbones import Backbone

    class Mean(Backbone):
        name, patch_size, dim, num_layers = "mean", 16, 3, 2
        mean, std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)

        def __init__(self):
            self.module = torch.nn.AvgPool2d(16)

        def forward(self, pixels, layers, norm):  # noqa: ARG002
            return {layer: layer * self.module(pixels) for layer in layers}

    return Mean()


@pytest.mark.parametrize("size", [(640, 480), (333, 517), (1500, 900), (90, 200)])
@pytest.mark.parametrize("policy", [Resize(longest=512), Resize.none(), Resize.budget(300)])
def test_a_painted_image_is_read_back_through_the_whole_path(size, policy):
    width, height = size
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    image = np.stack([255 * x / width, 255 * y / height, 0 * x], axis=2).round().astype(np.uint8)
    ((maps),) = dense_maps([image], _mean_pool(), [1, 2], resize=policy, complete_only=True)
    one = maps[1]
    points = one.centres()
    read = one.sample(points)
    # One grey level of rounding, and half a resized pixel of interpolation at the edges.
    assert np.abs(read[:, 0] * 255 - 255 * points[:, 0] / width).max() < 1.5
    assert np.abs(read[:, 1] * 255 - 255 * points[:, 1] / height).max() < 1.5
    assert np.allclose(maps[2].values, 2 * one.values)


def test_padding_is_black_before_normalising_and_its_cells_stay():
    image = np.full((40, 50, 3), 200, np.uint8)
    backbone = _mean_pool()
    backbone.mean, backbone.std = (0.25, 0.5, 0.75), (0.5, 0.25, 0.125)
    ((maps),) = dense_maps([image], backbone, resize=Resize.none())
    assert maps[2].grid == (3, 4)
    assert maps[2].input_size == (64, 48)
    # Half of the last row and an eighth of the last column are on the image.
    share = np.outer([1, 1, 0.5], [1, 1, 1, 0.125])
    for channel, (mean, std) in enumerate(zip(backbone.mean, backbone.std, strict=True)):
        expected = 2 * (share * (200 / 255) - mean) / std
        assert np.allclose(maps[2].values[channel], expected, atol=1e-5)
    ((complete),) = dense_maps([image], backbone, resize=Resize.none(), complete_only=True)
    assert complete[2].grid == (2, 3)
    assert np.array_equal(complete[2].values, maps[2].values[:, :2, :3])
    assert complete[2].input_size == (64, 48)
    assert (complete[2].origin, complete[2].stride) == (maps[2].origin, maps[2].stride)


def test_tiny_images_are_refused():
    image = np.full((40, 50, 3), 200, np.uint8)
    with pytest.raises(ValueError, match="at least 16 x 16 pixels"):
        dense_maps([image[:10]], _mean_pool(), resize=Resize.none())
    with pytest.raises(ValueError, match="layer must be an integer in"):
        dense_maps([image], _mean_pool(), [3])


def test_a_backbone_that_breaks_its_promise_is_named():
    backbone = _mean_pool()
    backbone.forward = lambda pixels, layers, norm: {2: pixels}  # noqa: ARG005
    with pytest.raises(ValueError, match=r"'mean' must return a map of shape \(1, D, 2, 3\)"):
        dense_maps([np.zeros((32, 48, 3), np.uint8)], backbone, resize=Resize.none())
