"""A data set: pairs in a fixed order, and what is special about them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

from manymatch._validate import integer, refusal
from manymatch.io.pairs import Pair

if TYPE_CHECKING:
    from collections.abc import Callable

    from manymatch.datasets.depth import DepthView


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Dataset(Sequence[Pair]):
    """Pairs of images with known pose.

    Parameters
    ----------
    name : str
        As the registry calls it: lower case, hyphens.
    title : str
        As papers call it.
    pairs : tuple of Pair
        In the order of the lists. ``pair.extra["seed_index"]`` counts from 1 within each list;
        ``extra["bin"]`` and ``extra["angle_deg"]`` are there where the data set has such bins.
    longest0, longest1 : int or None
        Working size of the first and second images where it is not the preset's, as
        `Matcher.match` takes it; 0 keeps the images' own size.
    depth : callable or None
        ``depth(pair, side)`` reads the depth of image 0 or 1 of a pair and returns a `DepthView`;
        both views of a pair have the same common frame. None where there is no depth.
    notes : tuple of str
        What one should know before comparing numbers.
    """

    name: str
    title: str
    pairs: tuple[Pair, ...]
    longest0: int | None = None
    longest1: int | None = None
    depth: Callable[[Pair, int], DepthView] | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "pairs", tuple(self.pairs))
        object.__setattr__(self, "notes", tuple(self.notes))
        for pair in self.pairs:
            if not isinstance(pair, Pair):
                raise refusal("pairs", "a sequence of Pair", pair)
        for name in ("longest0", "longest1"):
            if getattr(self, name) is not None:
                integer(getattr(self, name), name, 0)

    @overload
    def __getitem__(self, index: int) -> Pair: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Pair, ...]: ...
    def __getitem__(self, index: int | slice) -> Pair | tuple[Pair, ...]:
        return self.pairs[index]

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def set_name(self) -> str:
        """How results call it: folders are told apart by their own names."""
        return self.title if self.name == "folder" else self.name

    def require_truth(self) -> None:
        """Raise `ValueError` unless every pair has its true pose."""
        without = next((pair for pair in self.pairs if not pair.has_truth), None)
        if without is not None:
            raise ValueError(
                f"set must have the true pose of every pair, got {self.set_name!r} without that of "
                f"{without.name0} and {without.name1}"
            )

    def first(self, count: int) -> Dataset:
        """Return the data set with its first pairs only."""
        return dataclasses.replace(self, pairs=self.pairs[: integer(count, "count", 1)])

    def __repr__(self) -> str:
        return f"Dataset({self.name}: {len(self.pairs):,} pairs{', depth' if self.depth else ''})"
