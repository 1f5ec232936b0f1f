"""Association of keypoints that have several descriptors each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from manymatch._validate import IndexArray, int_array, integer, refusal, within
from manymatch.associate.neighbours import OPERATORS, associate

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def associate_owned(
    desc0: ArrayLike,
    owners0: ArrayLike,
    desc1: ArrayLike,
    owners1: ArrayLike,
    k: int = 5,
    operator: str = "mutual",
) -> tuple[IndexArray, NDArray[np.float32], NDArray[np.int32]]:
    """Find candidates between keypoints, whose similarity is the best of their descriptors'.

    A place that SIFT describes under two orientations is one keypoint: it has one list of
    neighbours, and is in a list once. Otherwise as `associate`, to which this is equal where every
    keypoint has one descriptor.

    Parameters
    ----------
    desc0, desc1 : (M0, D) and (M1, D) array_like
        Descriptors, in any order.
    owners0, owners1 : (M0,) and (M1,) array_like of int
        The keypoint that each row belongs to, from 0.
    k, operator
        As in `associate`.

    Returns
    -------
    edges : (E, 2) int64 ndarray
        Pairs of keypoints, by (rank ascending, similarity descending, i, j).
    similarity : (E,) float32 ndarray
        The largest cosine of a descriptor of the one and a descriptor of the other.
    rank : (E,) int32 ndarray
        The first K at which the operator keeps the edge.

    Raises
    ------
    ValueError
        If an argument has another shape, type or range.
    """
    count = integer(k, "k", 1)
    owner0, owner1 = _owners(owners0, desc0, "0"), _owners(owners1, desc1, "1")
    if operator not in OPERATORS:
        raise refusal("operator", f"one of {', '.join(map(repr, OPERATORS))}", operator)
    several = max(_most(owner0), _most(owner1))
    # K keypoints fill at most K * several rows. So whoever is among the K best of a keypoint is
    # found in the list of the descriptor that makes it so, and ranks up to K are exact; the union
    # of both directions, since a list of one image tells nothing about ranks in the other.
    wanted = "oneway" if operator == "oneway" else "union"
    rows, cosine, _ = associate(desc0, desc1, count * several, wanted)
    i, j = owner0[rows[:, 0]], owner1[rows[:, 1]]
    # Best first, so that of equal pairs the first is the best one.
    order = np.lexsort((j, i, -cosine))
    pairs = np.stack([i, j], axis=1)[order]
    _, first = np.unique(pairs, axis=0, return_index=True)
    first = np.sort(first)
    edges, similarity = pairs[first], cosine[order][first]
    forward, backward = (
        _ranks(edges[:, 0], edges, similarity),
        _ranks(edges[:, 1], edges, similarity),
    )
    rank = {
        "mutual": np.maximum(forward, backward),
        "union": np.minimum(forward, backward),
        "oneway": forward,
    }[operator]
    kept = np.flatnonzero(rank <= count)
    kept = kept[np.lexsort((edges[kept, 1], edges[kept, 0], -similarity[kept], rank[kept]))]
    return edges[kept], similarity[kept], rank[kept].astype(np.int32)


def _most(owners: IndexArray) -> int:
    """Largest number of rows that one keypoint has."""
    return int(np.unique(owners, return_counts=True)[1].max(initial=1))


def _ranks(group: IndexArray, edges: IndexArray, similarity: NDArray[np.float32]) -> IndexArray:
    """Place of every edge in its group, from 1, by falling similarity, then by keypoints."""
    order = np.lexsort((edges[:, 1], edges[:, 0], -similarity, group))
    sorted_group = group[order]
    starts = np.flatnonzero(np.diff(sorted_group, prepend=-1))
    place = np.arange(len(group)) - np.repeat(starts, np.diff(starts, append=len(group))) + 1
    ranks = np.empty(len(group), dtype=np.int64)
    ranks[order] = place
    return ranks


def _owners(owners: ArrayLike, desc: ArrayLike, image: str) -> IndexArray:
    """Check owners, one per descriptor."""
    name = f"owners{image}"
    count = len(np.asarray(desc))
    array = int_array(owners, name, f"one keypoint per row of desc{image} ({count})", (count,))
    within(array, 0, 2**31 - 1, name, "numbers of keypoints, from 0")
    return array
