"""Positional debiasing: the basis, what it removes, probes, and when there is nothing left."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manymatch.features.debias import (
    PROBES,
    PositionalBasis,
    probe_image,
)

GRID = (6, 9)


def random_map(seed, dim=20, grid=GRID):
    return np.random.default_rng(seed).normal(size=(dim, *grid)).astype(np.float32)


def slow_apply(values, descriptors, rank):
    """What the specification says, one token and one direction at a time, in float64."""
    dim = len(values)
    tokens = []
    for row in range(values.shape[1]):
        for column in range(values.shape[2]):
            x = values[:, row, column].astype(np.float64)
            tokens.append(x / np.sqrt(x @ x))
    mean = sum(tokens) / len(tokens)
    scatter = np.zeros((dim, dim))
    for token in tokens:
        scatter += np.outer(token - mean, token - mean)
    order = np.linalg.eigh(scatter)
    directions = order.eigenvectors[:, np.argsort(-order.eigenvalues)[:rank]]
    out = []
    for x in descriptors.astype(np.float64):
        y = x / np.sqrt(x @ x)
        z = y.copy()
        for k in range(rank):
            z -= (directions[:, k] @ y) * directions[:, k]
        out.append(z / np.sqrt(z @ z))
    return np.array(out)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 1000),
    dim=st.integers(2, 24),
    rows=st.integers(1, 6),
    columns=st.integers(1, 6),
)
def test_basis_is_orthonormal_and_orders_the_variation(seed, dim, rows, columns):
    values = random_map(seed, dim, (rows, columns))
    basis = PositionalBasis.from_map(values)
    # Centring takes one from the tokens; random ones have no other dependence.
    assert basis.rank == min(dim, rows * columns - 1)
    assert len(basis.singular_values) == min(dim, rows * columns)
    assert (np.diff(basis.singular_values) <= 1e-12).all()
    gram = basis.vectors.T.astype(np.float64) @ basis.vectors
    np.testing.assert_allclose(gram, np.eye(basis.rank), atol=1e-5)
    tokens = values.reshape(dim, -1).T / np.linalg.norm(values.reshape(dim, -1), axis=0)[:, None]
    along = (tokens - tokens.mean(axis=0)) @ basis.vectors
    np.testing.assert_allclose(
        np.linalg.norm(along, axis=0), basis.singular_values[: basis.rank], rtol=1e-4, atol=1e-5
    )


@settings(max_examples=30)
@given(seed=st.integers(0, 1000), rank=st.integers(0, 12))
def test_equals_the_slow_twin(seed, rank):
    values = random_map(seed)
    descriptors = 7.0 * np.random.default_rng(seed + 1).normal(size=(15, 20)).astype(np.float32)
    got = PositionalBasis.from_map(values).apply(descriptors, rank)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, slow_apply(values, descriptors, rank), atol=2e-5)


@settings(max_examples=30)
@given(seed=st.integers(0, 1000), rank=st.integers(1, 19), scale=st.floats(1e-3, 1e3))
def test_result_is_of_length_one_orthogonal_and_stays(seed, rank, scale):
    basis = PositionalBasis.from_map(random_map(seed))
    descriptors = np.random.default_rng(seed).normal(size=(8, 20)).astype(np.float32)
    got = basis.apply(scale * descriptors, rank)
    np.testing.assert_allclose(np.linalg.norm(got, axis=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(got @ basis.vectors[:, :rank], 0.0, atol=1e-4)
    np.testing.assert_allclose(basis.apply(got, rank), got, atol=1e-4)
    np.testing.assert_allclose(basis.apply(descriptors, rank), got, atol=1e-4)


def test_mean_of_the_probe_is_not_subtracted():
    # A probe that varies along one axis only, around a large mean on another.
    values = np.zeros((3, 1, 8), dtype=np.float32)
    values[0], values[1, 0] = 5.0, np.linspace(-1, 1, 8)
    basis = PositionalBasis.from_map(values)
    assert basis.rank == 2
    descriptor = np.array([[5.0, 0.7, 0.3]])
    left = basis.apply(descriptor, 1)[0]
    assert abs(left[1]) < 1e-6
    np.testing.assert_allclose(left[0] / left[2], 5.0 / 0.3, rtol=1e-4)


def test_nothing_left_is_zeros_not_noise():
    basis = PositionalBasis.from_map(random_map(7))
    inside = basis.vectors[:, :3].T @ np.eye(20, dtype=np.float32)
    got = basis.apply(np.vstack([inside, np.zeros((1, 20), dtype=np.float32)]), 5)
    assert (got == 0).all()


def test_exhausted_spectrum_uses_what_there_is():
    # Position shows in three directions only.
    ramp = np.linspace(0, 1, 54).reshape(GRID)
    content = random_map(8, grid=(1, 1))
    directions = np.random.default_rng(9).normal(size=(3, 20, 1, 1))
    values = content + sum(d * ramp**k for k, d in enumerate(directions, start=1))
    basis = PositionalBasis.from_map(values.astype(np.float32))
    assert 3 <= basis.rank < 8
    descriptors = random_map(10).reshape(20, -1).T
    got = basis.apply(descriptors, 15)
    assert np.array_equal(got, basis.apply(descriptors, basis.rank))


def test_uniform_probe_has_no_directions():
    values = np.broadcast_to(random_map(11, grid=(1, 1)), (20, *GRID))
    # With the noise of float32 arithmetic on top, as from a network.
    noisy = values * (1 + 1e-7 * np.random.default_rng(0).normal(size=values.shape))
    basis = PositionalBasis.from_map(noisy.astype(np.float32))
    assert basis.rank == 0
    assert basis.vectors.shape == (20, 0)
    descriptors = random_map(12).reshape(20, -1).T
    got = basis.apply(descriptors, 2)
    np.testing.assert_allclose(got, basis.apply(descriptors, 0), atol=1e-6)


@pytest.mark.parametrize(
    ("grid", "rank", "says"),
    [
        (GRID, 21, "descriptor length, 20, got 21"),
        ((2, 3), 7, "number of cells, 6, got 7"),
        (GRID, -1, "at least 0"),
        (GRID, 2.0, "integer"),
    ],
)
def test_impossible_ranks(grid, rank, says):
    basis = PositionalBasis.from_map(random_map(0, grid=grid))
    with pytest.raises(ValueError, match=says):
        basis.apply(np.ones((1, 20)), rank)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: PositionalBasis.from_map(np.zeros((4, 5))), "values must be"),
        (lambda: PositionalBasis.from_map(np.full((4, 2, 2), np.nan)), "finite"),
        (
            lambda: PositionalBasis.from_map(random_map(0)).apply(np.ones((3, 19)), 2),
            r"descriptors must be an \(N, 20\) array",
        ),
        (lambda: probe_image("white", (3, 3)), "probe must be one of"),
        (lambda: probe_image(None, (3, 3)), "probe must be one of"),
        (lambda: probe_image("black", (0, 3)), "size must be"),
    ],
)
def test_bad_arguments_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def position(rows, columns, dim=24):
    """Smooth functions of the place in fixed directions, much stronger than any content."""
    y, x = np.mgrid[0:rows, 0:columns]
    waves = np.stack([np.sin(x), np.cos(x), np.sin(1.3 * y), np.cos(1.3 * y), x / 10, y / 10])
    directions = np.random.default_rng(1).normal(size=(dim, len(waves)))
    return 4.0 * np.tensordot(directions, waves, axes=1)


def synthetic_features(image):
    """Content, which moves with the image, plus position, which does not."""
    rows, columns = image.shape[0] // 4, image.shape[1] // 4
    patches = image[: 4 * rows, : 4 * columns].reshape(rows, 4, columns, 4, 3)
    flat = patches.transpose(0, 2, 1, 3, 4).reshape(rows, columns, -1) / 255.0
    filters = np.random.default_rng(2).normal(size=(24, 48))
    return np.tensordot(filters, flat, axes=(1, 2)) + position(rows, columns)


def test_corrected_map_moves_with_the_image_and_the_raw_one_does_not():
    scene = np.random.default_rng(3).integers(0, 256, (52, 76, 3), dtype=np.uint8)
    still, moved = scene[:48, :72], scene[4:52, 4:76]
    basis = PositionalBasis.from_map(synthetic_features(probe_image("black", (72, 48))))
    assert basis.rank >= 6

    def agreement(rank):
        maps = [synthetic_features(image) for image in (still, moved)]
        a, b = (basis.apply(m.reshape(24, -1).T, rank).reshape(12, 18, 24) for m in maps)
        same_content = (a[1:, 1:] * b[:-1, :-1]).sum(axis=2)
        same_place = (a * b).sum(axis=2)
        return same_content.mean(), same_place.mean()

    raw_content, raw_place = agreement(0)
    content, place = agreement(basis.rank)
    assert raw_place > raw_content + 0.1
    assert content > 0.999
    assert place < content - 0.1


@pytest.mark.parametrize("name", PROBES)
def test_probes(name):
    image = probe_image(name, (13, 7))
    assert image.shape == (7, 13, 3)
    assert image.dtype == np.uint8
    assert np.array_equal(image, probe_image(name, (13, 7)))
    constant = {"black": 0, "grey": 128}.get(name)
    assert constant is None or (image == constant).all()
    assert name != "noise" or image.std() > 50


def test_probe_fills_the_padded_grid():
    """The probe is as large as the padded image, and the maps may lack the padded cells."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("cv2")
    from manymatch.features.backbones import Backbone
    from manymatch.features.debias import positional_bases
    from manymatch.features.maps import FeatureMap, dense_maps
    from manymatch.features.resize import Resize

    class Ramps(Backbone):
        name, patch_size, dim, num_layers = "ramps", 8, 2, 2
        seen: tuple[object, ...] = ()

        def __init__(self):
            self.module = torch.nn.Identity()

        def forward(self, pixels, layers, norm):  # noqa: ARG002
            self.seen += (tuple(pixels.shape[2:]), float(pixels.std(dim=(2, 3)).max()), *layers)
            ramp = torch.linspace(0, 1, pixels.shape[3] // 8).expand(pixels.shape[2] // 8, -1)
            value = torch.stack([ramp, 1 - ramp])[None]
            return dict.fromkeys(layers, value)

    backbone = Ramps()
    image = np.zeros((41, 63, 3), dtype=np.uint8)
    for complete_only, grid in ((False, (6, 8)), (True, (5, 7))):
        (maps,) = dense_maps(
            [image], backbone, [1, 2], resize=Resize.none(), complete_only=complete_only
        )
        assert maps[1].grid == grid
        backbone.seen = ()
        bases = positional_bases(maps, backbone)
        # One pass for both layers, black everywhere, all cells of the network's output.
        assert backbone.seen == ((48, 64), 0.0, 1, 2)
        assert [len(bases[k].singular_values) for k in (1, 2)] == [2, 2]
        assert [bases[k].rank for k in (1, 2)] == [2, 2]
    with pytest.raises(ValueError, match="maps must be what dense_maps made of one image"):
        positional_bases({1: FeatureMap(random_map(0), (0, 0), (1, 1))}, backbone)
