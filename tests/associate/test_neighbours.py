"""associate: cases worked out by hand, limits, bad input, determinism."""

import os
import subprocess
import sys

import numpy as np
import pytest

from manymatch import _core
from manymatch.associate.neighbours import associate
from tests.oracles import associate as oracle


def pairs(result):
    return [tuple(edge) for edge in result[0].tolist()]


@pytest.fixture
def made():
    rng = np.random.default_rng(3)
    x0 = rng.normal(size=(700, 96))
    x1 = x0[rng.integers(0, 700, 600)] + 0.8 * rng.normal(size=(600, 96))
    return x0, x1


def test_operators_by_hand():
    # Angles in degrees: image 1 has two candidates near the first keypoint of image 0.
    def at(*degrees):
        return np.stack([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))], axis=1)

    x0, x1 = at(0, 40), at(5, 12, 90)
    assert pairs(associate(x0, x1, 1, "mutual")) == [(0, 0)]
    assert pairs(associate(x0, x1, 1, "oneway")) == [(0, 0), (1, 1)]
    assert pairs(associate(x0, x1, 1, "union")) == [(0, 0), (0, 1), (1, 1), (1, 2)]
    edges, similarity, rank = associate(x0, x1, 2, "mutual")
    assert edges.tolist() == [[0, 0], [0, 1], [1, 1], [1, 0]]
    assert rank.tolist() == [1, 2, 2, 2]
    assert similarity == pytest.approx(np.cos(np.radians([5, 12, 28, 35])), abs=1e-6)


def test_equal_descriptors_go_by_index():
    edges, similarity, rank = associate(np.ones((3, 7)), np.ones((3, 7)), 2)
    assert edges.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert rank.tolist() == [1, 2, 2, 2]
    assert (similarity == similarity[0]).all()


@pytest.mark.parametrize("k", [1, 5, 40])
def test_many_copies_at_random_places(k):
    # A BLAS may give copies of a descriptor values that differ in the last bit, by their place.
    rng = np.random.default_rng(0)
    kinds = rng.normal(size=(6, 83)).astype(np.float32)
    x0, x1 = kinds[rng.integers(0, 6, 130)], kinds[rng.integers(0, 6, 150)]
    for operator in ("mutual", "oneway", "union"):
        result = associate(x0, x1, k, operator)
        expected = oracle.associate(x0, x1, k, operator)
        assert (pairs(result), result[1].tolist(), result[2].tolist()) == expected


@pytest.mark.parametrize("kind", ["random", "ties", "useless", "negative", "copies"])
@pytest.mark.parametrize("k", [1, 5, 40])
def test_hundreds_of_keypoints(kind, k):
    # Long rows and columns take a shorter way to their best ones.
    rng = np.random.default_rng(5)
    x0, x1 = rng.normal(size=(700, 12)), rng.normal(size=(530, 12))
    if kind in ("ties", "useless"):
        x0, x1 = np.round(x0), np.round(x1)
    if kind == "useless":
        x0[::7], x1[::5] = 0, np.nan
    if kind == "negative":
        x0, x1 = np.abs(x0), -np.abs(x1)
        x1[::5] = 0
    if kind == "copies":
        x0, x1 = np.repeat(x0[:5], 140, axis=0), np.repeat(x1[:6], 88, axis=0)
    for operator in ("mutual", "oneway", "union"):
        expected = oracle.associate_by_sorting(x0, x1, k, operator)
        got = associate(x0, x1, k, operator)
        assert all(np.array_equal(a, b) for a, b in zip(got, expected, strict=True))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble, np.uint8])
def test_any_number_type(dtype):
    rng = np.random.default_rng(1)
    x0, x1 = (rng.integers(0, 100, (20, 9)).astype(dtype) for _ in range(2))
    expected = associate(x0.astype(np.float64), x1.astype(np.float64))
    for got, want in zip(associate(x0, x1), expected, strict=True):
        assert np.array_equal(got, want)


@pytest.mark.parametrize("scale", [1e-9, 1e30, 1e200, 1e307])
def test_size_of_descriptors_does_not_matter_above_the_floor(made, scale):
    x0, x1 = (x[:50, :16] for x in made)
    expected = associate(x0, x1)
    got = associate(x0 * scale, x1)
    assert pairs(got) == pairs(expected)
    assert got[1] == pytest.approx(expected[1], abs=1e-6)


@pytest.mark.parametrize("size", [1e-200, 5e-324])
def test_descriptors_that_vanish_have_no_edges(size):
    assert pairs(associate([[size, size], [1.0, 0.0]], [[1.0, 0.5]])) == [(1, 0)]


def test_norm_floor():
    # |x| = 1e-14 is divided by 1e-12, so that the similarity is 0.01.
    _, similarity, _ = associate([[1e-14, 0.0]], [[1.0, 0.0]])
    assert similarity.tolist() == [np.float32(0.01)]


def test_arrays_in_any_layout(made):
    x0, x1 = made
    expected = pairs(associate(x0, x1))
    assert pairs(associate(np.asfortranarray(x0), x1)) == expected
    assert pairs(associate(np.repeat(x0, 2, axis=1)[:, ::2], x1.tolist())) == expected


def test_input_is_left_alone(made):
    x0, x1 = (x.copy() for x in made)
    associate(x0, x1)
    assert np.array_equal(x0, made[0])
    assert np.array_equal(x1, made[1])


@pytest.mark.parametrize(
    ("shape0", "shape1"), [((0, 4), (3, 4)), ((3, 4), (0, 4)), ((0, 4), (0, 4)), ((0, 0), (3, 4))]
)
@pytest.mark.parametrize("operator", ["mutual", "oneway", "union"])
def test_no_keypoints(shape0, shape1, operator):
    edges, similarity, rank = associate(np.ones(shape0), np.ones(shape1), 3, operator)
    assert edges.shape == (0, 2)
    assert similarity.shape == rank.shape == (0,)


def test_one_keypoint_of_dimension_one():
    edges, similarity, rank = associate([[2.0]], [[-3.0], [0.5]], k=100)
    assert edges.tolist() == [[0, 1], [0, 0]]
    assert similarity.tolist() == [1.0, -1.0]
    assert rank.tolist() == [1, 2]


def test_only_useless_descriptors():
    assert len(associate(np.zeros((3, 2)), np.full((4, 2), np.nan))[0]) == 0


@pytest.mark.parametrize("isa", _core.instruction_sets())
def test_every_instruction_set_gives_the_same(made, isa):
    expected = associate(*made, 7, "union")
    _core.force_instruction_set(isa)
    try:
        got = associate(*made, 7, "union")
    finally:
        _core.force_instruction_set(None)
    assert all(np.array_equal(a, b) for a, b in zip(got, expected, strict=True))


@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize("core", ["", "Haswell"])
def test_blas_does_not_matter(tmp_path, threads, core):
    # 700 is a dimension for which OpenBLAS adds in another order with another number of threads.
    code = (
        "import sys, numpy as np\n"
        "from manymatch.associate import associate\n"
        "rng = np.random.default_rng(0)\n"
        "x0 = rng.normal(size=(900, 700))\n"
        "x1 = x0[::-1] + rng.normal(size=x0.shape)\n"
        "np.savez(sys.argv[1], *associate(x0, x1, 5, 'union'))"
    )
    results = []
    for name, changes in (
        ("a.npz", {"OPENBLAS_NUM_THREADS": "1"}),
        ("b.npz", {"OPENBLAS_NUM_THREADS": threads, "OPENBLAS_CORETYPE": core}),
    ):
        environment = os.environ | {key: value for key, value in changes.items() if value}
        command = [sys.executable, "-c", code, str(tmp_path / name)]
        subprocess.run(command, check=True, env=environment)  # noqa: S603
        with np.load(tmp_path / name) as file:
            results.append([file[key] for key in file.files])
    assert all(np.array_equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"desc0": np.ones(3)}, "desc0 must be an .N, D. array of numbers"),
        ({"desc1": np.ones((2, 3, 4))}, "desc1 must be"),
        ({"desc0": np.ones((3, 0))}, "desc0 must be"),
        ({"desc0": [["a", "b"]]}, "desc0 must be"),
        ({"desc0": [[1.0], [2.0, 3.0]]}, "desc0 must be"),
        ({"desc0": np.ones((3, 4), dtype=bool)}, "desc0 must be"),
        ({"desc0": np.ones((3, 4), dtype=complex)}, "desc0 must be"),
        ({"desc0": np.ma.masked_equal(np.eye(4), 0)}, "desc0 must be"),
        ({"desc1": None}, "desc1 must be"),
        ({"desc1": np.ones((3, 5))}, "desc1 must have the dimension of desc0, 4"),
        ({"k": 0}, "k must be an integer of at least 1, got 0"),
        ({"k": 2.5}, "k must be an integer"),
        ({"k": True}, "k must be an integer"),
        ({"operator": "mutal"}, "operator must be one of .*did you mean 'mutual'"),
        ({"operator": None}, "operator must be one of"),
        ({"operator": ["mutual"]}, "operator must be one of"),
        ({"max_edges": -1}, "max_edges must be an integer of at least 0, got -1"),
        ({"max_edges": 1.0}, "max_edges must be an integer"),
    ],
)
def test_bad_input(arguments, text):
    good = {"desc0": np.ones((3, 4)), "desc1": np.ones((3, 4))}
    with pytest.raises(ValueError, match=text):
        associate(**(good | arguments))
