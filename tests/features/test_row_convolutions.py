"""The core's convolutions of few channels and the features read from maps, against slow twins."""

import numpy as np
import pytest

from manymatch import _core

GAIN, LOW = 1.0507009873554805, 1.0507009873554805 * 1.6732632423543772


@pytest.fixture(params=_core.instruction_sets(), autouse=True)
def _every_instruction_set(request):
    _core.force_instruction_set(request.param)
    yield
    _core.force_instruction_set(None)


def activated(x, name):
    if name == "selu":
        return np.where(x > 0, GAIN * x, LOW * np.expm1(np.minimum(x, 0)))
    return 1 / (1 + np.exp(-x)) if name == "sigmoid" else x


def convolved(maps, weights, bias):
    """Convolve (C, H, W) in float64, with zeros around."""
    reach = weights.shape[2] // 2
    padded = np.pad(maps, [(0, 0), (reach, reach), (reach, reach)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, weights.shape[2:], (1, 2))
    found = np.einsum("chwij,ocij->ohw", windows, weights.astype(np.float64))
    return found if bias is None else found + bias[:, None, None]


def between(maps, rows, columns):
    """Read (h, w, C) maps linearly at rows and columns of cells, (N, C)."""
    top, left = (
        np.minimum(cells.astype(int), max(n - 2, 0))
        for cells, n in zip((rows, columns), maps.shape, strict=False)
    )
    below, right = np.minimum(top + 1, len(maps) - 1), np.minimum(left + 1, maps.shape[1] - 1)
    v, u = (rows - top)[:, None], (columns - left)[:, None]
    upper = (1 - u) * maps[top, left] + u * maps[top, right]
    return (1 - v) * upper + v * ((1 - u) * maps[below, left] + u * maps[below, right])


def enlarged(maps, height, width):
    """Enlarge (h, w, C) maps from corner to corner to (C, H, W)."""
    y, x = (a.ravel() for a in np.mgrid[:height, :width])
    steps = [(n - 1) / max(m - 1, 1) for n, m in zip(maps.shape, (height, width), strict=False)]
    return between(maps, y * steps[0], x * steps[1]).T.reshape(-1, height, width)


def run(image, layers, coarse=(), added=0):
    """All layers' results, as the core has them; the maps of the first are (C, H, W)."""
    height, width = image.shape[0], image.shape[1 if image.dtype == np.uint8 else 2]
    outputs = [
        (k, "rows", np.full((height, len(layer[0]), width), np.nan, np.float32))
        for k, layer in enumerate(layers)
    ]
    _core.convolve_map(image, layers, outputs, list(coarse), added)
    return [array.transpose(1, 0, 2) for _, _, array in outputs]


def random(seed, *shape):
    values = np.random.default_rng(seed).standard_normal(shape)
    return (values / np.sqrt(max(1, values[0].size / 2))).astype(np.float32)


@pytest.mark.parametrize("size", [(1, 1), (1, 97), (2, 95), (3, 96), (9, 200), (40, 7)])
def test_layers_are_those_of_plain_convolutions(size):
    image = np.random.default_rng(1).integers(0, 256, (*size, 3), np.uint8)
    coarse = [random(k, 1 + size[0] // k, 1 + size[1] // k, 8) for k in (2, 5)]
    layers = [
        (random(10, 8, 3, 3, 3), random(11, 8), "selu", None),
        (random(12, 16, 8, 3, 3), random(13, 16), "selu", random(14, 16, 3, 1, 1)),
        (random(15, 8, 16, 1, 1), None, "selu", None),
        (random(16, 5, 8, 3, 3), None, "none", None),
        (random(17, 1, 5, 3, 3), None, "sigmoid", None),
    ]
    found = run(image, layers, coarse, added=2)
    maps = [image.transpose(2, 0, 1) / 255.0]
    for k, (weights, bias, activation, shortcut) in enumerate(layers):
        values = convolved(maps[-1], weights, bias)
        if shortcut is not None:
            values += convolved(maps[-2], shortcut, None)
        if k == 2:
            values += sum(enlarged(one.astype(np.float64), *size) for one in coarse)
        maps.append(activated(values, activation))
        np.testing.assert_allclose(found[k], maps[-1], atol=2e-5)


def test_maps_go_in_as_rows():
    maps = random(3, 6, 40, 50) * 10
    layers = [(random(4, 8, 6, 3, 3), None, "none", None)]
    (found,) = run(np.ascontiguousarray(maps.transpose(1, 0, 2)), layers)
    np.testing.assert_allclose(found, convolved(maps, layers[0][0], None), atol=1e-5)


def test_forms_of_outputs_hold_the_same_values():
    image = np.random.default_rng(5).integers(0, 256, (24, 100, 3), np.uint8)
    layers = [(random(6, 8, 3, 3, 3), None, "selu", None)]
    rows, pixels = np.empty((24, 8, 100), np.float32), np.empty((24, 100, 8), np.float32)
    means = [np.empty((24 // f, 8, 100 // f), np.float32) for f in (2, 4)]
    forms = [(0, "rows", rows), (0, "pixels", pixels), *((0, "means", one) for one in means)]
    _core.convolve_map(image, layers, forms)
    np.testing.assert_array_equal(rows, pixels.transpose(0, 2, 1))
    for factor, found in zip((2, 4), means, strict=True):
        squares = rows.reshape(24 // factor, factor, 8, 100 // factor, factor)
        np.testing.assert_allclose(found, squares.mean(axis=(1, 4)), atol=1e-6)


def test_activations_hold_far_from_zero():
    values = np.array([-1e30, -200, -87, -20, -1, -1e-3, 0, 1e-3, 1, 20, 200, 1e30], np.float32)
    one = np.ones((1, 1, 1, 1), np.float32)
    for name in ("selu", "sigmoid"):
        (found,) = run(values.reshape(1, 1, -1), [(one, None, name, None)])
        with np.errstate(over="ignore"):
            wanted = activated(values.astype(np.float64), name)
        np.testing.assert_allclose(found.ravel(), wanted, rtol=1e-6, atol=5e-7)


def test_features_are_read_between_unit_rows():
    rng = np.random.default_rng(7)
    fine, weights = random(8, 40, 8, 64), random(9, 8, 16)
    coarse = [random(k, 40 // k, 64 // k, 16) for k in (2, 8, 40)]
    start, size = (3, 5), (57, 31)
    places = np.concatenate([
        rng.uniform(-2, 60, (300, 2)), [[0, 0], [56, 30], [57, 31], [-0.5, 3], [1e9, -1e9]],
        rng.integers(0, 31, (50, 2)),
    ])  # fmt: skip
    found = _core.read_maps(fine, weights, coarse, start, size, places)
    wanted = np.zeros((len(places), 64))
    for dx, dy in ((0, 0), (1, 0), (0, 1), (1, 1)):
        pixels = np.floor(places) + np.array([dx, dy])
        share = (1 - np.abs(places - pixels)).prod(axis=1)
        share[((pixels < 0) | (pixels >= size)).any(axis=1)] = 0
        x, y = (np.clip(pixels, 0, np.subtract(size, 1)) + start).astype(int).T
        rows = [activated(fine[y, :, x] @ weights.astype(np.float64), "selu")]
        for one in coarse:
            steps = [(n - 1) / max(m - 1, 1) for n, m in zip((40, 64), one.shape, strict=False)]
            rows.append(between(one, y / steps[0], x / steps[1]))
        whole = np.concatenate(rows, axis=1)
        wanted += share[:, None] * whole / np.linalg.norm(whole, axis=1, keepdims=True)
    np.testing.assert_allclose(found, wanted, atol=2e-6)


def test_arrays_that_do_not_fit_are_refused():
    image, kernel = np.zeros((4, 4, 3), np.uint8), np.zeros((8, 3, 3, 3), np.float32)
    layer, out = (kernel, None, "none", None), np.empty((4, 8, 4), np.float32)
    for layers, outputs, further in (
        ([], [], {}),
        ([(kernel[:, :2], None, "none", None)], [], {}),
        ([(kernel, kernel[:7, 0, 0, 0].copy(), "none", None)], [], {}),
        ([(kernel, None, "gelu", None)], [], {}),
        ([(np.zeros((8, 3, 5, 5), np.float32), None, "none", None)], [], {}),
        ([(kernel, None, "none", kernel)], [], {}),
        ([layer], [(1, "rows", out)], {}),
        ([layer], [(0, "rows", out[:3])], {}),
        ([layer], [(0, "pixels", out)], {}),
        ([layer], [(0, "columns", out)], {}),
        ([layer], [], {"coarse": [np.zeros((2, 2, 4), np.float32)]}),
        ([layer], [], {"coarse": [np.zeros((2, 2, 8), np.float32)], "added": 1}),
    ):
        with pytest.raises((ValueError, TypeError)):
            _core.convolve_map(image, layers, outputs, **further)
    fine, weights, place = np.zeros((4, 8, 4), np.float32), np.zeros((8, 16), np.float32), [[0, 0]]
    for start, size, by in (((1, 0), (4, 4), weights), ((0, 0), (4, 4), weights[:, :8].copy())):
        with pytest.raises(ValueError, match="must"):
            _core.read_maps(fine, by, [], start, size, np.array(place, float))
