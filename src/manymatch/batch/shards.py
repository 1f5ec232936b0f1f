"""Which pairs are worked on together: the order of a run, its blocks, and shards."""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from manymatch._validate import IndexArray, integer, refusal
from manymatch.batch.parts import cut, read_run
from manymatch.io.pairs import Pair, numbered

# Pairs of a block at most, so that it takes less than about 20 s (networks are slow without a GPU),
# and blocks at least where there are fewer pairs, so that all workers are busy.
_BLOCK, _BLOCK_OF_NETWORKS, _BLOCKS = 32, 8, 64
_SHARD = re.compile(r"(\d{1,6})/(\d{1,6})")


def shard_of(text: object) -> tuple[int, int]:
    """Read "3/16" as the number of the first block, from 0, and the number of shards: (2, 16)."""
    if text is None:
        return 0, 1
    found = _SHARD.fullmatch(text) if isinstance(text, str) else None
    number, shards = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= number <= shards:
        raise refusal("shard", 'a text such as "3/16", from "1/16" to "16/16"', text)
    return number - 1, shards


def cutting(
    folder: Path, pairs: Sequence[Pair], total: int, block: int | None, *, network: bool
) -> tuple[int, list[int]]:
    """Return the size of blocks, and where the stages of a batch end that were begun.

    A run with a limit is a stage of its own, so that it does exactly the first pairs.
    """
    known = read_run(folder) or {}
    most = _BLOCK_OF_NETWORKS if network else _BLOCK
    size = max(1, min(most, len(pairs) // _BLOCKS))
    if block is not None:
        size = integer(block, "block", 1)
    elif isinstance(known.get("block"), int):
        size = known["block"]
    ends = [end for end in known.get("ends", ()) if 0 < end <= len(pairs)]
    return size, ends if ends and ends[-1] >= total else [*ends, total]


def pair_blocks(pairs: Sequence[Pair], ends: Sequence[int], size: int) -> list[IndexArray]:
    """Cut each stage of a batch into blocks."""
    stages = itertools.pairwise([0, *ends])
    return [one for a, b in stages for one in cut(a + local_order(pairs[a:b]), size)]


def local_order(pairs: Sequence[Pair]) -> IndexArray:
    """Order pairs so that neighbours in it have images in common, for memory and for machines.

    Images are numbered by a breadth-first search of the graph whose edges are the pairs, and pairs
    follow a Z-order curve over the two numbers of their images. Any stretch of it then
    needs few images, a thousand pairs as well as a sixteenth of all. This holds for all pairs of a
    folder, for a sequence and for neighbours that a retrieval found, in any order of the list.
    """
    images, numbers = numbered(pairs)
    neighbours: list[list[int]] = [[] for _ in images]
    for first, second in zip(*numbers.T.tolist(), strict=True):
        neighbours[first].append(second)
        neighbours[second].append(first)
    places: dict[int, int] = {}
    for root in range(len(images)):
        waiting = deque([root])
        while waiting:
            image = waiting.popleft()
            if image not in places:
                places[image] = len(places)
                waiting.extend(neighbours[image])
    place = np.array([places[image] for image in range(len(images))])
    low, high = np.sort(place[numbers], axis=1).T
    return np.argsort(_spread(high) << np.uint64(1) | _spread(low), kind="stable")


def _spread(values: IndexArray) -> NDArray[np.uint64]:
    """Put a zero before each of the lowest 32 bits of numbers."""
    bits = values.astype(np.uint64)
    for shift in (16, 8, 4, 2, 1):
        # Runs of `shift` zero bits and of `shift` one bits in turn.
        mask = (2**64 - 1) // (2**shift + 1)
        bits = (bits | bits << np.uint64(shift)) & np.uint64(mask)
    return bits
