"""Choosing pairs of one object from two pools of images that have none in common.

Dealing the images out and then exchanging some gives pools that both have enough pairs of every
viewing angle. Picking pairs, the rarest angles first and always those whose images are used least,
keeps the reuse of images low. Of several selections that fit, the two are taken that are most
alike in the cameras they pair.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

    from manymatch._validate import BoolArray, IndexArray

Ints: TypeAlias = NDArray[np.int64]

#: Width of the classes of the angle histograms in degrees, and their number in a bin.
STEP_DEG, STEPS = 5, 8
#: How often an image may be used in one bin and in all bins.
REUSE_BIN, REUSE_ALL = 4, 6

_DEALS, _EXCHANGES = 8, 250
_SELECTIONS, _KEPT = 80, 48
_SPARE = 4


@dataclasses.dataclass(frozen=True, eq=False)
class ObjectPairs:
    """All pairs of one object.

    Attributes
    ----------
    name : str
        The object.
    first, second : (E,) int64
        Images of the pairs, by index.
    angle : (E,) float64
        Angle between the views in degrees, in [0, 120).
    tags : (N, 3) int64
        Of every image: training tag, camera model and size, as numbers.
    """

    name: str
    first: IndexArray
    second: IndexArray
    angle: NDArray[np.float64]
    tags: Ints

    @property
    def cell(self) -> Ints:
        """Class (E,) of every pair's angle, 0 to 23; a bin has eight."""
        return np.floor(self.angle / STEP_DEG).astype(np.int64)


class UnsplittableError(ValueError):
    """An object has too few images or pairs."""


def split_object(
    pairs: ObjectPairs, quota: Sequence[int], size: int, rng: np.random.Generator
) -> tuple[BoolArray, list[IndexArray]]:
    """Divide the images of an object and choose its pairs.

    Parameters
    ----------
    pairs : ObjectPairs
        What there is to choose from.
    quota : three int
        Pairs of each bin, in each pool.
    size : int
        Images of the first pool: half of them, rounded up or down.
    rng : Generator
        Source of all choices.

    Returns
    -------
    side : (N,) bool
        Whether an image is in the first pool.
    chosen : list of two (M,) int64
        Pairs of the first and the second pool, by index, with equal histograms of the angle.

    Raises
    ------
    UnsplittableError
        If nothing was found that keeps all limits; the sentence names object and bin.
    """
    deals = [_exchange(pairs, quota, _deal(pairs.tags, size, rng), rng) for _ in range(_DEALS)]
    deals.sort(key=lambda deal: deal[0])
    stuck = 0
    for _, side in deals:
        inside = [_members(pairs, side), _members(pairs, ~side)]
        room = np.minimum(*(_histogram(pairs.cell[part]) for part in inside))
        lacks = [room[b].sum() < quota[b] for b in range(3)]
        if any(lacks):
            stuck = lacks.index(True)
            continue
        while True:
            raw = _histogram(pairs.cell)
            target = np.concatenate([_share(raw[b], room[b], quota[b]) for b in range(3)])
            found = [_select(pairs, part, target, rng) for part in inside]
            failed = next((f for f in found if isinstance(f, int)), None)
            if failed is None:
                break
            # Ask for one pair less of the angle that cannot be had, more of the others.
            stuck = failed // STEPS
            room[stuck, failed % STEPS] = target[failed] - 1
            if room[stuck].sum() < quota[stuck]:
                break
        lists = [f for f in found if not isinstance(f, int)]
        if len(lists) == 2:
            return side, _most_alike(pairs, lists[0], lists[1])
    names = ("0-40", "40-80", "80-120")
    raise UnsplittableError(
        f"the pairs of {pairs.name} must allow two times {quota[stuck]} in the bin "
        f"{names[stuck]} without a common image, got {len(pairs.tags)} images with "
        f"{int((pairs.cell // STEPS == stuck).sum())} pairs of that bin, which are too few"
    )


def _deal(tags: Ints, size: int, rng: np.random.Generator) -> BoolArray:
    """Deal images out in turns, alike ones after each other, so that pools get equal shares."""
    order = np.lexsort((rng.permutation(len(tags)), tags[:, 2], tags[:, 1], tags[:, 0]))
    side = np.zeros(len(tags), dtype=np.bool_)
    # Whoever begins gets one more of an odd number.
    side[order[0 if 2 * size > len(tags) else 1 :: 2]] = True
    return side


def _exchange(
    pairs: ObjectPairs, quota: Sequence[int], side: BoolArray, rng: np.random.Generator
) -> tuple[float, BoolArray]:
    """Exchange images of equal training tag between the pools while that is no loss."""
    cost = _cost(pairs, quota, side)
    for _ in range(_EXCHANGES):
        a = rng.choice(np.flatnonzero(side))
        others = np.flatnonzero(~side & (pairs.tags[:, 0] == pairs.tags[a, 0]))
        if not len(others):
            continue
        b = rng.choice(others)
        side[[a, b]] = False, True
        changed = _cost(pairs, quota, side)
        if changed <= cost:
            cost = changed
        else:
            side[[a, b]] = True, False
    return cost, side


def _cost(pairs: ObjectPairs, quota: Sequence[int], side: BoolArray) -> float:
    """Weigh missing pairs most, then pairs to spare, then unequal cameras and sizes."""
    counts = [_histogram(pairs.cell[_members(pairs, s)]) for s in (side, ~side)]
    common = np.minimum(*counts).sum(axis=1) - np.asarray(quota)
    missing = float(np.maximum(0, -common).sum())
    spare = float(np.maximum(0, _SPARE - common).sum())
    uneven = 0.0
    for column in (1, 2):
        sign = np.where(side, 1.0, -1.0)
        uneven += float(np.abs(np.bincount(pairs.tags[:, column], weights=sign)).sum())
    return 100.0 * missing + 2.0 * spare + uneven


def _members(pairs: ObjectPairs, side: BoolArray) -> IndexArray:
    """Return the pairs with both images in a pool."""
    return np.flatnonzero(side[pairs.first] & side[pairs.second])


def _histogram(cell: Ints) -> Ints:
    return np.bincount(cell, minlength=3 * STEPS).astype(np.int64).reshape(3, STEPS)


def _share(raw: Ints, room: Ints, quota: int) -> Ints:
    """Share a bin's pairs among its angles as the object has them, as far as there is room."""
    given = np.zeros(STEPS, dtype=np.int64)
    wish = raw * (quota / max(1, raw.sum()))
    for _ in range(quota):
        short = np.where(given < room, wish - given, -np.inf)
        given[int(np.argmax(short))] += 1
    return given


def _select(
    pairs: ObjectPairs, part: IndexArray, target: Ints, rng: np.random.Generator
) -> list[IndexArray] | int:
    """Choose pairs of a pool several times; return the best, or the class nobody could fill."""
    fits: list[tuple[int, IndexArray]] = []
    failed: list[int] = []
    for _ in range(_SELECTIONS):
        result = _select_once(pairs, part, target, rng)
        if isinstance(result, int):
            failed.append(result)
            continue
        used = np.bincount(np.concatenate([pairs.first[result], pairs.second[result]]))
        fits.append((int((used**2).sum()), result))
        if len(fits) == _KEPT:
            break
    if not fits:
        return int(np.bincount(failed).argmax())
    fits.sort(key=lambda fit: fit[0])
    return [result for _, result in fits]


def _select_once(
    pairs: ObjectPairs, part: IndexArray, target: Ints, rng: np.random.Generator
) -> IndexArray | int:
    cell = pairs.cell[part]
    used = np.zeros((4, len(pairs.tags)), dtype=np.int64)
    spare = np.bincount(cell, minlength=len(target)) - target
    chosen: list[int] = []
    # Where there is the least choice first.
    for c in np.lexsort((rng.permutation(len(target)), spare)):
        b = int(c) // STEPS
        left = rng.permutation(part[cell == c])
        for _ in range(int(target[c])):
            ends = np.stack([pairs.first[left], pairs.second[left]])
            fits = ((used[b, ends] < REUSE_BIN) & (used[3, ends] < REUSE_ALL)).all(axis=0)
            if not fits.any():
                return int(c)
            burden = used[3, ends].max(axis=0) * 100 + used[3, ends].sum(axis=0)
            pick = int(np.argmin(np.where(fits, burden, 1 << 30)))
            used[b, ends[:, pick]] += 1
            used[3, ends[:, pick]] += 1
            chosen.append(int(left[pick]))
            left = np.delete(left, pick)
    return np.array(sorted(chosen), dtype=np.int64)


def _most_alike(
    pairs: ObjectPairs, one: list[IndexArray], two: list[IndexArray]
) -> list[IndexArray]:
    """Take the two selections with the most equal cameras: same or not, then which."""
    same_one, kind_one = zip(*(_cameras(pairs, chosen) for chosen in one), strict=True)
    same_two, kind_two = zip(*(_cameras(pairs, chosen) for chosen in two), strict=True)
    same = np.abs(np.array(same_one)[:, None] - np.array(same_two)[None]).sum(axis=2)
    kind = np.abs(np.array(kind_one)[:, None] - np.array(kind_two)[None]).sum(axis=2)
    i, j = np.unravel_index(int(np.argmin(same * 10_000 + kind)), same.shape)
    return [one[int(i)], two[int(j)]]


def _cameras(pairs: ObjectPairs, chosen: IndexArray) -> tuple[Ints, Ints]:
    """Count, by bin, pairs of one camera model, and pairs of every two models."""
    models = int(pairs.tags[:, 1].max()) + 1
    a, b = pairs.tags[pairs.first[chosen], 1], pairs.tags[pairs.second[chosen], 1]
    bin_of = pairs.cell[chosen] // STEPS
    same = np.bincount(bin_of[a == b], minlength=3)
    low, high = np.minimum(a, b), np.maximum(a, b)
    kinds = np.bincount((bin_of * models + low) * models + high, minlength=3 * models * models)
    return same.astype(np.int64), kinds.astype(np.int64)
