"""PCA colours: one basis for both images, robust, deterministic; and the picture of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manymatch.features.maps import FeatureMap
from manymatch_lab.pca import pca_colours, plot_pca


def random_map(seed, dim=10, rows=5, columns=7):
    return np.random.default_rng(seed).normal(size=(dim, rows, columns)).astype(np.float32)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 500), dim=st.integers(1, 12), rows=st.integers(1, 5), n=st.integers(1, 5)
)
def test_shapes_and_range(seed, dim, rows, n):
    a, b = random_map(seed, dim, rows, n), random_map(seed + 1, dim, n, rows + 1)
    first, second = pca_colours(a, b)
    assert first.shape == (rows, n, 3)
    assert second.shape == (n, rows + 1, 3)
    for colour in (first, second):
        assert colour.min() >= 0
        assert colour.max() <= 1


def test_components_are_those_of_a_joint_pca():
    """Slow twin: SVD of all unit descriptors of both images, in the order of their variance."""
    a, b = random_map(2), random_map(3, rows=4)
    a *= np.linspace(3, 1, 10)[:, None, None]
    tokens = np.concatenate([a.reshape(10, -1).T, b.reshape(10, -1).T]).astype(np.float64)
    tokens /= np.linalg.norm(tokens, axis=1, keepdims=True)
    centred = tokens - tokens.mean(axis=0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    colours = np.concatenate([c.reshape(-1, 3) for c in pca_colours(a, b)])
    for channel, direction in enumerate(directions[:3]):
        direction = direction * np.sign(direction[np.argmax(np.abs(direction))])  # noqa: PLW2901
        score = centred @ direction
        low, high = np.percentile(score, [1, 99])
        expected = np.clip((score - low) / (high - low), 0, 1)
        np.testing.assert_allclose(colours[:, channel], expected, atol=1e-6)


def test_constant_component_is_grey():
    flat = np.ones((6, 3, 4), dtype=np.float32)
    for colour in pca_colours(flat, flat):
        assert (colour == 0.5).all()
    # Two directions only: the third colour is nothing.
    two = random_map(6, dim=3)
    two[2] = 0
    first, _ = pca_colours(two, two)
    assert first[..., 0].std() > 0.1
    assert (first[..., 2] == 0.5).all()


@pytest.mark.parametrize(
    ("a", "b", "says"),
    [
        (np.ones((3, 4)), np.ones((3, 2, 2)), "map0 must be"),
        (np.ones((3, 2, 2)), np.ones((4, 2, 2)), "map1 must be of descriptor length 3"),
        (np.ones((3, 2, 2)), np.full((3, 2, 2), np.nan), "map1 must be"),
    ],
)
def test_bad_maps(a, b, says):
    with pytest.raises(ValueError, match=says):
        pca_colours(a, b)


def feature_map(seed):
    return FeatureMap(random_map(seed), (3.5, 3.5), (8.0, 8.0))


def test_picture(tmp_path):
    image = np.full((40, 56, 3), 200, dtype=np.uint8)
    target = tmp_path / "new" / "pca.png"
    first, second = [feature_map(0), feature_map(1)], [feature_map(2), feature_map(3)]
    assert plot_pca(image, image[:, :30], first, second, target, ["raw", "corrected"]) == target
    assert target.read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in target.parent.iterdir()] == ["pca.png"]
    pytest.importorskip("matplotlib")
    figure = plot_pca(image, image[:, :30], first, second, titles=["raw", "corrected"])
    assert len(figure.axes) == 6
    assert [text.get_text() for text in figure.texts[:3]] == ["image", "raw", "corrected"]
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_cells_are_coloured_around_their_centres():
    """Over a white photograph: colours in the map, grey where there is none."""
    pytest.importorskip("matplotlib")
    size = (56, 40)
    image = np.full((40, 56, 3), 255, dtype=np.uint8)
    maps = [FeatureMap(random_map(k), (3.5, 3.5), (8.0, 8.0)) for k in (0, 1)]
    # Cells of half the width cover the left half of the image.
    half = [FeatureMap(m.values, (1.5, 3.5), (4.0, 8.0)) for m in maps]
    figure = plot_pca(image, image, [maps[0], half[0]], [maps[1], half[1]], opacity=1.0)
    colour = pca_colours(maps[0].values, maps[1].values)[0]
    pixels = [figure.axes[k].images[0].get_array() / 255.0 for k in (1, 2)]
    height, width = pixels[0].shape[:2]
    for row, column in ((0, 0), (2, 3), (4, 6)):
        y = int((8 * row + 4) / size[1] * height)
        for drawn, cell in zip(pixels, (8, 4), strict=True):
            x = int((cell * column + cell / 2) / size[0] * width)
            np.testing.assert_allclose(drawn[y, x], colour[row, column], atol=0.05)
    assert (pixels[1][:, width // 2 + 1 :] == 1).all()


@pytest.mark.parametrize(
    ("maps1", "keywords", "says"),
    [
        ([], {}, "one map per column each, got 1 and 0"),
        ([1], {"titles": ["a", "b"]}, "titles must be one text per column"),
        ([1], {"opacity": 2.0}, "opacity"),
        ([1], {"path": "pca.nonsense"}, "path must be a picture"),
    ],
)
def test_bad_pictures(tmp_path, monkeypatch, maps1, keywords, says):
    monkeypatch.chdir(tmp_path)
    image = np.zeros((40, 56, 3), dtype=np.uint8)
    with pytest.raises(ValueError, match=says):
        plot_pca(image, image, [feature_map(0)], [feature_map(k) for k in maps1], **keywords)
    assert list(tmp_path.iterdir()) == []
