"""associate on torch tensors: the same result as on arrays, on the host and as on a device."""

import numpy as np
import pytest

from manymatch import _core
from manymatch.associate import neighbours
from manymatch.associate.neighbours import associate

torch = pytest.importorskip("torch", reason="torch is not installed: tensors cannot be tested")


def same(got, expected):
    return all(np.array_equal(a, b) for a, b in zip(got, expected, strict=True))


def tensors(dtype, seed=0, count0=130, count1=90, dimension=40):
    rng = np.random.default_rng(seed)
    x0 = rng.normal(size=(count0, dimension))
    x1 = x0[rng.integers(0, count0, count1)] + 0.7 * rng.normal(size=(count1, dimension))
    return torch.tensor(x0).to(dtype), torch.tensor(x1).to(dtype)


def device_result(x0, x1, k, operator):
    """Run the code for devices, with tensors that are on the host."""
    k0, k1 = min(k, len(x1)), 0 if operator == "oneway" else min(k, len(x0))
    lists = *neighbours._device_lists(x0, x1, k0), *neighbours._device_lists(x1, x0, k1)
    return _core.edges_of_lists(*lists, operator, None)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16", "int16", "int64"])
@pytest.mark.parametrize("operator", ["mutual", "oneway", "union"])
def test_equals_arrays(dtype, operator):
    x0, x1 = (10 * x for x in tensors(torch.float32))
    x0, x1 = (x.abs().to(getattr(torch, dtype)) for x in (x0, x1))
    expected = associate(x0.to(torch.float64).numpy(), x1.to(torch.float64).numpy(), 6, operator)
    assert len(expected[0]) > 50
    assert same(associate(x0, x1, 6, operator), expected)
    assert same(device_result(x0, x1, 6, operator), expected)


@pytest.mark.parametrize("operator", ["mutual", "oneway", "union"])
@pytest.mark.parametrize("k", [1, 4, 500])
def test_ties_and_useless_descriptors(operator, k, monkeypatch):
    monkeypatch.setattr(neighbours, "_DEVICE_TILE_ENTRIES", 300)
    rng = np.random.default_rng(4)
    x0, x1 = (rng.integers(-1, 2, (n, 3)).astype(np.float32) for n in (60, 45))
    x0[7] = np.nan
    x1[3, 1] = np.inf
    expected = associate(x0, x1, k, operator)
    pair = torch.tensor(x0), torch.tensor(x1)
    assert same(associate(*pair, k, operator), expected)
    assert same(device_result(*pair, k, operator), expected)


@pytest.mark.parametrize("scale", [1e-310, 1e-200, 1e-14, 1e-9, 1e200, 1e307])
def test_sizes_at_the_edge_of_float64(scale):
    x0, x1 = (x * scale for x in tensors(torch.float64, dimension=8))
    expected = associate(x0.numpy(), x1.numpy())
    assert same(device_result(x0, x1, 5, "mutual"), expected)


def test_gradients_and_layout():
    x0, x1 = tensors(torch.float32)
    expected = associate(x0, x1)
    assert same(associate(x0.requires_grad_(), x1), expected)
    assert same(associate(x0, x1.T.contiguous().T), expected)
    strided = torch.repeat_interleave(x1, 2, dim=0)[::2]
    assert same(associate(x0, strided), expected)
    assert same(device_result(x0.detach(), strided, 5, "mutual"), expected)


@pytest.mark.parametrize("operator", ["mutual", "oneway", "union"])
@pytest.mark.parametrize("shapes", [((0, 4), (3, 4)), ((3, 4), (0, 4)), ((0, 4), (0, 4))])
def test_no_keypoints(shapes, operator):
    pair = [torch.ones(shape) for shape in shapes]
    assert len(associate(*pair, 5, operator)[0]) == 0
    assert len(device_result(*pair, 5, operator)[0]) == 0


def test_bad_tensors():
    good = torch.ones(3, 4)
    assert same(associate(good, np.ones((3, 4))), associate(good, good))
    with pytest.raises(ValueError, match=r"desc0 must be an \(N, D\) array.*shape \(3,\)"):
        associate(torch.ones(3), good)
    with pytest.raises(ValueError, match=r"desc1 must be.*torch.bool"):
        associate(good, good > 0)
    with pytest.raises(ValueError, match=r"desc1 must be.*torch.complex64"):
        associate(good, good.to(torch.complex64))
    with pytest.raises(ValueError, match="desc1 must have the dimension of desc0, 4"):
        associate(good, torch.ones(3, 5))
    with pytest.raises(ValueError, match="desc1 must be on the device of desc0, cpu, got meta"):
        associate(good, torch.ones(3, 4, device="meta"))
