"""Lists of matched points as graphs of candidates, and what else the switches share."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from manymatch._validate import BoolArray, FloatArray, IndexArray, float_array, int_array, refusal
from manymatch.geometry.camera import Camera, as_camera
from manymatch.geometry.pose import RelativePose
from manymatch.graph import AssociationGraph
from manymatch.options import Options

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from manymatch.estimate.result import Estimate

# Samples that are drawn before a stopping rule may end the search, unless the limit is lower:
# a thousand of ours cost a millisecond or two.
_LEAST_ITERATIONS = 1_000
_NEARLY_ONE = 1.0 - 1e-12
# Share of the matches with which a model counts as having clearly fewer, and how many standard
# deviations beyond chance the order of candidates means something.
_NEARLY_AS_MANY, _DEVIATIONS = 0.9, 3.0


class Solved(NamedTuple):
    """An estimate, and which of the rows (N,) that were given agree with its model."""

    estimate: Any  # the `Estimate` of the problem
    mask: BoolArray


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """Candidates as somebody listed them.

    Attributes
    ----------
    graph : AssociationGraph
        The candidates; a point that is listed several times is one vertex.
    edge_of_row : (N,) int64 ndarray
        For every row that was given, its edge in the graph.
    ordered : bool
        Whether ranks are more than the order in which candidates of a point are listed.
    """

    graph: AssociationGraph
    edge_of_row: IndexArray
    ordered: bool

    def solve(
        self, function: Callable[..., Estimate], *arguments: object, options: Options
    ) -> Solved:
        """Estimate a model with a function of this package.

        Where candidates are known by their order only, which may mean nothing, they are tried a
        second time without it. That model is taken if it has more one-to-one matches, or nearly as
        many and those of the first do not show that the order means something.
        """
        first = function(self.graph, *arguments, options=options)
        mask = first.inliers[self.edge_of_row]
        if self.ordered:
            return Solved(first, np.asarray(mask))
        order = np.random.default_rng(0).permutation(self.graph.num_edges)
        mixed = AssociationGraph(self.graph.points0, self.graph.points1, self.graph.edges[order])
        second = function(mixed, *arguments, options=options)
        enough = second.success and second.cardinality >= _NEARLY_AS_MANY * first.cardinality
        more = second.cardinality > first.cardinality
        if not more and (not enough or self._order_tells(first)):
            return Solved(first, np.asarray(mask))
        place = np.argsort(order, kind="stable")
        return Solved(second, np.asarray(second.inliers[place[self.edge_of_row]]))

    def _order_tells(self, estimate: Estimate) -> bool:
        """Whether matches are the first candidates of their points more often than by chance."""
        graph, width = self.graph, len(self.graph.points1)
        keys = graph.edges[:, 0] * width + graph.edges[:, 1]
        chosen = np.isin(keys, estimate.matches[:, 0] * width + estimate.matches[:, 1])
        degree = graph.degrees()[0][graph.edges[:, 0]]
        chosen &= degree > 1
        chance = 1.0 / degree[chosen]
        excess = np.count_nonzero(np.asarray(graph.rank)[chosen] == 1) - chance.sum()
        return bool(excess > _DEVIATIONS * np.sqrt(np.sum(chance * (1.0 - chance))))


def as_rows(
    points0: object,
    points1: object,
    edges: object = None,
    rank: object = None,
    names: tuple[str, str] = ("points0", "points1"),
    dimensions: tuple[int, int] = (2, 2),
) -> Rows:
    """Make a graph of matched points.

    Parameters
    ----------
    points0, points1 : array_like
        Points as OpenCV takes them, (N, 2), (N, 1, 2) or (1, N, 2), or likewise with three
        coordinates.
    edges : (E, 2) array_like of integers, optional
        Candidates as indices into the points, best first; they are the rows then. Without it,
        ``points0[i]`` and ``points1[i]`` are row i, and equal points are one vertex.
    rank : (E,) array_like of integers, optional
        Rank of every row. Without it a row has the place that it has among the rows of its point
        in `points0`, as if candidates of a point were listed best first; see `Rows.solve`.
    names, dimensions
        Names of the points for errors, and their numbers of coordinates.
    """
    first, second = (
        _points(value, name, size)
        for value, name, size in zip((points0, points1), names, dimensions, strict=True)
    )
    if edges is None:
        if len(second) != len(first):
            raise ValueError(
                f"{names[1]} must hold {len(first)} points, one for each of {names[0]}, got "
                f"{len(second)}; lists of different lengths need edges"
            )
        # Zero of either sign is one point.
        (start0, index0), (start1, index1) = _distinct(first + 0.0), _distinct(second + 0.0)
        first, second = first[start0], second[start1]
        rows = np.stack([index0, index1], axis=1)
    else:
        rows = int_array(edges, "edges", "an (E, 2) array of indices or None", (None, 2))
    ranks, ordered = None, rank is not None
    if rank is not None:
        want = f"an array of {len(rows)} whole numbers, one a row, or None"
        ranks = int_array(rank, "rank", want, (len(rows),))
    kept, edge_of_row = _distinct(rows)
    ranks = _places(rows[kept, 0]) if ranks is None else ranks[kept]
    order = np.argsort(ranks, kind="stable")
    graph = AssociationGraph(first, second, rows[kept][order], rank=ranks[order])
    place = np.argsort(order, kind="stable")
    ordered = ordered or int(ranks.max(initial=1)) == 1
    return Rows(graph, place[edge_of_row], ordered)


def _points(value: Any, name: str, size: int) -> FloatArray:
    """Check points in any of the shapes that OpenCV has for them."""
    try:
        shape = np.shape(value)
    except ValueError:  # rows of different lengths
        shape = ()
    if len(shape) == 3 and shape[2] == size and 1 in shape[:2]:
        value = np.reshape(np.asarray(value), (-1, size))
    return float_array(value, name, f"an (N, {size}) array of finite numbers", (None, size))


def _distinct(table: NDArray[Any]) -> tuple[IndexArray, IndexArray]:
    """Find the different rows of a table (N, D), in the order in which they first occur.

    Returns where each of them first occurs, and for every row (N,) which of them it is.
    """
    order = np.lexsort(table.T)
    new = np.ones(len(table), dtype=np.bool_)
    new[1:] = (table[order[1:]] != table[order[:-1]]).any(axis=1)
    # The sort is stable, so that the first of equal rows comes first.
    start = order[new]
    by_occurrence = np.argsort(start, kind="stable")
    number = np.empty_like(by_occurrence)
    number[by_occurrence] = np.arange(len(start))
    numbers = np.empty(len(table), dtype=np.int64)
    numbers[order] = number[np.cumsum(new) - 1]
    return start[by_occurrence], numbers


def _places(vertex: IndexArray) -> IndexArray:
    """Return for every row the number of rows of the same vertex up to it, from 1."""
    order = np.argsort(vertex, kind="stable")
    grouped = vertex[order]
    start = np.searchsorted(grouped, grouped, side="left")
    places = np.empty(len(vertex), dtype=np.int64)
    places[order] = np.arange(len(vertex)) - start + 1
    return places


def make_options(names: Mapping[str, str], **values: Any) -> Options:
    """Make options of what somebody gave; `names` are the original's names of our fields.

    None is left out. A confidence of 1 is one next to it. The minimum of the iterations is at least
    that of `Options`, and at most their maximum.
    """
    given = {name: value for name, value in values.items() if value is not None}
    if given.get("confidence") == 1:
        given["confidence"] = _NEARLY_ONE
    most = given.get("max_iterations", Options.max_iterations)
    least = given.get("min_iterations", _LEAST_ITERATIONS)
    # What is no whole number is refused below, by its own name.
    if isinstance(most, int | np.integer) and isinstance(least, int | np.integer):
        given["min_iterations"] = int(max(1, min(max(least, _LEAST_ITERATIONS), most)))
    try:
        return Options(**given)
    except ValueError as error:
        field, _, rest = str(error).partition(" ")
        raise ValueError(f"{names.get(field, field)} {rest}") from error


def given_camera(value: object, name: str) -> Camera:
    """Return a camera with the numbers that it was given with, whatever pixels they are for.

    It may be a dict, a poselib.Camera or a pycolmap.Camera; its points follow the same convention,
    so that nothing is shifted. A size that is not positive is unknown.
    """
    if isinstance(value, Camera):
        return value
    if isinstance(value, Mapping) and "model" in value:
        fields = {key: value[key] for key in ("model", "params") if key in value}
        sizes = [value.get(key) for key in ("width", "height")]
    elif hasattr(value, "params") and (hasattr(value, "model_name") or hasattr(value, "model")):
        model: Any = getattr(value, "model_name", None) or getattr(value, "model")  # noqa: B009
        model = model() if callable(model) else getattr(model, "name", model)
        fields = {"model": model, "params": getattr(value, "params")}  # noqa: B009
        sizes = [getattr(value, key, None) for key in ("width", "height")]
    else:
        return as_camera(value, name)
    known = all(isinstance(size, int | np.integer) and size > 0 for size in sizes)
    width, height = sizes if known else (None, None)
    return as_camera({**fields, "width": width, "height": height}, name)


def unknown_focal(camera: Camera, points: object) -> Camera:
    """Return a camera with the same principal point whose focal length is to be found.

    The size of the image, on which the prior depends, is that of the camera or, where that is not
    known, what the principal point in its centre or the points (N, 2) around it say.
    """
    if camera.distortion:
        raise ValueError(
            f"camera must have no distortion if its focal length is to be found, got {camera.model}"
        )
    if camera.width is not None and camera.height is not None:
        edge = float(max(camera.width, camera.height))
    else:
        principal = np.array([camera.cx, camera.cy])
        around = np.abs(np.asarray(points, dtype=np.float64) - principal)
        edge = 2.0 * max(float(principal.max()), float(around.max(initial=0.0)), 0.5)
    usual = Camera.unknown(round(edge), round(edge))
    return camera.with_focal(usual.focal, usual.focal_sigma)


def rotation_vector(R: FloatArray) -> FloatArray:
    """Return axis times angle in radians, (3,), of a rotation matrix."""
    turn = RelativePose(R, (0.0, 0.0, 1.0))
    return np.asarray(turn.axis * np.radians(turn.angle_deg))


class Info(dict[str, Any]):
    """A dict as the original returns it; `estimate` is the whole result of this package."""

    estimate: Any  # the `Estimate` of the problem


def installed(module: str) -> Any:
    """Return an optional package, None if it is not installed."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        return None


def original(module: str, extra: str, name: str) -> Any:
    """Return what the original has under a name that its switch does not define."""
    package = None if name.startswith("__") else installed(module)
    if package is not None:
        return getattr(package, name)
    message = f"module 'manymatch.compat.{module}' has no attribute {name!r}"
    if not name.startswith("__"):
        message += f', and {module} is not installed: pip install "manymatch[{extra}]"'
    raise AttributeError(message, name=name)


def checked_mapping(value: object, name: str) -> Mapping[str, Any]:
    """Check a dict of options; None is an empty one."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise refusal(name, "a dict of options", value)
    return value
