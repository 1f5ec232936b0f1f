"""Which pairs of a scene are true: pairs that lie are found by what all other pairs say.

Equal fronts and equal sides of an object give pairs with many matches and a wrong pose, and no test
of one pair finds them. Two things do. One world: poses of pairs must fit together. And missing
points: what third images see at a place is not found in this pair, least of all the points that
only a few images have.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from manymatch._validate import count, refusal
from manymatch.reconstruct.pair_graph import PairGraph

if TYPE_CHECKING:
    from collections.abc import Sequence

    from manymatch._validate import BoolArray, FloatArray, IndexArray
    from manymatch.reconstruct.pair_graph import Photo

#: Pairs with fewer matches are refused; COLMAP's mappers have the same limit.
LEAST_MATCHES = 15
#: Names of the cues of a link before there is a world, and within it; `BEFORE` and `WITHIN` are
#: their weights, a constant first, fitted by benchmarks/accuracy/pair_truth.py.
CUES = ("own", "matches", "parallax", "found", "found_wide", "rare", "rare_score")
WORLD_CUES = (
    *("rotation", "direction", "triangles", "length", "alone", "own", "before", "bridge"),
)
BEFORE = (7.579, 0.412, -0.885, -1.419, 7.801, -1.484, 4.202, 0.399)
WITHIN = (2.306, -0.376, -0.682, 0.229, -1.054, -3.142, 0.074, 0.784, 2.462)

# Cells along the longer edge of an image, third images of a link, least points for a scale, share
# of the longer edge at the border where points may be lost.
_CELLS, _THIRD, _LEAST_COMMON, _BORDER = 16, 12, 5, 0.03
# A point counts as missing if a third image has it under this share of the link's parallax or
# more: nearer views share points that a farther one loses.
_WIDE = 0.7
# Cells found and missing that a link has beforehand, so that few cells say little. A link without
# matches counts as one with 200 matches and a parallax of 0.4 radians.
_FOUND, _MISSING, _USUAL_MATCHES, _USUAL_PARALLAX = 3.0, 5.0, 200, 0.4
# Inverse depths below this, in units of the length of a link, are not measurable.
_FARTHEST = 1e-4
# Widths of agreement: radians, share of the length of a link, share of the usual length.
_TURN, _SHIFT, _LEAST_SHIFT = np.radians(6.0), 0.3, 0.05
# Links tried as a joint at each cut of the tree; rounds through all cuts; least gain of a joint.
_JOINTS, _ROUNDS, _LEAST_GAIN = 64, 12, 1e-6
# At first log-odds of links count above the first number, and the agreement of others for the
# second one at most. If links that look wrong speak against the world by more than the share
# `_FOLDED` of what speaks for it, it may be folded, equal sides on top of each other: then log-odds
# below zero count too, down to -1.
_CLEAR, _IN_DOUBT, _FOLDED = 0.5, 0.05, 0.42


@dataclasses.dataclass(frozen=True)
class PairTruth:
    """Whether a pair is true.

    Attributes
    ----------
    probability : float
        Probability that the relative pose of the pair is true.
    true : bool
        Whether to use the pair: its probability is at least one half.
    reason : str
        Why, in one sentence.
    """

    probability: float
    true: bool
    reason: str


class Evidence(NamedTuple):
    """Links, the pairs that have a pose, and what is known of them before there is a world.

    `place` (P,) are places in the graph; ``x_j = R x_i + t`` with images i and j (P,). `cues` (P,
    7) are the columns `CUES`, `cells` (P, 2) the cells that third images see: found and missing
    here. ``ratio`` (N,) is the logarithm of the length of link ``a`` over that of link ``b``, from
    points that both have.
    """

    place: IndexArray
    i: IndexArray
    j: IndexArray
    R: FloatArray
    t: FloatArray
    cues: FloatArray
    cells: FloatArray
    a: IndexArray
    b: IndexArray
    ratio: FloatArray


class World(NamedTuple):
    """How links fit into one world.

    `cues` (P, 7) are the columns `WORLD_CUES`; `turn_deg` and `direction_deg` (P,) tell how far a
    link is from the world; `triangles` (P,) counts third images whose links agree with the world.
    """

    cues: FloatArray
    turn_deg: FloatArray
    direction_deg: FloatArray
    triangles: IndexArray


def judge_pairs(graph: PairGraph) -> list[PairTruth]:
    """Say of every pair of a scene how probable its relative pose is, and why.

    A robust average of all relative poses gives one world, from which pairs that lie stand apart.
    Where a place looks the same from several sides, most lies agree with each other; then what
    third images see decides which of the possible worlds is the true one.

    Parameters
    ----------
    graph : PairGraph
        Photographs and pairs with poses. Pairs need no matches; without any, only the poses and
        their probabilities count.

    Returns
    -------
    list of PairTruth
        One for each of ``graph.pairs``. Pairs without a pose, and those with some but fewer than 15
        matches, are refused. A pair that was not trusted by itself is true if it fits the others.
    """
    if not isinstance(graph, PairGraph):
        raise refusal("graph", "a PairGraph", graph)
    evidence = gather_evidence(graph)
    world = find_world(evidence, weigh(evidence.cues, BEFORE), len(graph.photos))
    probabilities = _probability(weigh(world.cues, WITHIN)).tolist()
    links = {place: link for link, place in enumerate(evidence.place.tolist())}
    verdicts = []
    for place, pair in enumerate(graph.pairs):
        if place in links:
            probability = probabilities[links[place]]
            why = _reason(evidence, world, links[place], true=probability >= 0.5)
            verdicts.append(PairTruth(probability, probability >= 0.5, why))
        else:
            few = count(len(pair.matches), "match", "matches")
            why = f"{few}, fewer than {LEAST_MATCHES}" if pair.pose else "no pose was found"
            verdicts.append(PairTruth(probability=0.0, true=False, reason=f"refused: {why}"))
    return verdicts


def weigh(cues: FloatArray, weights: Sequence[float]) -> FloatArray:
    """Log-odds (P,) of links from their cues (P, C), by weights (C + 1,), a constant first."""
    return np.asarray(weights[0] + cues @ np.array(weights[1:]))


def _probability(log_odds: FloatArray) -> FloatArray:
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(log_odds, -30.0, 30.0))))


def _reason(evidence: Evidence, world: World, link: int, *, true: bool) -> str:
    third, (found, missing) = int(world.triangles[link]), evidence.cells[link]
    turn, direction = world.turn_deg[link], world.direction_deg[link]
    what = f"what pairs with {count(third, 'third image')} say"
    if true:
        near = f"within {max(turn, direction):.1f}° of {what}"
        return f"accepted: {near if third else 'no other pair contradicts it'}"
    weighed = dict(zip(WORLD_CUES, world.cues[link] * WITHIN[1:], strict=True))
    worst = min(("rotation", "direction", "length", "before"), key=weighed.__getitem__)
    if worst == "rotation":
        others = what if third else "what all other pairs together say"
        return f"refused: its rotation is {turn:.0f}° off {others}"
    if worst == "direction":
        return f"refused: its direction is {direction:.0f}° off {what}"
    if worst == "length":
        return f"refused: its images are not as far from each other as {what}"
    if missing > found:
        places = f"{missing:.0f} of {found + missing:.0f} places that third images see here"
        return f"refused: {places} are missing in this pair"
    return "refused: its own probability is low and too few other pairs confirm it"


# ------------------------------------------------------------------------- third images


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
    return Evidence(place, i, j, R, t, np.stack(columns, axis=1), sums[:, :2], a, b, ratio)


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
        view.parallax[row, here] = _angle(ray, turned)
    return view


def _angle(a: FloatArray, b: FloatArray) -> FloatArray:
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
    expected[places[has | (inside & (widest >= _WIDE * _angle(turned, x)))]] = True
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
        chance = _probability(odds + shift)
        spread = chance * (1.0 - chance)
        shift += float(np.clip((has - chance).sum() / max(spread.sum(), 1e-6), -2.0, 2.0))
    rarity = (np.log(rate) * spread).sum() / max(spread.sum(), 1e-9) - np.log(rate)
    score = np.bincount(cell, rarity * (has - chance), _CELLS**2)
    return np.array([*sums, score.sum(), (score**2).sum()])


# ------------------------------------------------------------------------------ one world


def find_world(evidence: Evidence, log_odds: FloatArray, number: int) -> World:
    """Find the poses of `number` images with which the most and the best links agree.

    `log_odds` (P,) are those of the links being true, before there is a world.
    """
    i, j, trust = evidence.i, evidence.j, _probability(log_odds)
    search = _Search(evidence, *_lengths(evidence, trust), number)
    above, below = np.maximum(log_odds, 0.0), np.expm1(np.minimum(log_odds, 0.0))
    lenient = np.maximum(log_odds - _CLEAR, 0.0) + _IN_DOUBT * (1.0 + below)
    for value in (lenient, above + below):
        agreement = search.run(value)
        if -(agreement @ below) <= _FOLDED * (agreement @ above):
            break
    weight, R = trust * agreement + 1e-9, search.R
    for _ in range(6):
        vector, angle = _turns(np.swapaxes(R[j], 1, 2) @ evidence.R @ R[i])
        robust = weight / (1.0 + (angle / _TURN) ** 2) ** 2
        R = R @ _rotations(_solve(i, j, vector, robust, number))
    angle = _turns(np.swapaxes(R[j], 1, 2) @ evidence.R @ R[i])[1]
    direction = (np.swapaxes(R[i], 1, 2) @ search.ahead[:, :, None])[:, :, 0]
    weight /= (1.0 + (angle / _TURN) ** 2) ** 2
    off, stretch = _positions(search, direction, weight, angle < 2 * _TURN)
    agree = (angle < 2 * _TURN) & (off < 0.35) & (stretch < 0.5)
    triangles = np.array([len(k) for k in _triangles(i, j, agree)]).astype(np.int64)
    alone = triangles < 2
    turn_deg, off_deg = np.degrees(angle), np.degrees(np.where(alone, 0.0, off))
    cues = [np.log1p((turn_deg / 3.0) ** 2), np.log1p((off_deg / 5.0) ** 2), np.log1p(triangles)]
    cues += [np.log1p((np.where(alone, 0.0, stretch) / 0.2) ** 2), alone, evidence.cues[:, 0]]
    agree |= alone & (angle < 2 * _TURN)
    tree = _forest(i, j, agree - 1.0, number)[0]
    bridge = np.zeros(len(i))
    for link, part in search.cuts(tree).items():
        bridge[link] = agree[link] and ((part[i] != part[j]) & agree).sum() == 1
    cues += [alone * np.clip(log_odds, -3.0, 3.0), bridge]
    return World(np.stack(cues, axis=1), turn_deg, off_deg, triangles)


def _solve(
    i: IndexArray, j: IndexArray, value: FloatArray, weight: FloatArray, number: int
) -> FloatArray:
    """Find x (number, D) of the least sum of weight |x_j - x_i - value|², value (P, D).

    By conjugate gradients, as the matrix is sparse.
    """

    def gather(flow: FloatArray) -> FloatArray:
        columns = [np.bincount(j, c, number) - np.bincount(i, c, number) for c in flow.T]
        return np.stack(columns, axis=1)

    diagonal = np.bincount(i, weight, number) + np.bincount(j, weight, number)
    scale, w = 1.0 / np.maximum(diagonal, 1e-12)[:, None], weight[:, None]
    x, rest = np.zeros((number, value.shape[1])), gather(w * value)
    way = rest * scale
    size = (rest * way).sum(axis=0)
    # Below round-off of the sums the rest is noise, which the matrix, being singular, enlarges.
    enough = 1e-16 * size.max(initial=0.0) + 1e-26 * float((w * value**2).sum())
    for _ in range(4 * number + 20):
        if not (size > enough).any():
            break
        flow = gather(w * (way[j] - way[i]))
        step = np.where(size > enough, size / np.maximum((way * flow).sum(axis=0), 1e-300), 0.0)
        x, rest = x + step * way, rest - step * flow
        last, size = size, (rest * rest * scale).sum(axis=0)
        way = rest * scale + np.where(last > enough, size / np.maximum(last, 1e-300), 0.0) * way
    return x


def _turns(R: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Rotation vectors (N, 3) and angles (N,) of rotations (N, 3, 3)."""
    half = 0.5 * (R - np.swapaxes(R, 1, 2))
    vector = np.stack([half[:, 2, 1], half[:, 0, 2], half[:, 1, 0]], axis=1)
    sine = np.sqrt((vector**2).sum(axis=1))
    angle = np.arctan2(sine, 0.5 * (np.trace(R, axis1=1, axis2=2) - 1.0))
    return vector * (angle / np.maximum(sine, 1e-12))[:, None], angle


def _rotations(vectors: FloatArray) -> FloatArray:
    """Rotations (N, 3, 3) of rotation vectors (N, 3)."""
    angle = np.sqrt((vectors**2).sum(axis=1))[:, None, None]
    skew = np.cross(np.eye(3)[None], vectors[:, None] / np.maximum(angle, 1e-12))
    return np.asarray(np.eye(3) + np.sin(angle) * skew + (1.0 - np.cos(angle)) * (skew @ skew))


def _lengths(evidence: Evidence, trust: FloatArray) -> tuple[FloatArray, IndexArray]:
    """Lengths (P,) of links, and groups (P,) of those in one unit, whose median is 1."""
    a, b, ratio = evidence.a, evidence.b, evidence.ratio
    weight = trust[a] * trust[b] + 1e-6
    robust = weight
    for _ in range(8):
        log = _solve(b, a, ratio[:, None], robust, len(trust))[:, 0]
        robust = weight / np.maximum(np.abs(log[a] - log[b] - ratio), 0.02)
    group = _forest(a, b, weight, len(trust))[1]
    length = np.exp(np.clip(log, -12.0, 12.0))
    for one in np.flatnonzero(np.bincount(group) > 1):
        length[group == one] /= np.median(length[group == one])
    return length, group


def _positions(
    search: _Search, direction: FloatArray, weight: FloatArray, agree: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Average positions; angles (P,) to directions of links (P, 3), and log-ratios of lengths.

    Links of different groups have different units, so an image has a position in each group. If
    lengths are unknown, triangles of links that agree give them.
    """
    e, length, group = search.evidence, search.length, search.group
    if not len(e.ratio):
        length, group = _lengths(_with_triangles(e, direction, agree), weight)
    group, apart = _joined(e, group)
    ends = np.concatenate([e.i, e.j]) * len(group) + np.tile(group, 2)
    nodes, place = np.unique(ends, return_inverse=True)
    i, j = place[: len(group)], place[len(group) :]
    step, base = direction * length[:, None], np.where(apart, 1e-9, weight) / length**2
    robust, way = base, step
    for width in (0.5, 0.3, 0.2, 0.2, 0.2, 0.2):
        x = _solve(i, j, step, robust, len(nodes))
        way = x[j] - x[i]
        off = np.sqrt(((way - step) ** 2).sum(axis=1)) / length
        robust = base / (1.0 + (off / width) ** 2) ** 2 + 1e-9 * base
    size = np.sqrt((way * way).sum(axis=1))
    stretch = np.abs(np.log(np.maximum(size, 1e-6) / length))
    return _angle(way, direction), np.where(apart, 0.0, stretch)


def _joined(e: Evidence, group: IndexArray) -> tuple[IndexArray, BoolArray]:
    """Put links of unknown length into the largest group at both images; which (P,) these are."""
    sizes = np.bincount(group)[group]
    apart = sizes == 1
    at: dict[int, dict[int, int]] = {}
    for i, j, one, size in zip(
        *(x[~apart].tolist() for x in (e.i, e.j, group, sizes)), strict=True
    ):
        for image in (i, j):
            at.setdefault(image, {})[one] = size
    group = group.copy()
    for link in np.flatnonzero(apart).tolist():
        first, second = at.get(int(e.i[link]), {}), at.get(int(e.j[link]), {})
        group[link] = max(first.keys() & second.keys(), key=first.__getitem__, default=group[link])
    return group, apart


def _triangles(i: IndexArray, j: IndexArray, keep: BoolArray) -> list[list[int]]:
    """List the third images that kept links join to both images of each link."""
    near: dict[int, set[int]] = {}
    for a, b in zip(i[keep].tolist(), j[keep].tolist(), strict=True):
        near.setdefault(a, set()).add(b)
        near.setdefault(b, set()).add(a)
    none: set[int] = set()
    ends = zip(i.tolist(), j.tolist(), strict=True)
    return [sorted(near.get(a, none) & near.get(b, none)) for a, b in ends]


def _with_triangles(e: Evidence, direction: FloatArray, agree: BoolArray) -> Evidence:
    """Replace ratios of lengths by those of triangles of links, with directions (P, 3)."""
    ends = zip(e.i.tolist(), e.j.tolist(), strict=True)
    link = {(min(ij), max(ij)): k for k, ij in enumerate(ends)}
    rows = []
    for k, others in enumerate(_triangles(e.i, e.j, agree)):
        i, j = int(e.i[k]), int(e.j[k])
        sides = [(link[min(i, o), max(i, o)], link[min(j, o), max(j, o)]) for o in others]
        rows += [(k, b, c) for b, c in sides if agree[k]]
    a, b, c = np.array(rows, np.int64).reshape(-1, 3).T
    # By the law of sines: lengths are as the sines of the opposite angles.
    sines = [np.sin(_angle(direction[p], direction[q])) for p, q in ((b, c), (a, c))]
    use = np.minimum(*sines) > 0.1
    return e._replace(a=a[use], b=b[use], ratio=np.log(sines[0][use] / sines[1][use]))


# --------------------------------------------------------------------------------- search


def _forest(
    i: IndexArray, j: IndexArray, value: FloatArray, number: int
) -> tuple[list[int], IndexArray]:
    """Spanning forest of the largest value: its links, and the tree (number,) of every node."""
    label, members, taken = np.arange(number), [[k] for k in range(number)], []
    for link in np.argsort(-value, kind="stable").tolist():
        a, b = label[i[link]], label[j[link]]
        if a != b:
            taken.append(link)
            if len(members[a]) < len(members[b]):
                a, b = b, a
            label[members[b]] = a
            members[a] += members[b]
    return taken, label


class _Search:
    """Search for rotations `R` (N, 3, 3) and centres `c` (N, 3) of images that links agree with.

    `length` and `group` (P,) are those of `_lengths`; `ahead` and `behind` (P, 3) the centre of j
    in camera i and that of i in camera j, at a distance of 1.
    """

    def __init__(
        self, evidence: Evidence, length: FloatArray, group: IndexArray, number: int
    ) -> None:
        self.evidence, self.length, self.group, self.number = evidence, length, group, number
        self.ahead = -(np.swapaxes(evidence.R, 1, 2) @ evidence.t[:, :, None])[:, :, 0]
        self.behind = evidence.t
        self.R, self.c = np.tile(np.eye(3), (number, 1, 1)), np.zeros((number, 3))

    def run(self, value: FloatArray) -> FloatArray:
        """Find poses with which links of the most value (P,) agree; return agreement (P,), 0 to 1.

        The spanning forest of the largest value gives first poses. Each of its links in turn is
        cut, and the two parts are joined where most of the value of all links between them agrees.
        """
        e = self.evidence
        tree = _forest(e.i, e.j, value, self.number)[0]
        for image, before, link in self._walk(tree):
            forward = link >= 0 and e.j[link] == image
            if link >= 0:
                turn, way = (e.R[link], self.ahead) if forward else (e.R[link].T, self.behind)
                self.R[image] = turn @ self.R[before]
                self.c[image] = self.c[before] + self.length[link] * way[link] @ self.R[before]
        for _ in range(_ROUNDS):
            gains = {k: self._best_joint(value, part, k)[0] for k, part in self.cuts(tree).items()}
            moved = False
            for link in sorted(gains, key=gains.__getitem__, reverse=True):
                if gains[link] > _LEAST_GAIN:
                    part = self.cuts(tree)[link]
                    gain, joint, turn, shift = self._best_joint(value, part, link)
                    if gain > _LEAST_GAIN:
                        self.R[part], self.c[part] = (
                            self.R[part] @ turn,
                            self.c[part] @ turn + shift,
                        )
                        tree[tree.index(link)], moved = joint, True
            if not moved:
                break
        turned = np.swapaxes(self.R[e.j], 1, 2) @ e.R @ self.R[e.i]
        ahead = (self.ahead[:, None] @ self.R[e.i])[:, 0] * self.length[:, None]
        shift = np.sqrt(((self.c[e.j] - self.c[e.i] - ahead) ** 2).sum(axis=1))
        return self._agreement(_turns(turned)[1], shift, self.length)

    @staticmethod
    def _agreement(angle: FloatArray, shift: FloatArray, length: FloatArray) -> FloatArray:
        away = (shift / (_SHIFT * length + _LEAST_SHIFT)) ** 2
        return np.asarray(((1.0 + (angle / _TURN) ** 2) * (1.0 + away)) ** -2)

    def _walk(self, tree: list[int]) -> list[tuple[int, int, int]]:
        """Image, image before it and link to that, from roots outwards; -1 at roots."""
        near: list[list[tuple[int, int]]] = [[] for _ in range(self.number)]
        for link in tree:
            i, j = int(self.evidence.i[link]), int(self.evidence.j[link])
            near[i].append((j, link))
            near[j].append((i, link))
        order: list[tuple[int, int, int]] = []
        seen = [False] * self.number
        for root in range(self.number):
            stack = [] if seen[root] else [(root, -1, -1)]
            seen[root] = True
            while stack:
                order.append(stack.pop())
                for other, link in near[order[-1][0]]:
                    if not seen[other]:
                        seen[other] = True
                        stack.append((other, order[-1][0], link))
        return order

    def cuts(self, tree: list[int]) -> dict[int, BoolArray]:
        """Links of a forest, each with the images (N,) that are behind it."""
        order, part = self._walk(tree), np.eye(self.number, dtype=bool)
        for image, before, _ in reversed(order):
            if before >= 0:
                part[before] |= part[image]
        return {link: part[image] for image, _, link in order if link >= 0}

    def _best_joint(
        self, value: FloatArray, part: BoolArray, cut: int
    ) -> tuple[float, int, FloatArray, FloatArray]:
        """Find where to put a part of the images: gain of value, joining link, turn and shift."""
        e, R, c = self.evidence, self.R, self.c
        link = np.flatnonzero(part[e.i] != part[e.j])
        back = part[e.i[link]]
        inner, outer = (
            np.where(back, *ends) for ends in ((e.i[link], e.j[link]), (e.j[link], e.i[link]))
        )
        way = np.where(back[:, None], self.behind[link], self.ahead[link])
        wanted = c[outer] + (way[:, None] @ R[outer])[:, 0] * self.length[link, None]
        turn = np.where(back[:, None, None], np.swapaxes(e.R[link], 1, 2), e.R[link])
        turn = np.swapaxes(R[inner], 1, 2) @ turn @ R[outer]
        best = np.argsort(-value[link], kind="stable")[:_JOINTS]
        joints = np.append(cut, link[best])
        turns = np.concatenate([np.eye(3)[None], turn[best]])
        shifts = wanted[best] - (c[inner[best], None] @ turn[best])[:, 0]
        shifts = np.concatenate([np.zeros((1, 3)), shifts])
        trace = turn.reshape(-1, 9) @ turns.reshape(-1, 9).T
        angle = np.arccos(np.clip(0.5 * (trace - 1.0), -1.0, 1.0))
        away = np.einsum("mi,kij->mkj", c[inner], turns) + shifts - wanted[:, None]
        # Lengths of other groups have another unit.
        away *= (self.group[link, None] == self.group[joints])[:, :, None]
        agreement = self._agreement(angle, np.sqrt((away**2).sum(axis=2)), self.length[link, None])
        gains = value[link] @ agreement
        k = int(np.argmax(gains))
        return float(gains[k] - gains[0]), int(joints[k]), turns[k], shifts[k]
