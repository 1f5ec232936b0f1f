"""What third images say of a pair, and what its matches say of each other.

Equal fronts and equal sides of an object give pairs with many matches and a wrong pose. What third
images see there is not found in such a pair, least of all the points that only a few images have.
Where windows repeat along a front, matches jump between them, so that neighbours disagree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from manymatch._validate import BoolArray, FloatArray, IndexArray
    from manymatch.reconstruct.pair_graph import PairGraph, Photo, PhotoPair

#: Pairs with fewer matches are refused; COLMAP's mappers have the same limit.
LEAST_MATCHES = 15
#: Names of the cues of a link before there is a world.
CUES = ("own", "matches", "parallax", "found", "found_wide", "rare", "rare_score")

# Cells along the longer edge of an image, third images of a link, least points for a scale, share
# of the longer edge at the border where points may be lost.
_CELLS, _THIRD, _LEAST_COMMON, _BORDER = 16, 12, 5, 0.03
# A point counts as missing if a third image has it under this share of the link's parallax or
# more: nearer views share points that a farther one loses.
_WIDE = 0.7
# Cells found and missing that a link has beforehand, so that few cells say little. A link without
# matches counts as one with 200 matches and a parallax of 0.4 radians.
_FOUND, _MISSING, _USUAL_MATCHES, _USUAL_PARALLAX = 3.0, 5.0, 200, 0.4
# Matches of a link that are compared with their neighbours, how many these are, the distance, as a
# share of the longer edge, beyond which a match is not where they put it, and the most that all
# count: surfaces that are really rough scatter the matches of a true pair.
_COMPARED, _NEIGHBOURS, _ASIDE, _MOST_SCATTERED = 150, 8, 1.0 / 128.0, 1.5
# Inverse depths below this, in units of the length of a link, are not measurable.
_FARTHEST = 1e-4


class Evidence(NamedTuple):
    """Links, the pairs that have a pose, and what is known of them before there is a world.

    `place` (P,) are places in the graph; ``x_j = R x_i + t`` with images i and j (P,). `cues` (P,
    7) are the columns `CUES`, `cells` (P, 2) the cells that third images see: found and missing
    here. `scattered` (P,) is above 0 if most matches are not where their neighbours put them.
    ``ratio`` (N,) is the logarithm of the length of link ``a`` over that of link ``b``, from points
    that both have.
    """

    place: IndexArray
    i: IndexArray
    j: IndexArray
    R: FloatArray
    t: FloatArray
    cues: FloatArray
    cells: FloatArray
    scattered: FloatArray
    a: IndexArray
    b: IndexArray
    ratio: FloatArray


class _View(NamedTuple):
    """Links at one image (L,), as if it were the first of each, and its keypoints in them (L, N).

    `inverse` is the logarithm of the length of a link over the depth of a keypoint, infinite where
    it is unknown.
    """

    link: IndexArray
    other: IndexArray
    R: FloatArray
    t: FloatArray
    found: BoolArray
    inverse: FloatArray
    parallax: FloatArray


def gather_evidence(graph: PairGraph) -> Evidence:
    """Collect the links of a graph and what is known of each before there is a world."""
    pairs = [
        (place, pair, pair.pose)
        for place, pair in enumerate(graph.pairs)
        if pair.pose is not None and not 0 < len(pair.matches) < LEAST_MATCHES
    ]
    place, i, j, number = (
        np.array([row[k] for row in rows], np.int64)
        for rows in [[(p, pair.first, pair.second, len(pair.matches)) for p, pair, _ in pairs]]
        for k in range(4)
    )
    R = np.array([pose.R for _, _, pose in pairs]).reshape(-1, 3, 3)
    t = np.array([pose.t for _, _, pose in pairs]).reshape(-1, 3)
    own = np.array([pair.log_odds for _, pair, _ in pairs], np.float64)
    matches = [pair.matches for _, pair, _ in pairs]
    # Over both images of a link, as `_compare` returns them; parallax; ratios of lengths.
    sums, parallax = np.zeros((len(i), 6)), np.full(len(i), _USUAL_PARALLAX)
    scattered = [_scattered(pair, graph.photos) for _, pair, _ in pairs]
    ratios = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))]
    # A keypoint where a lens has no inverse gets the ray of the axis.
    rays = [np.nan_to_num(photo.rays()) for photo in graph.photos]
    for image, photo in enumerate(graph.photos):
        link = np.flatnonzero(((i == image) | (j == image)) & (number > 0))
        view = _view(image, link, (i, j, R, t), matches, rays)
        known = np.isfinite(view.inverse)
        common = (known.astype(np.float32) @ known.T.astype(np.float32)) * (own[link] > 0)
        np.fill_diagonal(common, 0.0)
        expected = np.zeros_like(view.found)
        for row in range(len(link)):
            parallax[link[row]] = np.median(view.parallax[row, view.found[row]])
            third = np.argsort(-common[row], kind="stable")[:_THIRD]
            third = third[common[row, third] >= _LEAST_COMMON]
            if len(third):
                theirs = view.inverse[third][:, known[row]]
                off = np.where(np.isfinite(theirs), view.inverse[row, known[row]] - theirs, np.inf)
                scale = _middle(off.T)
                ratios.append((np.full(len(third), link[row]), link[third], scale))
                other = graph.photos[view.other[row]]
                expected[row] = _expected(rays[image], other, view, row, third, scale)
        cell, chances = _cells(photo), (expected | view.found).sum(axis=0)
        for row in range(len(link)):
            sums[link[row]] += _compare(view.found, expected[row], chances, row, cell)
    found, rare = (np.log((sums[:, k] + _FOUND) / (sums[:, k + 1] + _MISSING)) for k in (0, 2))
    angle = np.log(np.degrees(parallax) + 2.0)
    columns = [np.clip(own, -3.0, 3.0), np.log(np.where(number, number, _USUAL_MATCHES) / 50.0)]
    columns += [angle, found, found * angle, rare - found, sums[:, 4] / np.sqrt(sums[:, 5] + 1.0)]
    a, b, ratio = (np.concatenate(column) for column in zip(*ratios, strict=True))
    cues, cells = np.stack(columns, axis=1), sums[:, :2]
    return Evidence(place, i, j, R, t, cues, cells, np.array(scattered), a, b, ratio)


def _scattered(pair: PhotoPair, photos: Sequence[Photo]) -> float:
    """Log-odds that a match is not where its neighbours put it, from 0 to a limit."""
    number = min(len(pair.matches), _COMPARED)
    if number <= _NEIGHBOURS:
        return 0.0
    some = pair.matches[np.linspace(0, len(pair.matches) - 1, number).astype(np.int64)]
    sides = [(photos[pair.first], some[:, 0]), (photos[pair.second], some[:, 1])]
    a, b = (photo.points[ends] / _size(photo).max() for photo, ends in sides)
    aside = _aside(a, b) + _aside(b, a)
    odds = float(np.log((aside + 5.0) / (2 * number - aside + 5.0)))
    return min(max(odds, 0.0), _MOST_SCATTERED)


def _aside(a: FloatArray, b: FloatArray) -> int:
    """How many points b (M, 2) are not where an affine map of neighbours of their partners a is."""
    squared = ((a[:, None] - a) ** 2).sum(axis=2)
    np.fill_diagonal(squared, np.inf)
    near = np.argpartition(squared, _NEIGHBOURS, axis=1)[:, :_NEIGHBOURS]
    # Offsets and a one, so that the last row of each map is the place of the match itself.
    rows = np.append(a[near] - a[:, None], np.full((*near.shape, 1), _ASIDE), axis=2)
    across = np.swapaxes(rows, 1, 2)
    maps = np.linalg.solve(across @ rows + 1e-9 * np.eye(3), across @ b[near])
    return int((((_ASIDE * maps[:, 2] - b) ** 2).sum(axis=1) > _ASIDE**2).sum())


def _view(
    image: int,
    link: IndexArray,
    links: tuple[IndexArray, IndexArray, FloatArray, FloatArray],
    matches: list[IndexArray],
    rays: list[FloatArray],
) -> _View:
    """Depths and parallaxes of the keypoints of an image in its links."""
    back = links[1][link] == image
    other = np.where(back, links[0][link], links[1][link])
    R, t = links[2][link], links[3][link]
    R = np.where(back[:, None, None], np.swapaxes(R, 1, 2), R)
    t = np.where(back[:, None], -(R @ t[:, :, None])[:, :, 0], t)
    shape = len(link), len(rays[image])
    view = _View(link, other, R, t, np.zeros(shape, bool), np.full(shape, np.inf), np.zeros(shape))
    for row in range(len(link)):
        here, there = matches[link[row]][:, :: -1 if back[row] else 1].T
        turned, ray = rays[image][here] @ R[row].T, rays[other[row]][there]
        a, b = np.cross(ray, turned), np.cross(ray, t[row])
        inverse = -(a * b).sum(axis=1) / np.maximum((b * b).sum(axis=1), 1e-12)
        good = inverse > _FARTHEST
        view.found[row, here] = True
        view.inverse[row, here[good]] = np.log(inverse[good])
        view.parallax[row, here] = angles(ray, turned)
    return view


def logistic(log_odds: FloatArray) -> FloatArray:
    """Return the probabilities of log-odds."""
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(log_odds, -30.0, 30.0))))


def angles(a: FloatArray, b: FloatArray) -> FloatArray:
    """Angles (N,) in radians between vectors (N, 3)."""
    cross = np.cross(a, b)
    return np.asarray(np.arctan2(np.sqrt((cross * cross).sum(axis=1)), (a * b).sum(axis=1)))


def _middle(values: FloatArray) -> FloatArray:
    """Lower median of the finite values along the first axis; all others are infinite."""
    middle = np.maximum(np.isfinite(values).sum(axis=0) - 1, 0) // 2
    return np.asarray(np.take_along_axis(np.sort(values, axis=0), middle[None], axis=0)[0])


def _expected(
    rays: FloatArray, other: Photo, view: _View, row: int, third: IndexArray, scale: FloatArray
) -> BoolArray:
    """Keypoints (N,) that third images have and that the pose of a link puts into its other image.

    Those that the link has are among them. `scale` (K,) are logarithms of the length of the link
    over those of the links of the third images.
    """
    places = np.flatnonzero(np.isfinite(view.inverse[third]).any(axis=0))
    inverse = np.exp(_middle(view.inverse[third][:, places] + scale[:, None]))
    turned = rays[places] @ view.R[row].T
    x = turned + inverse[:, None] * view.t[row]
    size = _size(other)
    border = _BORDER * size.max()
    with np.errstate(all="ignore"):
        pixels = other.camera.project(x[:, :2] / x[:, 2:])
        inside = ((pixels > border) & (pixels < size - border)).all(axis=1) & (x[:, 2] > 0)
    widest = view.parallax[third][:, places].max(axis=0)
    # The parallax of what the link has is measured, and so it has the wider range.
    measured = view.parallax[row, places]
    has = view.found[row, places] & (widest >= 0.5 * _WIDE * measured)
    expected = np.zeros(view.found.shape[1], bool)
    expected[places[has | (inside & (widest >= _WIDE * angles(turned, x)))]] = True
    return expected


def _size(photo: Photo) -> FloatArray:
    """Width and height of an image; without them, those of its keypoints."""
    size = photo.camera.width, photo.camera.height
    return photo.points.max(axis=0, initial=1.0) if None in size else np.array(size, np.float64)


def _cells(photo: Photo) -> IndexArray:
    """Return the number of the cell of every keypoint."""
    place = (photo.points / _size(photo).max() * _CELLS).astype(np.int64).clip(0, _CELLS - 1)
    return np.asarray(place[:, 0] * _CELLS + place[:, 1])


def _compare(
    found: BoolArray, expected: BoolArray, chances: IndexArray, row: int, cell: IndexArray
) -> FloatArray:
    """Compare the keypoints that a link has with those that other links of the image have.

    `found` (L, N) are those of all links, `expected` (N,) those that this link should have,
    `chances` (N,) says how many links should have each. Returns the number of cells found and
    missing, a cell counting by its share of keypoints; the same with more weight for rare ones,
    which few links have; and the score of rare ones with the sum of its squares by cells. The score
    is above zero if the link has more of them than the number of all that it has lets expect.
    """
    others = found.sum(axis=0) - found[row]
    use = np.flatnonzero(expected & (others > 0))
    has, others, chances, cell = found[row, use], others[use], chances[use], cell[use]
    sums: list[float] = []
    for weight in (np.ones(len(use)), (others / chances + 0.1) ** -2.0):
        whole = np.bincount(cell, weight, _CELLS**2)
        share = np.bincount(cell, weight * has, _CELLS**2)[whole > 0] / whole[whole > 0]
        sums += [share.sum(), (1.0 - share).sum()]
    # Chance of each keypoint by the other links, with one shift for all to the number found here.
    rate = (others + 0.5) / chances
    odds, shift = np.log(rate / np.maximum(1.0 - rate, 1e-3)), 0.0
    for _ in range(8):
        chance = logistic(odds + shift)
        spread = chance * (1.0 - chance)
        shift += float(np.clip((has - chance).sum() / max(spread.sum(), 1e-6), -2.0, 2.0))
    rarity = (np.log(rate) * spread).sum() / max(spread.sum(), 1e-9) - np.log(rate)
    score = np.bincount(cell, rarity * (has - chance), _CELLS**2)
    return np.array([*sums, score.sum(), (score**2).sum()])
