"""Preserve: the GMS filter for graphs with several candidates per keypoint."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import ArrayLike

from manymatch import _core
from manymatch._validate import (
    BoolArray,
    FloatArray,
    count,
    flag,
    float_array,
    integer,
    notice_swapped,
    read_only,
    real,
    refusal,
    within,
)
from manymatch.graph import AssociationGraph, GraphLike, as_graph

# Time and memory grow with the square of this; with more cells, a cell is a few pixels.
_LARGEST_GRID = 256
# Cells are found in single precision, which cannot distinguish pixels above this.
LARGEST_COORDINATE = 1e9


@dataclasses.dataclass(frozen=True, eq=False)
class GmsResult:
    """Result of `gms_filter`.

    Attributes
    ----------
    mask : (E,) bool ndarray
        Edges to keep, for `AssociationGraph.filter`. Read-only.
    num_kept : int
        Number of edges kept.
    scale : float or None
        Cells on a side of the right grid relative to the left one in the setting that won: 1, 1/2,
        1/sqrt(2), sqrt(2) or 2. None when nothing was kept.
    rotation : int or None
        Steps of 45 degrees, 0 to 7, by which the ring of neighbours was turned in that setting:
        image 1 shows the scene turned counter-clockwise by this. None when nothing was kept.
    """

    mask: BoolArray
    num_kept: int
    scale: float | None
    rotation: int | None

    def __repr__(self) -> str:
        kept = f"{self.num_kept:,} of {count(self.mask.size, 'edge')} kept"
        if self.scale is None or self.rotation is None:
            return f"GmsResult({kept})"
        return f"GmsResult({kept}; scale {self.scale:.4g}, rotation {45 * self.rotation} deg)"


def gms_filter(
    graph: GraphLike,
    size0: ArrayLike,
    size1: ArrayLike,
    threshold: float = 4.0,
    grid: int = 20,
    scales: bool = True,
    rotations: bool = True,
    crop: bool = True,
    integer_mean: bool = True,
) -> GmsResult:
    """Keep the edges whose neighbourhood moves the way they do (grid-based motion statistics).

    Both images are divided into cells. The support of a left cell a and a right cell b is the size
    of a maximum matching of the edges between them, so that a keypoint with several candidates in
    one cell counts once. Cell a is assigned to the cell b with the most support (the lowest
    row-major index among equals) and accepted if the support of the pair and of its eight
    neighbouring pairs together reaches ``threshold * sqrt(mean number of keypoints)``, where the
    mean runs over the left cells of the pairs inside both grids and counts the distinct keypoints
    with an edge. An edge is kept if its cells are such a pair in one of four placements of the left
    grid, each shifted by half a cell. Of all scales and rotations the one that keeps most edges
    wins, the earlier one among equals.

    Parameters
    ----------
    graph : AssociationGraph or Candidates
        Candidates between the two images. The filter counts in its pixels, and lays one margin in
        pixels around both images: they should be those at working size, at which the keypoints
        were found, and not those of files of other resolutions (`at_working_size` converts).
    size0, size1 : (2,) array_like
        Width and height of the images in the same pixels. With `crop` they are checked and not
        used; a warning says if the two seem to be swapped.
    threshold : float
        Strictness; 0 accepts every cell. At least 0.
    grid : int
        Cells on a side of the left grid, 2 to 256.
    scales : bool
        Try right grids of 1, 1/2, 1/sqrt(2), sqrt(2) and 2 times as many cells on a side, in this
        order; otherwise only 1.
    rotations : bool
        Try all eight turns of the neighbourhood by 45 degrees; otherwise none.
    crop : bool
        Lay the grids over the box of the keypoints that carry edges, with a margin of half a cell;
        otherwise over the whole image, enlarged by whole pixels to contain all of these keypoints.
    integer_mean : bool
        Truncate the mean number of keypoints to a whole number, as the paper's implementation does.

    Returns
    -------
    GmsResult
        The mask and the setting that won. The order of edges and of keypoints plays no part.

    Notes
    -----
    Cell indices are computed in single precision, step by step as the paper's implementation does,
    so that masks are equal also where keypoints lie on the border of a cell.
    """
    graph = as_graph(graph)
    sizes = checked_size(size0, "size0"), checked_size(size1, "size1")
    limit = real(threshold, "threshold", 0.0, closed=True)
    cells = integer(grid, "grid", 2, _LARGEST_GRID)
    names = ("scales", "rotations", "crop", "integer_mean")
    flags = list(map(flag, (scales, rotations, crop, integer_mean), names))
    bound, want = LARGEST_COORDINATE, f"pixels within {LARGEST_COORDINATE:g} of the origin"
    for side, size in enumerate(sizes):
        points = (graph.points0, graph.points1)[side]
        within(points, -bound, bound, f"graph.points{side}", want)
        notice_swapped(points, float(size[0]), float(size[1]), f"size{side}")
    edges = np.ascontiguousarray(graph.edges, dtype=np.int32)
    mask, num_kept, scale, rotation = _core.gms(
        graph.points0, graph.points1, edges, *sizes, limit, cells, *flags
    )
    found = (scale, rotation) if num_kept else (None, None)
    return GmsResult(read_only(mask), num_kept, *found)


def at_working_size(
    graph: AssociationGraph, scale0: ArrayLike, scale1: ArrayLike
) -> AssociationGraph:
    """Return a graph in pixels at working size, for `gms_filter`.

    A scale is the length at working size over that in pixels of the graph, along x and y. The
    corners of an image are kept, so that a pixel x goes to ``(x + 0.5) * scale - 0.5``.
    """
    scaled, want = [], "two positive numbers (x, y)"
    for points, scale, name in (
        (graph.points0, scale0, "scale0"),
        (graph.points1, scale1, "scale1"),
    ):
        factors = float_array(scale, name, want, (2,))
        if not (factors > 0.0).all():
            raise refusal(name, want, factors)
        # Without resizing, points stay equal bit for bit.
        scaled.append(points if (factors == 1.0).all() else (points + 0.5) * factors - 0.5)
    points0, points1 = scaled
    return AssociationGraph(points0, points1, graph.edges, **graph.of_edges())


def checked_size(value: ArrayLike, name: str) -> FloatArray:
    """Check a width and a height."""
    want = "two positive finite numbers (width, height)"
    size = float_array(value, name, want, (2,), finite=False)
    if not ((size > 0.0) & (size <= LARGEST_COORDINATE)).all():
        raise ValueError(f"{name} must be {want} up to 1e9, got {size.tolist()}")
    return size
