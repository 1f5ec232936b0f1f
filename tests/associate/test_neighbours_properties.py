"""Association operators against their quadratic twins, on inputs full of ties and gaps."""

import importlib

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from manymatch.associate.neighbours import OPERATORS, associate
from tests.oracles import associate as oracle

# The package has a function of this name too.
operator_module = importlib.import_module("manymatch.associate.neighbours")

relaxed = settings(deadline=None, max_examples=150)
operators = st.sampled_from(OPERATORS)


@st.composite
def tied(draw, special=True):
    """Draw descriptors of few small integers, so that similarities tie everywhere."""
    dimension = draw(st.integers(1, 4))
    entries = [-1.0, 0.0, 1.0, 2.0]
    if special:
        entries += [np.nan, np.inf]
    row = st.lists(st.sampled_from(entries), min_size=dimension, max_size=dimension)
    images = []
    for _ in range(2):
        rows = draw(st.lists(row, max_size=draw(st.sampled_from([1, 3, 12, 40]))))
        images.append(np.array(rows, dtype=np.float64).reshape(len(rows), dimension))
    return images


@st.composite
def random(draw):
    """Draw descriptors without ties, of any float type."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    count0, count1 = draw(st.integers(1, 60)), draw(st.integers(1, 60))
    dimension = draw(st.integers(2, 50))
    dtype = draw(st.sampled_from([np.float16, np.float32, np.float64]))
    scale = draw(st.sampled_from([1e-3, 1.0, 1e3]))
    base = rng.normal(size=(count0, dimension))
    noisy = base[rng.integers(0, count0, count1)] + rng.normal(size=(count1, dimension))
    return [(scale * base).astype(dtype), (scale * noisy).astype(dtype)]


def as_lists(result):
    edges, similarity, rank = result
    assert edges.dtype == np.int64
    assert edges.shape == (len(edges), 2)
    assert similarity.dtype == np.float32
    assert rank.dtype == np.int32
    return [tuple(e) for e in edges.tolist()], similarity.tolist(), rank.tolist()


@relaxed
@given(tied() | random(), st.integers(1, 50), operators)
def test_equals_the_twin(images, k, operator):
    assert as_lists(associate(*images, k, operator)) == oracle.associate(*images, k, operator)


@relaxed
@given(tied() | random(), st.integers(1, 8), operators, st.integers(0, 40))
def test_cap_is_a_prefix(images, k, operator, cap):
    edges, similarity, rank = associate(*images, k, operator)
    capped = associate(*images, k, operator, max_edges=cap)
    assert as_lists(capped) == as_lists((edges[:cap], similarity[:cap], rank[:cap]))


@relaxed
@given(tied() | random(), st.integers(1, 12), operators)
def test_nested_by_rank(images, k, operator):
    edges, similarity, rank = associate(*images, 12, operator)
    kept = rank <= k
    assert as_lists(associate(*images, k, operator)) == as_lists(
        (edges[kept], similarity[kept], rank[kept])
    )


@relaxed
@given(tied() | random(), st.integers(1, 8), st.sampled_from(["mutual", "union"]))
def test_symmetric_under_swapping_the_images(images, k, operator):
    forward = zip(*as_lists(associate(*images, k, operator)), strict=True)
    backward = zip(*as_lists(associate(*images[::-1], k, operator)), strict=True)
    assert set(forward) == {((i, j), s, r) for (j, i), s, r in backward}


@relaxed
@given(random(), st.integers(1, 8), operators, st.randoms(use_true_random=False))
def test_invariant_under_permuting_keypoints(images, k, operator, shuffle):
    orders = [shuffle.sample(range(len(x)), len(x)) for x in images]
    moved = associate(*(x[o] for x, o in zip(images, orders, strict=True)), k, operator)
    similarity = oracle.similarities(*images)
    if len(set(similarity.values())) < len(similarity):
        return  # a tie is broken by position
    edges = [(orders[0][i], orders[1][j]) for i, j in moved[0].tolist()]
    assert (edges, *as_lists(moved)[1:]) == as_lists(associate(*images, k, operator))


@relaxed
@given(tied(), st.integers(1, 5), operators, st.data())
def test_useless_descriptors_change_nothing_for_others(images, k, operator, data):
    x0, x1 = images
    value = data.draw(st.sampled_from([0.0, np.nan, -np.inf]))
    place = data.draw(st.integers(0, len(x1)))
    padded = np.insert(x1, place, value, axis=0)
    edges, similarity, rank = associate(x0, padded, k, operator)
    assert not (edges[:, 1] == place).any()
    edges[:, 1] -= edges[:, 1] > place
    assert as_lists((edges, similarity, rank)) == as_lists(associate(x0, x1, k, operator))


@relaxed
@given(
    tied() | random(),
    st.integers(1, 8),
    operators,
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(1, 3),
)
def test_tiles_and_threads_do_not_matter(images, k, operator, rows, columns, threads):
    expected = as_lists(associate(*images, k, operator))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operator_module, "_TILE_ROWS", rows)
        patch.setattr(operator_module, "_TILE_COLUMNS", columns)
        patch.setattr(operator_module, "_MIN_ENTRIES_TO_SHARE", 0)
        patch.setattr(operator_module, "_num_threads", lambda: threads)
        assert as_lists(associate(*images, k, operator)) == expected
