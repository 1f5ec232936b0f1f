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
from manymatch.reconstruct.pair_evidence import LEAST_MATCHES, angles, gather_evidence, logistic
from manymatch.reconstruct.pair_graph import PairGraph

if TYPE_CHECKING:
    from collections.abc import Sequence

    from manymatch._validate import BoolArray, FloatArray, IndexArray
    from manymatch.reconstruct.pair_evidence import Evidence

#: Names of the cues of a link within a world. `BEFORE` and `WITHIN` are the weights of these and of
#: the cues before there is a world, a constant first, fitted by benchmarks/accuracy/pair_truth.py.
WORLD_CUES = ("rotation", "direction", "triangles", "length", "alone", "own", "before", "bridge")
BEFORE = (7.579, 0.412, -0.885, -1.419, 7.801, -1.484, 4.202, 0.399)
WITHIN = (2.306, -0.376, -0.682, 0.229, -1.054, -3.142, 0.074, 0.784, 2.462)

# Widths of agreement: radians, share of the length of a link, share of the usual length.
_TURN, _SHIFT, _LEAST_SHIFT = np.radians(6.0), 0.3, 0.05
# No link is true that is turned by more than this against a world.
_MOST_TURN_DEG = 10.0
# Links tried as a joint at each cut of the tree; rounds through all cuts; least gain of a joint;
# least gain of a round, as a share of the value that agrees.
_JOINTS, _ROUNDS, _LEAST_GAIN, _LEAST_ROUND = 64, 12, 1e-6, 1e-3
# Worlds that are tried: links count by their log-odds above these numbers, and those below count
# against a world that they agree with, by 1 at most.
_LEVELS = (-2.0, 0.0, 1.0, 2.0, 3.0, 4.0)
# A stricter world replaces the one before if it refuses at least `_REFUSED` links of it for each
# link that it keeps, and if a kept link has higher log-odds than a refused one in at least
# `_BETTER` of all comparisons. Most of its links must be links of the world before: sides that are
# taken apart have no new pairs. No single link of it may join two parts that at least `_SEVERAL`
# links of the world before join elsewhere. Nor may a few links do so that matching doubts more than
# the others, if the others are `_SEVERAL` times as many.
_REFUSED, _BETTER, _SEVERAL = 0.25, 0.8, 2
# The order of the photographs counts if pairs of neighbours have more matches than others in the
# first share of comparisons, or in the second one if the camera moves the same way from each to
# the next: if n directions have a mean of length r, n r² is at least `_STEADY`. In the world that
# is searched then, the log-odds of neighbours and of other pairs are changed by `_NEXT` and
# `_OTHERS`, and those of a usual step are `_STEP`.
_ORDERED, _ORDERED_IF_STEADY, _STEADY, _NEXT, _OTHERS, _STEP = 0.75, 0.5, 4.5, 8.0, -1.5, 6.0
# What is added to the log-odds of a link that two third images do not confirm: if its photographs
# follow each other, and for each unit of its scattered matches.
_FOLLOWS, _SCATTERED = 1.0, -1.6


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


class Order(NamedTuple):
    """Photographs that were taken one after the other.

    `near` (P,) are the links of neighbours. `first` (S,) are photographs without a trusted link to
    the next one, whose pose is guessed: ``x_next = R x + t`` as the camera usually moves.
    """

    near: BoolArray
    first: IndexArray
    R: FloatArray
    t: FloatArray


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
    third images see decides which of the possible worlds is the true one. Where windows repeat
    along a front, matches jump between them, and pairs with such matches need third images. If
    photographs that follow each other in the graph, by name where it was read from files, have
    clearly more matches than others, or if the camera moves the same way from each to the next,
    they were taken one after the other: then the world must not contradict their pairs.

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
    log_odds, order = weigh(evidence.cues, BEFORE), find_order(graph, evidence)
    world = find_world(evidence, log_odds, len(graph.photos), order)
    probabilities = logistic(weigh_world(world, WITHIN)).tolist()
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


def find_order(graph: PairGraph, evidence: Evidence) -> Order | None:
    """Find which photographs follow each other; None if their order tells nothing."""
    e, number = evidence, np.array([len(graph.pairs[place].matches) for place in evidence.place])
    near, back = np.abs(e.i - e.j) == 1, (e.j < e.i)[:, None]
    own, others = number[near], np.sort(number[~near])
    won = np.searchsorted(others, own, "left") + np.searchsorted(others, own, "right")
    share = 0.5 * won.sum() / max(len(own) * len(others), 1)
    # Where the later camera is, seen from the earlier one, and how it is turned.
    ahead = np.where(back, e.t, -(np.swapaxes(e.R, 1, 2) @ e.t[:, :, None])[:, :, 0])
    turn = _turns(e.R)[0] * np.where(back, -1.0, 1.0)
    trusted = near & (e.cues[:, 0] > 0.0)
    way = ahead[trusted].sum(axis=0)
    if share > _ORDERED_IF_STEADY and way @ way >= _STEADY * trusted.sum() > 0:
        known = np.minimum(e.i, e.j)[trusted]
        near &= ahead @ way > 0.0
        R = _rotations(np.median(turn[trusted], axis=0)[None])[0]
        first = np.setdiff1d(np.arange(len(graph.photos) - 1), known)
        return Order(near, first, R, -R @ way / np.linalg.norm(way))
    return Order(near, np.zeros(0, np.int64), np.eye(3), np.ones(3)) if share > _ORDERED else None


def weigh(cues: FloatArray, weights: Sequence[float]) -> FloatArray:
    """Log-odds (P,) of links from their cues (P, C), by weights (C + 1,), a constant first."""
    return np.asarray(weights[0] + cues @ np.array(weights[1:]))


def weigh_world(world: World, weights: Sequence[float]) -> FloatArray:
    """Log-odds (P,) of links within a world; links that are turned too far are refused."""
    log_odds = weigh(world.cues, weights)
    return np.where(world.turn_deg > _MOST_TURN_DEG, np.minimum(log_odds, -2.0), log_odds)


def _reason(evidence: Evidence, world: World, link: int, *, true: bool) -> str:
    third, (found, missing) = int(world.triangles[link]), evidence.cells[link]
    turn, direction = world.turn_deg[link], world.direction_deg[link]
    what = f"what pairs with {count(third, 'third image')} say"
    if true:
        near = f"within {max(turn, direction):.1f}° of {what}"
        return f"accepted: {near if third else 'no other pair contradicts it'}"
    weighed = dict(zip(WORLD_CUES, world.cues[link] * WITHIN[1:], strict=True))
    worst = min(("rotation", "direction", "length", "before"), key=weighed.__getitem__)
    if worst == "rotation" or turn > _MOST_TURN_DEG:
        others = what if third else "what all other pairs together say"
        return f"refused: its rotation is {turn:.0f}° off {others}"
    if worst == "direction":
        return f"refused: its direction is {direction:.0f}° off {what}"
    if worst == "length":
        return f"refused: its images are not as far from each other as {what}"
    if third < 2 and evidence.scattered[link] > 0.0:
        return "refused: most of its matches are not where matches beside them say"
    if missing > found:
        places = f"{missing:.0f} of {found + missing:.0f} places that third images see here"
        return f"refused: {places} are missing in this pair"
    return "refused: its own probability is low and too few other pairs confirm it"


# ------------------------------------------------------------------------------ one world


def find_world(
    evidence: Evidence, log_odds: FloatArray, number: int, order: Order | None = None
) -> World:
    """Find the poses of `number` images with which the most and the best links agree.

    `log_odds` (P,) are those of the links being true, before there is a world. Where sides of an
    object are equal, most links agree if the sides are put on top of each other. So stricter worlds
    are tried as well: one that the clearest links alone hold together is taken if the links that it
    refuses look worse than those that it keeps. So is one that contradicts fewer of the links and
    usual steps between photographs that follow each other, unless too many other links are lost.
    """
    i, j, own = evidence.i, evidence.j, evidence.cues[:, 0]
    # A pair that matching alone doubts may fit a world, but does not make it.
    log_odds = np.where(own < 0.0, np.minimum(log_odds, 0.0), log_odds)
    search = _Search(evidence, *_lengths(evidence, logistic(log_odds)), number)

    def joins(links: BoolArray) -> int:
        return len(_forest(i[links], j[links], log_odds[links], number)[0])

    def bridges(links: BoolArray) -> dict[int, BoolArray]:
        """Find those of some links that alone hold two parts together, and a part (N,) of each."""
        cuts = search.cuts(_forest(i, j, links.astype(np.float64), number)[0])
        across = {link: (part[i] != part[j]) & links for link, part in cuts.items()}
        return {link: cuts[link] for link in cuts if links[link] and across[link].sum() == 1}

    def hangs_by(keep: BoolArray, refused: BoolArray, side: BoolArray) -> bool:
        """Whether one link or a few doubtful ones put a part elsewhere than several others do."""
        few, several = ((side[i] != side[j]) & links for links in (keep, refused))
        if not 2 <= side.sum() <= number - 2 or not 0 < _SEVERAL * few.sum() <= several.sum():
            return False
        return bool(few.sum() == 1 or own[few].max() < np.median(own[several]))

    best = _settle(search, log_odds, _LEVELS[0])
    for level in _LEVELS[1:]:
        clear, agree = log_odds >= level, best.agree
        joined, weak = joins(agree), (agree & ~clear).sum()
        if weak >= _REFUSED * (agree & clear).sum() and joins(clear) >= joined:
            other = _settle(search, log_odds, level)
            keep = other.agree
            kept, refused = log_odds[agree & keep], np.sort(log_odds[agree & ~keep])
            better = np.searchsorted(refused, kept).sum() > _BETTER * len(kept) * len(refused)
            part = len(refused) >= _REFUSED * len(kept) and len(kept) > 0.5 * keep.sum()
            tree = _forest(i, j, np.where(keep & clear, log_odds, -9.0), number)[0]
            sides = search.cuts(tree).values()
            hangs = any(hangs_by(keep & clear, agree & ~keep, side) for side in sides)
            if better and part and not hangs and joins(keep & clear) >= joined:
                best = other
    if order is not None:
        trusted = order.near & (own > 0.0)
        value = np.maximum(log_odds + np.where(order.near, _NEXT, _OTHERS), 0.0)

        def judged(world: _Settled) -> tuple[int, float]:
            """How many trusted neighbours and usual steps a world contradicts, and its value."""
            ends = world.R[order.first], np.swapaxes(world.R[order.first + 1], 1, 2)
            steps = int((_turns(ends[1] @ order.R @ ends[0])[1] > 2 * _TURN).sum())
            lost = int((trusted & ~world.agree).sum()) + steps
            return lost, float(value @ world.agree) - _STEP * steps

        lost, most = judged(best)
        if lost:
            other = _settle_in_order(evidence, log_odds, number, order)
            fewer, more = judged(other)
            best = other if fewer < lost and more > most else best
    agree = best.agree
    triangles = np.array([len(k) for k in _triangles(i, j, agree)]).astype(np.int64)
    alone = triangles < 2
    turn_deg, off_deg = np.degrees(best.turn), np.degrees(np.where(alone, 0.0, best.off))
    cues = [np.log1p((turn_deg / 3.0) ** 2), np.log1p((off_deg / 5.0) ** 2), np.log1p(triangles)]
    cues += [np.log1p((np.where(alone, 0.0, best.stretch) / 0.2) ** 2), alone, own]
    agree |= alone & (best.turn < 2 * _TURN)
    bridge = np.zeros(len(i))
    bridge[list(bridges(agree))] = 1.0
    follows = _FOLLOWS * order.near if order is not None else 0.0
    log_odds = log_odds + follows + _SCATTERED * evidence.scattered
    cues += [alone * np.clip(log_odds, -3.0, 3.0), bridge]
    return World(np.stack(cues, axis=1), turn_deg, off_deg, triangles)


class _Settled(NamedTuple):
    """Rotations (N, 3, 3) of a world and how far links (P,) are from it.

    `turn`, the angle of the direction `off`, the log-ratio of the length `stretch`, which `agree`.
    """

    R: FloatArray
    turn: FloatArray
    off: FloatArray
    stretch: FloatArray
    agree: BoolArray


def _settle_in_order(e: Evidence, log_odds: FloatArray, number: int, order: Order) -> _Settled:
    """Search for a world in which photographs that follow each other are next to certain."""
    links, steps = len(e.i), len(order.first)
    e = e._replace(
        i=np.append(e.i, order.first),
        j=np.append(e.j, order.first + 1),
        R=np.concatenate([e.R, np.tile(order.R, (steps, 1, 1))]),
        t=np.concatenate([e.t, np.tile(order.t, (steps, 1))]),
    )
    lengths = _lengths(e, np.append(logistic(log_odds), np.full(steps, logistic(np.array(_STEP)))))
    log_odds = log_odds + np.where(order.near, _NEXT, _OTHERS)
    search = _Search(e, *lengths, number)
    world = _settle(search, np.append(log_odds, np.full(steps, _STEP)), 0.0)
    turn, off, stretch = (column[:links] for column in (world.turn, world.off, world.stretch))
    return _Settled(world.R, turn, off, stretch, world.agree[:links])


def _settle(search: _Search, log_odds: FloatArray, level: float) -> _Settled:
    """Search for a world of links with log-odds above a level, and average its poses.

    The search moves parts of a world as a whole, so that links a few degrees off may bend it: the
    average counts all links that are near, whether above the level or not.
    """
    e, above = search.evidence, log_odds - level
    agreement = search.run(np.where(above > 0.0, above, np.expm1(np.minimum(above, 0.0))))
    weight, R = logistic(log_odds) * agreement**0.25 + 1e-9, search.R
    for _ in range(8):
        vector, turn = _turns(np.swapaxes(R[e.j], 1, 2) @ e.R @ R[e.i])
        robust = weight / (1.0 + (turn / _TURN) ** 2) ** 2
        R = R @ _rotations(_solve(e.i, e.j, vector, robust, search.number))
    turn = _turns(np.swapaxes(R[e.j], 1, 2) @ e.R @ R[e.i])[1]
    direction = (np.swapaxes(R[e.i], 1, 2) @ search.ahead[:, :, None])[:, :, 0]
    weight /= (1.0 + (turn / _TURN) ** 2) ** 2
    off, stretch = _positions(search, direction, weight, turn < 2 * _TURN)
    agree = (turn < 2 * _TURN) & (off < 0.35) & (stretch < 0.5)
    return _Settled(R, turn, off, stretch, agree)


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
    group, apart = _joined(e, group, search.number)
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
    return angles(way, direction), np.where(apart, 0.0, stretch)


def _joined(e: Evidence, group: IndexArray, number: int) -> tuple[IndexArray, BoolArray]:
    """Put links of unknown length into the group of most links at their images; which (P,) are."""
    apart = np.bincount(group)[group] == 1
    known, place = np.unique(group[~apart], return_inverse=True)
    if not len(known):
        return group, apart
    links = np.zeros((number, len(known)))
    for ends in (e.i, e.j):
        np.add.at(links, (ends[~apart], place), 1.0)
    most = np.where(links.any(axis=1), known[links.argmax(axis=1)], -1 - np.arange(number))
    return np.where(apart & (most[e.i] == most[e.j]), most[e.i], group), apart


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
    sines = [np.sin(angles(direction[p], direction[q])) for p, q in ((b, c), (a, c))]
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
            parts, total = self.cuts(tree), 0.0
            gains = {link: self._best_joint(value, part, link)[0] for link, part in parts.items()}
            for link in sorted(gains, key=gains.__getitem__, reverse=True):
                if gains[link] > _LEAST_GAIN:
                    part = parts[link]
                    gain, joint, turn, shift = self._best_joint(value, part, link)
                    if gain > _LEAST_GAIN:
                        # Rounding of a product of poses would double with every joint.
                        turn = 1.5 * turn - 0.5 * turn @ turn.T @ turn
                        self.R[part] = self.R[part] @ turn
                        self.c[part] = self.c[part] @ turn + shift
                        tree[tree.index(link)] = joint
                        parts, total = self.cuts(tree), total + gain
            turned = np.swapaxes(self.R[e.j], 1, 2) @ e.R @ self.R[e.i]
            ahead = (self.ahead[:, None] @ self.R[e.i])[:, 0] * self.length[:, None]
            away = ((self.c[e.j] - self.c[e.i] - ahead) ** 2).sum(axis=1)
            agreement = self._agreement(_turns(turned)[1], away, self.length)
            if total <= _LEAST_ROUND * abs(value @ agreement):
                break
        return agreement

    @staticmethod
    def _agreement(angle: FloatArray, away: FloatArray, length: FloatArray) -> FloatArray:
        """Agreement, 0 to 1, of links turned by an angle and shifted by the root of `away`."""
        off = (1.0 + (angle / _TURN) ** 2) * (1.0 + away / (_SHIFT * length + _LEAST_SHIFT) ** 2)
        return np.asarray(1.0 / (off * off))

    def _walk(self, tree: list[int]) -> list[tuple[int, int, int]]:
        """Image, image before it and link to that, from roots outwards; -1 at roots."""
        near: list[list[tuple[int, int]]] = [[] for _ in range(self.number)]
        for link in tree:
            i, j = int(self.evidence.i[link]), int(self.evidence.j[link])
            near[i].append((j, link))
            near[j].append((i, link))
        order: list[tuple[int, int, int]] = []
        seen = set[int]()
        stack = [(root, -1, -1) for root in reversed(range(self.number))]
        while stack:
            image, before, link = stack.pop()
            if image not in seen:
                seen.add(image)
                order.append((image, before, link))
                stack += [(other, image, via) for other, via in near[image] if other not in seen]
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
        # |c T + s - w|², multiplied out; positions about their middle, so that numbers are small.
        middle = wanted.mean(axis=0)
        own, there, shift = c[inner], wanted - middle, shifts - middle
        products = (own[:, :, None] * there[:, None, :]).reshape(-1, 9)
        away = (
            np.concatenate([own, there, products], axis=1)
            @ np.concatenate(
                [(turns @ shift[:, :, None])[:, :, 0], -shift, -turns.reshape(-1, 9)], axis=1
            ).T
        )
        away *= 2.0
        away += ((own**2).sum(axis=1) + (there**2).sum(axis=1))[:, None]
        away += (shift**2).sum(axis=1)
        # Lengths of other groups have another unit.
        away *= self.group[link, None] == self.group[joints]
        np.maximum(away, 0.0, out=away)
        gains = value[link] @ self._agreement(angle, away, self.length[link, None])
        k = int(np.argmax(gains))
        return float(gains[k] - gains[0]), int(joints[k]), turns[k], shifts[k]
