"""Every geometric problem under its name, and many of any kind at once."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from manymatch._validate import checked_method, describe, integer, refusal, suggest
from manymatch.estimate.absolute_pose import ABSOLUTE_POSE, estimate_absolute_pose
from manymatch.estimate.fundamental import FUNDAMENTAL, estimate_fundamental
from manymatch.estimate.homography import HOMOGRAPHY, estimate_homography
from manymatch.estimate.relative_pose import RELATIVE_POSE, estimate_relative_pose
from manymatch.estimate.rigid import (
    RIGID,
    SIMILARITY,
    estimate_rigid_transform,
    estimate_similarity,
)
from manymatch.graph import AssociationGraph, HasGraph
from manymatch.options import Options, checked_options, options_for_each

if TYPE_CHECKING:
    from typing import Unpack

    from manymatch._validate import Method
    from manymatch.estimate.prepare import PreparedPair
    from manymatch.estimate.result import Estimate, GeometricProblem
    from manymatch.options import OptionChanges

_FIELDS = tuple(f.name for f in dataclasses.fields(Options) if f.name != "threads")


@dataclasses.dataclass(frozen=True)
class Problem:
    """A geometric problem and the function that estimates one.

    Attributes
    ----------
    estimate : callable
        The public function.
    geometric : GeometricProblem
        What it runs.
    """

    estimate: Callable[..., Estimate]
    geometric: GeometricProblem[Estimate]

    @property
    def arguments(self) -> tuple[str, ...]:
        """Names of what the function needs after the graph, such as camera0 and camera1."""
        names = list(inspect.signature(self.estimate).parameters)
        return tuple(names[1 : names.index("method")])

    @property
    def keywords(self) -> tuple[str, ...]:
        """Names of what the function may be given besides method and options."""
        parameters = list(inspect.signature(self.estimate).parameters.values())
        names = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
        return tuple(names[names.index("proposals") :])


#: The problems by name, as in `Estimate.problem`.
PROBLEMS: dict[str, Problem] = {
    problem.geometric.name: problem
    for problem in (
        Problem(estimate_relative_pose, RELATIVE_POSE),
        Problem(estimate_homography, HOMOGRAPHY),
        Problem(estimate_fundamental, FUNDAMENTAL),
        Problem(estimate_absolute_pose, ABSOLUTE_POSE),
        Problem(estimate_rigid_transform, RIGID),
        Problem(estimate_similarity, SIMILARITY),
    )
}


def estimate_many(
    problems: Iterable[Sequence[Any]],
    method: Method = "auto",
    options: Options | Sequence[Options] | None = None,
    threads: int = 0,
    **settings: Unpack[OptionChanges],
) -> list[Estimate]:
    """Estimate many models of any kind at once, one pair per thread.

    Parameters
    ----------
    problems : iterable of tuples
        ``(kind, graph, ...)``: the name of a problem ("relative", "homography", ...) or the
        function that estimates one (`estimate_homography`), the graph, what the function takes
        after the graph (cameras, threshold), and, if wanted, a dict of further keywords of the
        function for this pair, such as ``proposals`` or ``threshold_px``. A tuple that begins with
        the graph is a relative pose.
    method : {"auto", "hcm-mcm", "hcm", "mcm", "cm"}
        As in `estimate_relative_pose`.
    options : Options or sequence of Options, optional
        One for all pairs, or one for each.
    threads : int
        Pairs worked on at the same time, 0 for all cores (`options.threads` is not used).
    **settings
        Other fields of `Options` by keyword, for all pairs.

    Returns
    -------
    list of Estimate
        In the order of the problems; each is what its function returns for that pair alone.

    Raises
    ------
    ValueError
        If an argument is not what it should be; the sentence begins with the number of the
        problem where it is about one.

    Examples
    --------
    >>> from manymatch_lab.datasets.synthetic import EASY, make_scene
    >>> scene = make_scene(EASY, seed=1)
    >>> pose, plane = estimate_many(
    ...     [
    ...         ("relative", scene.graph, scene.camera0, scene.camera1),
    ...         ("homography", scene.graph, {"threshold_px": 3.0}),
    ...     ]
    ... )
    >>> pose.problem, plane.problem
    ('relative', 'homography')
    """
    single = isinstance(problems, str | Mapping | AssociationGraph)
    if single or not isinstance(problems, Iterable):
        raise refusal("problems", "an iterable of tuples (kind, graph, ...)", problems)
    listed = [_listed(problem, f"problems[{i}]") for i, problem in enumerate(problems)]
    return _run(listed, method, options, threads, settings)


@dataclasses.dataclass(frozen=True)
class _Listed:
    """One of many problems: its name, graph and further arguments, and keywords of its own."""

    name: str
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]


def _listed(problem: object, where: str) -> _Listed:
    """Read the tuple of one problem; its first entry says of which kind it is."""
    if not isinstance(problem, tuple | list) or not problem:
        raise refusal(where, "a tuple (kind, graph, ...)", problem)
    kind = problem[0]
    if isinstance(kind, AssociationGraph | HasGraph):
        return _with_keywords("relative", problem, where)
    named = {entry.estimate: name for name, entry in PROBLEMS.items()}
    name = named.get(kind, "") if callable(kind) else kind
    if not isinstance(name, str) or name not in PROBLEMS:
        known = ", ".join(map(repr, PROBLEMS))
        raise ValueError(
            f"{where} must begin with one of {known}, the function of one or a graph, got "
            f"{describe(kind)}{suggest(kind, PROBLEMS)}"
        )
    return _with_keywords(name, problem[1:], where)


def _with_keywords(name: str, given: object, where: str) -> _Listed:
    """Tell the arguments of a problem from the keywords or the proposals that may follow."""
    needed = 1 + len(PROBLEMS[name].arguments)
    if not isinstance(given, tuple | list) or len(given) not in (needed, needed + 1):
        raise refusal(where, _wanted(name), given)
    keywords = given[needed] if len(given) > needed else None
    if keywords is None:
        keywords = {}
    elif not isinstance(keywords, Mapping):
        keywords = {"proposals": keywords}
    # A threshold in the unit of the points takes the place of that in pixels.
    in_pixels = "threshold" not in PROBLEMS[name].arguments
    fields = [field for field in _FIELDS if in_pixels or field != "threshold_px"]
    known = (*PROBLEMS[name].keywords, *fields)
    for keyword in keywords:
        if keyword not in known:
            hint = suggest(keyword, known)
            raise ValueError(
                f"{where} must have keywords of {PROBLEMS[name].estimate.__name__} or fields of "
                f"Options, got {keyword!r}{hint}"
            )
    return _Listed(name, tuple(given[:needed]), keywords)


def _wanted(name: str) -> str:
    arguments = ", ".join(("graph", *PROBLEMS[name].arguments))
    alone = f"({arguments})" if "," in arguments else f"({arguments},)"
    return f"{alone}, ({arguments}, proposals) or ({arguments}, keywords)"


def _run(
    listed: Sequence[_Listed],
    method: object,
    options: object,
    threads: object,
    settings: Mapping[str, object],
) -> list[Estimate]:
    """Run listed problems, all of a kind together, and return the results in their order."""
    chosen = checked_method(method)
    each = options_for_each(options, len(listed), settings)
    workers = integer(threads, "threads", 0)
    pairs = [
        _prepared(entry, own, i) for i, (entry, own) in enumerate(zip(listed, each, strict=True))
    ]
    results: list[Any] = [None] * len(listed)
    for name in dict.fromkeys(entry.name for entry in listed):
        places = [i for i, entry in enumerate(listed) if entry.name == name]
        run = PROBLEMS[name].geometric.run
        for i, result in zip(places, run([pairs[i] for i in places], chosen, workers), strict=True):
            results[i] = result
    return results


def _prepared(entry: _Listed, options: Options, number: int) -> PreparedPair:
    """Check one problem; an error begins with its number."""
    where = f"problems[{number}]: "
    changes = {name: value for name, value in entry.keywords.items() if name in _FIELDS}
    others = {name: value for name, value in entry.keywords.items() if name not in _FIELDS}
    proposals = others.pop("proposals", None)
    prepare = PROBLEMS[entry.name].geometric.prepare
    try:
        own = checked_options(options, changes)
        return prepare(*entry.arguments, own, proposals, where, **others)
    except ValueError as error:
        if str(error).startswith(where):
            raise
        raise ValueError(f"{where}{error}") from error
