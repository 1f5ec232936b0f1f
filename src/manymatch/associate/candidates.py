"""Preserve: from descriptors to the graph that the estimator takes."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from manymatch._validate import (
    FloatArray,
    IndexArray,
    checked_method,
    choice,
    count,
    flag,
    float_array,
    integer,
    refusal,
)
from manymatch.associate.gms import GmsResult, at_working_size, checked_size, gms_filter
from manymatch.associate.neighbours import OPERATORS, associate, associate_owned
from manymatch.graph import AssociationGraph
from manymatch.options import setting, settings

_PANEL = "Association"
_FILTER_ARGUMENTS = tuple(inspect.signature(gms_filter).parameters)[3:]
#: The `Association.matcher` that is not a pair matcher: nearest neighbours of descriptors.
NEAREST = "nearest"


@settings
@dataclasses.dataclass(frozen=True)
class Association:
    """How descriptors become the graph that an estimator sees: operator, caps and filter.

    Examples
    --------
    >>> Association().for_method("auto").gms, Association().for_method("hcm-mcm").gms
    (False, True)
    """

    k: int = setting(5, "Candidates per keypoint, the largest rank of an edge.", panel=_PANEL)
    operator: str = setting(
        "mutual",
        "Which pairs are candidates: those where each is among the k nearest of the other "
        "(mutual), where one is (union), or from image 0 to image 1 only (oneway).",
        panel=_PANEL,
        choices=OPERATORS,
    )
    max_edges: int | None = setting(
        2048, "Edges that reach the filter, best first; none for all.", panel=_PANEL
    )
    gms: bool | None = setting(
        None,
        "Filter the edges by grid-based motion statistics (GMS). By default the method decides: "
        '"auto" runs the filter itself and gets every edge of the cap; the other methods get the '
        "edges that the filter keeps.",
        panel=_PANEL,
    )
    keep: int | None = setting(
        1024,
        "Edges that reach the estimator, best first; none for all. Not used where the method "
        'decides about the filter and is "auto".',
        panel=_PANEL,
    )
    matcher: str = setting(
        NEAREST,
        "Finds the candidates: nearest neighbours of the descriptors (nearest), or a registered "
        "pair matcher by its name, which does not use k and operator.",
        panel=_PANEL,
    )

    def __post_init__(self) -> None:
        matcher: object = self.matcher
        if not isinstance(matcher, str) or not matcher:
            raise refusal("matcher", "a name", matcher)
        integer(self.k, "k", 1)
        choice(self.operator, "operator", OPERATORS)
        for name in ("max_edges", "keep"):
            if getattr(self, name) is not None:
                integer(getattr(self, name), name, 0)
        if self.gms is not None:
            flag(self.gms, "gms")

    @classmethod
    def paper(cls) -> Association:
        """Return the paper's practical configuration: the defaults with the filter."""
        return cls(k=5, operator="mutual", max_edges=2048, gms=True, keep=1024)

    @classmethod
    def rank_one(cls, keep: int | None = 1024) -> Association:
        """Return the usual 1-to-1 input: mutual nearest neighbours only."""
        return cls(k=1, max_edges=None, gms=False, keep=keep)

    @classmethod
    def uncapped(cls, k: int) -> Association:
        """Return every edge up to rank k: the graph E_k of the paper's first question."""
        return cls(k=k, max_edges=None, gms=False, keep=None)

    def for_method(self, method: str) -> Association:
        """Decide ``gms=None`` for a method of `estimate_relative_pose`, or for another estimator.

        Estimators of other packages get the same graph as the methods of the paper.
        """
        if self.gms is not None:
            return self
        changes: dict[str, Any] = (
            {"gms": False, "keep": None} if method == "auto" else {"gms": True}
        )
        return dataclasses.replace(self, **changes)

    def apply(
        self,
        graph: AssociationGraph,
        size0: ArrayLike,
        size1: ArrayLike,
        working0: ArrayLike | None = None,
        working1: ArrayLike | None = None,
        further: Sequence[Association] = (),
    ) -> AssociationGraph:
        """Cut and filter a graph with ranks as `cut` does, and keep no edge of a rank above k."""
        own = self._by_source(graph, further)
        if graph.source is None or graph.rank is None or not own:
            nested = graph.up_to_rank(self.k)
        else:
            deepest = np.array([association.k for association in own])
            nested = graph.filter(graph.rank <= deepest[graph.source])
        return self.cut(nested, size0, size1, working0, working1, further).graph

    def _by_source(
        self, graph: AssociationGraph, further: Sequence[Association]
    ) -> list[Association]:
        """Return the association of every source of a graph; empty for fewer than two sources."""
        number = len(graph.source_names)
        if number < 2:
            return []
        return [self, *further] if number == 1 + len(further) else [self] * number

    def cut(
        self,
        graph: AssociationGraph,
        size0: ArrayLike,
        size1: ArrayLike,
        working0: ArrayLike | None = None,
        working1: ArrayLike | None = None,
        further: Sequence[Association] = (),
    ) -> Candidates:
        """Cap, filter and cut a graph whose edges are best first, and count what each step keeps.

        Sizes are as in `candidates`. The edges of several sources are cut and filtered source by
        source. `further` are the associations of the sources after the first; where their number
        does not fit the graph, this association holds for all sources.
        """
        sizes = ((size0, working0), (size1, working1))
        several = self._by_source(graph, further)
        if graph.source is None or not several:
            return _cut(graph, self, sizes, {})
        mask = np.zeros(graph.num_edges, dtype=bool)
        counts: dict[str, int] = {}
        for number, association in enumerate(several):
            own = np.flatnonzero(graph.source == number)
            part = _cut(graph.reordered(own), association, sizes, {})
            mask[own[part.places]] = True
            counts = {name: counts.get(name, 0) + n for name, n in part.counts.items()}
        counts |= {f"keypoints{s}": len((graph.points0, graph.points1)[s]) for s in (0, 1)}
        return Candidates(graph.filter(mask), counts, None, np.flatnonzero(mask))

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain values; the matcher is left out if it is the default."""
        fields = dataclasses.asdict(self)
        if self.matcher == NEAREST:
            del fields["matcher"]
        return fields


@dataclasses.dataclass(frozen=True, eq=False)
class Candidates:
    """A graph for the estimator, and how many edges every step of `candidates` kept.

    Attributes
    ----------
    graph : AssociationGraph
        Candidates, best first, between all keypoints that were given.
    counts : dict of str to int
        ``keypoints0`` and ``keypoints1``, then edges: ``associated`` by the operator, left
        ``after_cap``, ``after_gms``, and ``kept``. A step that is switched off keeps everything.
    gms : GmsResult or None
        Result of the filter for the ``after_cap`` edges; None when it is switched off.
    places : (E,) int64 ndarray
        Indices of the edges among those that were associated.
    """

    graph: AssociationGraph
    counts: dict[str, int]
    gms: GmsResult | None = None
    places: IndexArray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))

    def __repr__(self) -> str:
        words = {"associated": "associated", "after_cap": "after the cap"}
        words |= ({} if self.gms is None else {"after_gms": "after GMS"}) | {"kept": "kept"}
        steps = " -> ".join(f"{self.counts[step]:,} {text}" for step, text in words.items())
        keypoints = count(self.counts["keypoints1"], "keypoint")
        return f"Candidates({self.counts['keypoints0']:,} x {keypoints}; edges: {steps})"


def candidates(
    points0: ArrayLike,
    points1: ArrayLike,
    desc0: ArrayLike,
    desc1: ArrayLike,
    size0: ArrayLike,
    size1: ArrayLike,
    k: int = 5,
    method: str = "auto",
    *,
    operator: str = "mutual",
    max_edges: int | None = 2048,
    gms: bool | Mapping[str, Any] | None = None,
    keep: int | Literal["method"] | None = "method",
    owners0: ArrayLike | None = None,
    owners1: ArrayLike | None = None,
    working0: ArrayLike | None = None,
    working1: ArrayLike | None = None,
) -> Candidates:
    """Associate descriptors and make the graph that a method of the estimator wants.

    With ``method="hcm-mcm"`` this is the paper's practical configuration (`Association.paper`).
    Edges keep their order (rank, then similarity): cap and cut take the first ones, the filter only
    removes.

    Parameters
    ----------
    points0, points1 : (N0, 2) and (N1, 2) array_like
        Keypoints (x, y) in pixels; the centre of the top-left pixel is (0, 0).
    desc0, desc1 : (N0, D) and (N1, D) array_like or torch.Tensor
        Their descriptors, as `associate` takes them.
    size0, size1 : (2,) array_like
        Width and height of the images in pixels.
    k : int
        Candidates per keypoint, as in `associate`.
    method : {"auto", "hcm-mcm", "hcm", "mcm", "cm"}
        Method of the estimator that will see the graph, which decides what `gms` and `keep` leave
        open: "auto" wants all edges of the cap, unfiltered; the others want the filter, and the
        first 1024 of the edges that it keeps.
    operator : {"mutual", "oneway", "union"}
        As in `associate`.
    max_edges : int, optional
        Edges that reach the filter; None for all.
    gms : bool or dict, optional
        Whether to filter with `gms_filter`, or its keyword arguments; None lets the method decide.
    keep : int, None or "method"
        Edges of the result, best first; None for all that are left, "method" lets the method
        decide.
    owners0, owners1 : (M0,) and (M1,) array_like of int, optional
        Both or neither, for keypoints with several descriptors: the keypoint that each row of
        `desc0` and `desc1` belongs to, see `associate_owned`.
    working0, working1 : (2,) array_like, optional
        Width and height of the images at working size, where the keypoints were found in resized
        images and mapped back. The filter counts in these pixels; the graph keeps those given. By
        default the pixels given are those at working size.

    Returns
    -------
    Candidates
        The graph, which may have no edges, and how many edges every step kept.
    """
    pixels0 = _keypoints(points0, desc0, owners0, "0")
    pixels1 = _keypoints(points1, desc1, owners1, "1")
    filter_arguments = gms if isinstance(gms, Mapping) else {}
    for name in filter_arguments:
        choice(name, "every key of gms", _FILTER_ARGUMENTS)
    wanted = True if isinstance(gms, Mapping) else gms
    decided = Association(k, operator, max_edges).for_method(checked_method(method))
    if wanted is not None:
        decided = dataclasses.replace(decided, gms=wanted)
    if keep != "method":
        decided = dataclasses.replace(decided, keep=keep)
    if owners0 is None or owners1 is None:
        if (owners0 is None) != (owners1 is None):
            raise ValueError("owners0 and owners1 must be given together, got one of them")
        found = associate(desc0, desc1, k, operator)
    else:
        found = associate_owned(desc0, owners0, desc1, owners1, k, operator)
    graph = AssociationGraph(pixels0, pixels1, *found)
    return _cut(graph, decided, ((size0, working0), (size1, working1)), filter_arguments)


def _cut(
    graph: AssociationGraph,
    association: Association,
    sizes: Sequence[tuple[ArrayLike, ArrayLike | None]],
    filter_arguments: Mapping[str, Any],
) -> Candidates:
    """Cap, filter and cut a graph; `sizes` are those of either image as given and working."""
    if association.gms is None:
        raise ValueError("gms must be True or False here, got None: see Association.for_method")
    capped = graph if association.max_edges is None else graph.head(association.max_edges)
    # If the filter is switched off, it still runs, on no edges, to check the sizes.
    seen = capped if association.gms else capped.head(0)
    plain = [checked_size(size, f"size{side}") for side, (size, _) in enumerate(sizes)]
    working = [
        plain[side] if size is None else checked_size(size, f"working{side}")
        for side, (_, size) in enumerate(sizes)
    ]
    scaled = at_working_size(seen, working[0] / plain[0], working[1] / plain[1])
    found = gms_filter(scaled, working[0], working[1], **filter_arguments)
    left = capped.filter(found.mask) if association.gms else capped
    kept = left if association.keep is None else left.head(association.keep)
    counts = {
        "keypoints0": len(graph.points0),
        "keypoints1": len(graph.points1),
        "associated": graph.num_edges,
        "after_cap": capped.num_edges,
        "after_gms": left.num_edges,
        "kept": kept.num_edges,
    }
    places = np.flatnonzero(found.mask) if association.gms else np.arange(capped.num_edges)
    return Candidates(kept, counts, found if association.gms else None, places[: association.keep])


def _keypoints(
    points: ArrayLike, desc: ArrayLike, owners: ArrayLike | None, image: str
) -> FloatArray:
    """Check keypoints, one per descriptor unless descriptors have owners."""
    array = float_array(points, f"points{image}", "an (N, 2) array of pixels", (None, 2))
    # `np.shape` does not copy a tensor from the GPU.
    shape = np.shape(desc)
    if owners is None and shape and shape[0] != len(array):
        raise ValueError(
            f"desc{image} must have one row per keypoint ({len(array)}), got shape {tuple(shape)}"
        )
    return array
