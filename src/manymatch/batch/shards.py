"""Which pairs are worked on together: the order of a run, and shards for several machines."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

import numpy as np

from manymatch._validate import refusal
from manymatch.io.pairs import numbered

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from manymatch._validate import IndexArray
    from manymatch.io.pairs import Pair

#: Folder of the shards below that of the batch.
FOLDER = "shards"

# Images of one tile of the order of work. Two tiles of the largest features, 8 MB an image, fit
# into the default memory.
_TILE = 30

_TEXT = re.compile(r"(\d{1,6})/(\d{1,6})")


@dataclasses.dataclass(frozen=True)
class Shard:
    """One of `count` parts of the pairs of a batch; `number` begins at 1.

    Examples
    --------
    >>> Shard.of("3/16")
    Shard(number=3, count=16)
    """

    number: int
    count: int

    @classmethod
    def of(cls, text: object) -> Shard:
        """Read "3/16"."""
        found = _TEXT.fullmatch(text) if isinstance(text, str) else None
        number, of = (int(found[1]), int(found[2])) if found else (0, 0)
        if not 1 <= number <= of:
            raise refusal("shard", 'a text such as "3/16", from "1/16" to "16/16"', text)
        return cls(number, of)

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def folder(self, out: Path) -> Path:
        """Where this shard of a batch is."""
        width = len(str(self.count))
        return out / FOLDER / f"{self.number:0{width}d}-of-{self.count}"

    def indices(self, pairs: Sequence[Pair]) -> IndexArray:
        """Return the pairs of this shard: about as many as any, with images in common."""
        return np.array_split(local_order(pairs), self.count)[self.number - 1]


def local_order(pairs: Sequence[Pair]) -> IndexArray:
    """Order pairs so that neighbours in it have images in common, for memory and for machines.

    Images are numbered by a breadth-first search of the graph whose edges are the pairs, and pairs
    follow a Z-order curve over tiles of the two numbers of their images. Any stretch of it then
    needs few images, be it a thousand pairs or a sixteenth of all, whether the pairs are all of a
    folder, a sequence or the neighbours that a retrieval found, in whatever order they are listed.
    """
    images, numbers = numbered(pairs)
    place = _breadth_first(numbers, len(images)) // _TILE
    low, high = np.sort(place[numbers], axis=1).T
    return np.argsort(_spread(high) << np.uint64(1) | _spread(low), kind="stable")


def _breadth_first(edges: IndexArray, count: int) -> IndexArray:
    """Return the place of each node of a graph in a breadth-first order from its first nodes."""
    ends = np.concatenate([edges, edges[:, ::-1]])
    ends = ends[np.argsort(ends[:, 0], kind="stable")]
    starts = np.searchsorted(ends[:, 0], np.arange(count + 1)).tolist()
    neighbours = ends[:, 1].tolist()
    seen = bytearray(count)
    order: list[int] = []
    for root in range(count):
        if not seen[root]:
            seen[root] = 1
            place = len(order)
            order.append(root)
            while place < len(order):
                node = order[place]
                place += 1
                for other in neighbours[starts[node] : starts[node + 1]]:
                    if not seen[other]:
                        seen[other] = 1
                        order.append(other)
    result = np.empty(count, dtype=np.int64)
    result[order] = np.arange(count)
    return result


def _spread(values: IndexArray) -> NDArray[np.uint64]:
    """Put a zero before each of the lowest 32 bits of numbers."""
    bits = values.astype(np.uint64)
    for shift, mask in (
        (16, 0x0000FFFF0000FFFF),
        (8, 0x00FF00FF00FF00FF),
        (4, 0x0F0F0F0F0F0F0F0F),
        (2, 0x3333333333333333),
        (1, 0x5555555555555555),
    ):
        bits = (bits | bits << np.uint64(shift)) & np.uint64(mask)
    return bits
