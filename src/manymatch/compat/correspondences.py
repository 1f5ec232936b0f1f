"""Lists of matched points as graphs of candidates, and what else the three switches share."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from manymatch._validate import BoolArray, FloatArray, IndexArray, float_array, int_array, refusal
from manymatch.associate.merge import place_in_group
from manymatch.geometry.camera import Camera, as_camera
from manymatch.geometry.pose import RelativePose
from manymatch.graph import AssociationGraph
from manymatch.options import Options

R = TypeVar("R")

# Samples that are drawn before a stopping rule may end the search, unless the limit is lower:
# a thousand of ours cost a millisecond or two.
_LEAST_ITERATIONS = 1_000
_NEARLY_ONE = 1.0 - 1e-12
_CANDIDATES = """A point that occurs in several rows is one keypoint with several candidates.
With `edges`, (E, 2), the points are keypoints and the rows are indices into both lists, best
first. `rank`, (E,), gives the rank of every row."""


class Solved(NamedTuple):
    """An estimate, and which of the rows (N,) that were given agree with its model."""

    estimate: Any  # the subclass of `Estimate` of the problem
    mask: BoolArray


class Correspondences(NamedTuple):
    """Candidates as a caller listed them: a graph, and the edge of every row (N,)."""

    graph: AssociationGraph
    edge_of_row: IndexArray

    def solve(self, function: Callable[..., Any], *arguments: object, options: Options) -> Solved:
        """Estimate a model with a function of this package."""
        estimate = function(self.graph, *arguments, options=options)
        return Solved(estimate, np.asarray(estimate.inliers[self.edge_of_row]))


def switch(
    parameters: str, further: str = "edges=None rank=None"
) -> Callable[[Callable[[Any], R]], Callable[..., R]]:
    """Give a function of a namespace of arguments the original's signature, and edges and rank.

    `parameters` are the names in their order, optional ones as ``name=default``; those after ``*``
    are keywords only. ``*args`` stands for all others, which the namespace has as args and kwargs.
    """
    kinds = inspect.Parameter
    kind: Any = kinds.POSITIONAL_OR_KEYWORD
    made: list[inspect.Parameter] = []
    for text in (*parameters.split(), "*", *further.split()):
        name, equals, value = text.partition("=")
        default = ast.literal_eval(value) if equals else kinds.empty
        if text.startswith("*"):
            kind = kinds.KEYWORD_ONLY
            made += [kinds("args", kinds.VAR_POSITIONAL)] if text == "*args" else []
        else:
            made.append(kinds(name, kind, default=default))
    if "*args" in parameters:
        made.append(kinds("kwargs", kinds.VAR_KEYWORD))
    signature = inspect.Signature(made)

    def decorate(function: Callable[[Any], R]) -> Callable[..., R]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> R:
            given = signature.bind(*args, **kwargs)
            given.apply_defaults()
            return function(types.SimpleNamespace(**given.arguments))

        call.__signature__ = signature  # type: ignore[attr-defined]
        if "edges" in further:
            call.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\n{_CANDIDATES}"
        return call

    return decorate


def correspondences(
    points0: object,
    points1: object,
    edges: object = None,
    rank: object = None,
    names: tuple[str, str] = ("points0", "points1"),
    dimensions: tuple[int, int] = (2, 2),
) -> Correspondences:
    """Make a graph of matched points, (N, 2), (N, 1, 2) or (1, N, 2), or with three coordinates.

    Without `edges`, ``points0[i]`` and ``points1[i]`` are row i, and equal points are one vertex.
    With `edges`, (E, 2) indices into the points, these are the rows, best first. Without `rank`,
    rows of `edges` are ranked by their place among the rows of their point in `points0`. The order
    of rows without `edges` means nothing, so that they have no rank.
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
    kept, edge_of_row = _distinct(rows)
    place = 1 + place_in_group(rows[kept, 0])
    if rank is not None:
        want = f"an array of {len(rows)} whole numbers, one a row, or None"
        place = int_array(rank, "rank", want, (len(rows),))[kept]
    # The first candidates of all points, then the second ones, and so on: every point has one among
    # the edges that the search sees.
    order = np.argsort(place, kind="stable")
    known = edges is not None or rank is not None or place.max(initial=1) == 1
    graph = AssociationGraph(first, second, rows[kept][order], rank=place[order] if known else None)
    return Correspondences(graph, np.argsort(order, kind="stable")[edge_of_row])


def rows_of(
    given: Any, names: tuple[str, str], dimensions: tuple[int, int] = (2, 2)
) -> Correspondences:
    """Make the graph of two arguments of a `switch`, with its edges and rank."""
    first, second = (getattr(given, name) for name in names)
    return correspondences(first, second, given.edges, given.rank, names, dimensions)


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
    """Return where each different row of a table (N, D) first occurs, and which one each row is."""
    _, start, group = np.unique(table, axis=0, return_index=True, return_inverse=True)
    place = np.argsort(np.argsort(start))
    return np.sort(start), place[group.reshape(-1)]


def make_options(names: Mapping[str, str], **values: Any) -> Options:
    """Make options of what a caller gave, None left out; `names` are the original's of our fields.

    A confidence of 1 becomes the number just below it. The minimum of the iterations is at least
    that of `Options`, and at most their maximum.
    """
    given = {name: value for name, value in values.items() if value is not None}
    if given.get("confidence") == 1:
        given["confidence"] = _NEARLY_ONE
    most = given.get("max_iterations", Options.max_iterations)
    least = given.get("min_iterations", _LEAST_ITERATIONS)
    # `Options` refuses everything but whole numbers below, under the original's name.
    if isinstance(most, int | np.integer) and isinstance(least, int | np.integer):
        given["min_iterations"] = int(max(1, min(max(least, _LEAST_ITERATIONS), most)))
    try:
        return Options(**given)
    except ValueError as error:
        field, _, rest = str(error).partition(" ")
        raise ValueError(f"{names.get(field, field)} {rest}") from error


def bound(
    form: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], needed: int = 0
) -> dict[str, Any]:
    """Bind arguments to the names of one form of a function; the first `needed` must be given."""
    names = form.split()
    given = dict(zip(names, args, strict=False))
    wrong = [name for name in kwargs if name not in names or name in given]
    given |= kwargs
    missing = [name for name in names[:needed] if name not in given]
    if wrong or missing or len(args) > len(names):
        got = f"{wrong[0]} as well" if wrong else f"no {missing[0]}" if missing else "more"
        raise ValueError(f"the arguments must be {', '.join(names)}, got {got}")
    return given


def given_camera(value: object, name: str) -> Camera:
    """Return a dict, poselib.Camera or pycolmap.Camera with exactly the numbers that were given.

    Its points follow the same pixel convention. A size that is not positive is unknown.
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

    Without a size, that is guessed from the principal point, as the centre, and the points (N, 2).
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

    estimate: Any


def installed(module: str) -> Any:
    """Return an optional package, None if it is not installed."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        return None


def original(module: str, extra: str, name: str) -> Any:
    """Return the original's object of a name that its switch does not define."""
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
