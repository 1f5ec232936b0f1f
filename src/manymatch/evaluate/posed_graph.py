"""A graph of candidates together with the truth it is judged by."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from manymatch._validate import bool_array, read_only
from manymatch.geometry.pose import RelativePose

if TYPE_CHECKING:
    from manymatch._validate import BoolArray, FloatArray
    from manymatch.geometry.camera import Camera
    from manymatch.graph import AssociationGraph


@dataclasses.dataclass(frozen=True, eq=False)
class PosedGraph:
    """One pair of an evaluation: its candidates before any cap or filter, and its true pose.

    Attributes
    ----------
    name0, name1 : str
        The two images.
    graph : AssociationGraph
        All candidates with their ranks, in pixels, best first.
    camera0, camera1 : Camera
        Intrinsics in pixels of the graph's points.
    size0, size1 : (int, int)
        Width and height of the images in the same pixels.
    R, t : (3, 3) and (3,) float64
        True pose, ``x1 = R @ x0 + t``; t has any length.
    seed_index : int
        Number of the pair in its own list, from 1. Repetition b uses the seed ``seed_index + b``.
    scene : str
        Pairs of one scene are not independent.
    bin : str
        Group of the pair within its set, such as a range of viewpoint changes.
    pixels : float
        Pixels of the graph that one pixel of a threshold is.
    true_edges : (E,) bool or None
        Edges of the graph that join two images of the same 3D point, where that is known.
    """

    name0: str
    name1: str
    graph: AssociationGraph
    camera0: Camera
    camera1: Camera
    size0: tuple[int, int]
    size1: tuple[int, int]
    R: FloatArray
    t: FloatArray
    seed_index: int
    scene: str = ""
    bin: str = ""
    pixels: float = 1.0
    true_edges: BoolArray | None = None

    def __post_init__(self) -> None:
        known = checked_true_edges(self.true_edges, self.graph)
        object.__setattr__(self, "true_edges", known)

    @property
    def pose(self) -> RelativePose:
        """The true pose, with a unit translation."""
        return RelativePose(self.R, self.t)


def checked_true_edges(value: object, graph: AssociationGraph) -> BoolArray | None:
    """Check and copy what says which edges of a graph are true; None if nothing does."""
    if value is None:
        return None
    want = f"a boolean array of shape ({graph.num_edges},), one entry per edge"
    return read_only(bool_array(value, "true_edges", want, (graph.num_edges,)))
