"""Data that the report draws over the images: states, residuals, epipolar lines."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from manymatch import _core
from manymatch._validate import BoolArray, FloatArray, IndexArray
from manymatch.estimate.words import NOTHING, RELIABLE
from manymatch.geometry.camera import Camera, normalised_pixel
from manymatch.geometry.pose import RelativePose
from manymatch.viz.figure import drawable

if TYPE_CHECKING:
    from manymatch.estimate.relative_pose import RelativePoseEstimate
    from manymatch.estimate.result import Estimate
    from manymatch.graph import AssociationGraph

# Colours of sources; those beyond the last share it.
SOURCE_COLOURS = ("#4fc3ff", "#ffb14a", "#7ee081", "#ff7ec4", "#c58bff", "#f4f06a", "#d5dbe6")
_KINDS = {**dict.fromkeys(RELIABLE, "good"), **dict.fromkeys(NOTHING, "bad")}
# States of a candidate, in the order in which they are drawn.
REFUSED, CONSISTENT, CHOSEN = 0, 1, 2

# Straight parts of an epipolar line that a lens bends.
_SEGMENTS = 16
# Fisheye images end near 90 degrees, where the normalised plane does not.
_LARGEST_RADIUS = 30.0


def verdict_kind(verdict: str) -> str:
    """Return how a verdict is coloured: "good", "doubt" or "bad"."""
    return _KINDS.get(verdict, "doubt")


def residuals_px(
    graph: AssociationGraph, pose: RelativePose | None, camera0: Camera, camera1: Camera
) -> FloatArray:
    """Sampson distances (E,) in pixels, in the scale of `threshold_px`; NaN without a pose."""
    if pose is None:
        return np.full(graph.num_edges, np.nan)
    return _distances(graph, pose, camera0, camera1)[0]


def _distances(
    graph: AssociationGraph, pose: RelativePose, camera0: Camera, camera1: Camera
) -> tuple[FloatArray, BoolArray]:
    """Sampson distances (E,) in pixels, and whether both depths are positive."""
    x0 = camera0.unproject(graph.points0[graph.edges[:, 0]])
    x1 = camera1.unproject(graph.points1[graph.edges[:, 1]])
    squared, in_front = _core.sampson(x0, x1, pose.R, pose.t)
    return np.sqrt(squared) / normalised_pixel(camera0, camera1), in_front


def each_pose(
    graph: AssociationGraph,
    estimate: RelativePoseEstimate,
    cameras: tuple[Camera, Camera],
    most: int,
) -> list[RelativePoseEstimate]:
    """Return the estimate and what it would be with each of its alternatives, `most` of these."""
    found = [estimate]
    for other in estimate.alternatives[:most]:
        if not isinstance(other.model, RelativePose):
            continue
        distance, in_front = _distances(graph, other.model, *cameras)
        inliers = in_front & (distance <= estimate.threshold_px)
        changes: dict[str, Any] = {
            "model": other.model,
            "inliers": inliers,
            "num_inliers": int(inliers.sum()),
            "matches": other.matches,
            "match_probability": None,
            "cardinality": other.cardinality,
            "low_parallax": False,
            "alternatives": (),
        }
        found.append(dataclasses.replace(estimate, **changes))
    return found


def edge_states(graph: AssociationGraph, estimate: Estimate) -> NDArray[np.int64]:
    """Return for every edge (E,) whether it is chosen, only consistent, or neither."""
    chosen = np.isin(_keys(graph, graph.edges), _keys(graph, estimate.matches))
    return np.where(chosen, CHOSEN, np.where(estimate.inliers, CONSISTENT, REFUSED))


def _keys(graph: AssociationGraph, pairs: IndexArray) -> IndexArray:
    """Return one number for each pair of keypoints (N, 2)."""
    return pairs[:, 0] * max(len(graph.points1), 1) + pairs[:, 1]


def source_colours(graph: AssociationGraph) -> list[tuple[str, str]]:
    """Return name and colour of every source; empty if there are not several."""
    names = graph.source_names if len(graph.source_names) > 1 else ()
    last = len(SOURCE_COLOURS) - 1
    return [(name, SOURCE_COLOURS[min(k, last)]) for k, name in enumerate(names)]


def shown_edges(states: NDArray[np.int64], most: int) -> IndexArray:
    """Return which edges the report shows, in order: all, or the chosen ones and the best rest."""
    if len(states) <= most:
        return np.arange(len(states), dtype=np.int64)
    return np.sort(np.argsort(-states, kind="stable")[:most]).astype(np.int64)


def epipolar_lines(
    points: FloatArray, essential: FloatArray, source: Camera, target: Camera, size: tuple[int, int]
) -> list[list[float]]:
    """Return the epipolar lines of points (N, 2) in the other image, as polylines in pixels.

    `essential` (3, 3) maps normalised points of the source camera to lines of the target camera,
    whose image has the width and height `size`. Lines are bent by distortion and reach a little
    beyond the image: ``[x, y, x, y, ...]``, empty for a line that does not come near it.
    """
    radius = _view_radius(target, size)
    x = source.unproject(points)
    line = np.column_stack([x, np.ones(len(x))]) @ essential.T
    norm = np.hypot(line[:, 0], line[:, 1])
    with np.errstate(all="ignore"):
        foot = -line[:, :2] * (line[:, 2] / norm**2)[:, None]
        along = np.column_stack([-line[:, 1], line[:, 0]]) / norm[:, None]
        reach = np.sqrt(radius**2 - np.sum(foot**2, axis=1))
        # Equal steps of the angle within the epipolar plane, not of the plane z = 1.
        height = np.sqrt(1.0 + np.sum(foot**2, axis=1))
        angle = np.arctan(reach / height)
    seen = np.flatnonzero(np.isfinite(angle) & (angle > 0.0))
    result: list[list[float]] = [[] for _ in range(len(points))]
    if len(seen) == 0:
        return result
    foot, along, height, angle = foot[seen], along[seen], height[seen], angle[seen]
    steps = np.linspace(-1.0, 1.0, 1 + (_SEGMENTS if target.distortion else 1))
    s = height[:, None] * np.tan(angle[:, None] * steps)
    samples = foot[:, None, :] + s[:, :, None] * along[:, None, :]
    pixels = target.project(samples.reshape(-1, 2)).reshape(*s.shape, 2)
    finite = np.isfinite(pixels).all(axis=(1, 2))
    polylines = np.round(pixels[finite], 1).reshape(-1, 2 * s.shape[1]).tolist()
    for index, polyline in zip(seen[finite].tolist(), polylines, strict=True):
        result[index] = polyline
    return result


def _view_radius(camera: Camera, size: tuple[int, int]) -> float:
    """Return the radius on the normalised plane of the circle that holds the whole image."""
    x, y = np.meshgrid(
        np.linspace(-0.5, size[0] - 0.5, 17), np.linspace(-0.5, size[1] - 0.5, 17), indexing="ij"
    )
    rays = camera.unproject(np.column_stack([x.ravel(), y.ravel()]))
    radius = np.nanmax(np.hypot(rays[:, 0], rays[:, 1]), initial=0.0)
    return float(min(radius, _LARGEST_RADIUS))


def payload(
    graph: AssociationGraph,
    estimates: Sequence[RelativePoseEstimate],
    cameras: tuple[Camera, Camera],
    sizes: tuple[tuple[int, int], tuple[int, int]],
    others: list[tuple[str, RelativePoseEstimate]],
    most: int,
) -> dict[str, Any]:
    """Return the data of the page's script: numbers, texts, lists and arrays.

    The estimates are those of `each_pose`; the first one is at the top level, the others in
    ``alternatives``. Keypoints without candidate or match are left out, and all indices count the
    remaining ones, whose numbers in the graph are ``ids``. At most `most` candidates or matches are
    shown: the chosen and the best ones.
    """
    states = [edge_states(graph, estimate) for estimate in estimates]
    shown = shown_edges(np.max(states, axis=0), most)
    edges = graph.edges[shown]
    drawn = [
        edges[state[shown] == CHOSEN] if len(estimate.matches) > most else estimate.matches
        for state, estimate in zip(states, estimates, strict=True)
    ]
    layers = [(name, e.matches[:: 1 + len(e.matches) // most]) for name, e in others]
    used = np.concatenate([edges, *drawn, *(pairs for _, pairs in layers)])
    ids = [np.unique(used[:, side]) for side in (0, 1)]
    points = [drawable((graph.points0, graph.points1)[side][ids[side]]) for side in (0, 1)]

    def local(pairs: IndexArray) -> list[NDArray[Any]]:
        return [np.searchsorted(ids[side], pairs[:, side]) for side in (0, 1)]

    def own(state: NDArray[np.int64], estimate: RelativePoseEstimate) -> dict[str, Any]:
        """Return what depends on the pose."""
        lines: list[list[list[float]]] = [[], []]
        fundamental = None
        if estimate.pose is not None and not any(camera.distortion for camera in cameras):
            # The script finds straight lines by itself: they would be most of the page.
            inverse = [np.linalg.inv(camera.K) for camera in cameras]
            F = inverse[1].T @ estimate.pose.essential() @ inverse[0]
            fundamental = (F / np.linalg.norm(F)).ravel().tolist()
        elif estimate.pose is not None:
            E = estimate.pose.essential()
            lines[0] = epipolar_lines(points[0], E, cameras[0], cameras[1], sizes[1])
            lines[1] = epipolar_lines(points[1], E.T, cameras[1], cameras[0], sizes[0])
        return {
            "state": state[shown],
            "residual": residuals_px(graph, estimate.pose, *cameras)[shown],
            "probability": _probabilities(graph, estimate, shown),
            "lines": lines,
            "fundamental": fundamental,
        }

    first, *rest = map(own, states, estimates)
    return {
        "sizes": [list(size) for size in sizes],
        "ids": ids,
        "points": [side.ravel() for side in points],
        "edges": local(edges),
        "rank": None if graph.rank is None else graph.rank[shown],
        "similarity": None if graph.similarity is None else graph.similarity[shown],
        "source": None if graph.source is None else graph.source[shown],
        "sources": source_colours(graph),
        **first,
        "layers": [
            {"name": name, "pairs": local(pairs)} for name, pairs in [("", drawn[0]), *layers]
        ],
        "alternatives": [
            {**alternative, "pairs": local(pairs)}
            for alternative, pairs in zip(rest, drawn[1:], strict=True)
        ],
        "threshold": estimates[0].threshold_px,
    }


def _probabilities(
    graph: AssociationGraph, estimate: RelativePoseEstimate, shown: IndexArray
) -> FloatArray | None:
    """Probability of each shown edge that is a match to be right; NaN where it is unknown."""
    if estimate.match_probability is None:
        return None
    keys, edges = _keys(graph, estimate.matches), _keys(graph, graph.edges[shown])
    order = np.argsort(keys)
    # One more for edges that come after all matches.
    values = np.append(estimate.match_probability[order], np.nan)
    place = np.searchsorted(keys[order], edges)
    known = np.append(keys[order], -1)[place] == edges
    return np.where(known, values[place], np.nan)
