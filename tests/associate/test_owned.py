"""Keypoints with several descriptors each are associated by their best pair of descriptors."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from manymatch import associate
from manymatch.associate.neighbours import OPERATORS
from manymatch.associate.owned import associate_owned
from manymatch.features.detectors.registry import load_detector
from tests.support.data_folder import data_folder


def slow(desc0, owners0, desc1, owners1, k, operator):
    """The whole matrix of best similarities, ranked by sorting."""
    n0, n1 = owners0.max() + 1, owners1.max() + 1
    all_rows, cosine, _ = associate(desc0, desc1, max(len(desc0), len(desc1)), "union")
    best = {}
    for (a, b), s in zip(all_rows.tolist(), cosine.tolist(), strict=True):
        pair = (owners0[a], owners1[b])
        best[pair] = max(best.get(pair, -2.0), s)
    row = {i: sorted((-best[i, j], j) for j in range(n1) if (i, j) in best) for i in range(n0)}
    column = {j: sorted((-best[i, j], i) for i in range(n0) if (i, j) in best) for j in range(n1)}
    found = []
    for (i, j), s in best.items():
        ranks = row[i].index((-s, j)) + 1, column[j].index((-s, i)) + 1
        rank = {"mutual": max(ranks), "union": min(ranks), "oneway": ranks[0]}[operator]
        if rank <= k:
            found.append((rank, -s, i, j))
    return sorted(found)


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 14),
    st.integers(1, 14),
    st.integers(1, 4),
    st.sampled_from(OPERATORS),
    st.booleans(),
)
def test_equal_to_the_slow_twin(seed, m0, m1, k, operator, coarse):
    rng = np.random.default_rng(seed)
    # Coarse descriptors tie often.
    draw = (
        (lambda n: rng.integers(-1, 2, (n, 3))) if coarse else (lambda n: rng.normal(size=(n, 3)))
    )
    desc0, desc1 = draw(m0).astype(np.float32), draw(m1).astype(np.float32)
    owners0, owners1 = rng.integers(0, max(1, m0 // 2), m0), rng.integers(0, max(1, m1 // 2), m1)
    edges, similarity, rank = associate_owned(desc0, owners0, desc1, owners1, k, operator)
    found = [
        (r, -s, i, j)
        for r, s, (i, j) in zip(rank.tolist(), similarity.tolist(), edges.tolist(), strict=True)
    ]
    assert found == slow(desc0, owners0, desc1, owners1, k, operator)


@pytest.mark.parametrize("operator", OPERATORS)
def test_one_descriptor_each_is_plain_association(operator):
    rng = np.random.default_rng(0)
    desc0, desc1 = rng.normal(size=(60, 8)), rng.normal(size=(50, 8))
    owned = associate_owned(desc0, np.arange(60), desc1, np.arange(50), 4, operator)
    for ours, plain in zip(owned, associate(desc0, desc1, 4, operator), strict=True):
        assert np.array_equal(ours, plain)
        assert ours.dtype == plain.dtype


def test_no_descriptors():
    edges, similarity, rank = associate_owned(np.zeros((0, 4)), [], np.ones((3, 4)), [0, 1, 1])
    assert edges.shape == (0, 2)
    assert len(similarity) == len(rank) == 0


def test_bad_owners_are_named():
    desc = np.eye(3)
    with pytest.raises(ValueError, match=r"^owners0 must be one keypoint per row of desc0"):
        associate_owned(desc, [0, 1], desc, [0, 1, 2])
    with pytest.raises(ValueError, match=r"^owners1 must hold numbers of keypoints"):
        associate_owned(desc, [0, 1, 2], desc, [0, -1, 2])
    with pytest.raises(ValueError, match=r"^operator must be one of"):
        associate_owned(desc, [0, 1, 2], desc, [0, 1, 2], operator="both")


@pytest.mark.data
def test_sift_graphs_are_those_of_the_reference():
    """Orientations of one place as one vertex: the graph of 5 mutual neighbours of real images."""
    cv2 = pytest.importorskip("cv2")
    folder = data_folder()
    if folder is None:
        pytest.skip("no reference data here, see MANYMATCH_DATA")
    graph = np.load(folder / "graphs" / "sift" / "kitti_vo" / "0000.npz")
    rows, owners = [], []
    for k in "01":
        image = cv2.imread(str(folder / "posed_pairs" / "kitti_vo" / str(graph[f"name{k}"])))
        small = cv2.resize(image, graph[f"size{k}"].tolist(), interpolation=cv2.INTER_AREA)
        found = load_detector("sift", border=0).detect(np.ascontiguousarray(small[:, :, ::-1]))
        rows.append(np.concatenate([found.descriptors, found.further]))
        owners.append(np.concatenate([np.arange(len(found)), found.owners]))
    edges, _, _ = associate_owned(rows[0], owners[0], rows[1], owners[1], 5)
    ours, theirs = ({tuple(e) for e in given.tolist()} for given in (edges, graph["edges"]))
    # The reference rounds similarities, which changes the order of a few near ties.
    assert len(ours ^ theirs) <= 0.002 * len(theirs)
