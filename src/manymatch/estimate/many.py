"""Every geometric problem under its name, and many of any kind at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from manymatch._validate import checked_method, describe, integer, refusal, suggest
from manymatch.estimate.absolute_pose import ABSOLUTE_POSE
from manymatch.estimate.fundamental import FUNDAMENTAL
from manymatch.estimate.homography import HOMOGRAPHY
from manymatch.estimate.relative_pose import RELATIVE_POSE
from manymatch.estimate.rigid import RIGID, SIMILARITY
from manymatch.graph import AssociationGraph, HasGraph
from manymatch.options import Options, checked_options, options_for_each

if TYPE_CHECKING:
    from manymatch._validate import Method
    from manymatch.estimate.problem import GeometricProblem, PreparedPair
    from manymatch.estimate.result import Estimate
    from manymatch.options import OptionChanges

_FIELDS = tuple(f.name for f in dataclasses.fields(Options) if f.name != "threads")


#: The problems by name, as in `Estimate.problem`.
PROBLEMS: dict[str, GeometricProblem[Estimate]] = {
    problem.name: problem
    for problem in (RELATIVE_POSE, HOMOGRAPHY, FUNDAMENTAL, ABSOLUTE_POSE, RIGID, SIMILARITY)
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
        One for all pairs, or one for each; `**settings` changes fields of all of them.
    threads : int
        Pairs worked on at the same time, 0 for all cores (`options.threads` is not used).

    Returns
    -------
    list of Estimate
        In the order of the problems; each is what its function returns for that pair alone. The
        `ValueError` of a bad problem begins with its number.

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
    chosen = checked_method(method)
    each = options_for_each(options, len(listed), settings)
    workers = integer(threads, "threads", 0)
    pairs = [
        _prepared(entry, own, f"problems[{i}]: ")
        for i, (entry, own) in enumerate(zip(listed, each, strict=True))
    ]
    results: list[Any] = [None] * len(listed)
    for name, problem in PROBLEMS.items():
        places = [i for i, entry in enumerate(listed) if entry.problem.name == name]
        found = problem.run([pairs[i] for i in places], chosen, workers) if places else []
        for i, result in zip(places, found, strict=True):
            results[i] = result
    return results


class _Listed(NamedTuple):
    """One of many problems: its row, graph and further arguments, and keywords of its own."""

    problem: GeometricProblem[Estimate]
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]


def _listed(given: object, where: str) -> _Listed:
    """Read the tuple of one problem; its first entry says of which kind it is."""
    if not isinstance(given, tuple | list) or not given:
        raise refusal(where, "a tuple (kind, graph, ...)", given)
    kind, *rest = given
    if isinstance(kind, AssociationGraph | HasGraph):
        return _with_keywords(RELATIVE_POSE, tuple(given), where)
    named = {problem.estimate: name for name, problem in PROBLEMS.items()}
    name = named.get(kind, "") if callable(kind) else kind
    if not isinstance(name, str) or name not in PROBLEMS:
        known = ", ".join(map(repr, PROBLEMS))
        raise ValueError(
            f"{where} must begin with one of {known}, the function of one or a graph, got "
            f"{describe(kind)}{suggest(kind, PROBLEMS)}"
        )
    return _with_keywords(PROBLEMS[name], tuple(rest), where)


def _with_keywords(
    problem: GeometricProblem[Estimate], given: tuple[Any, ...], where: str
) -> _Listed:
    """Tell the arguments of a problem from the keywords or the proposals that may follow."""
    needed = 1 + len(problem.arguments)
    if len(given) not in (needed, needed + 1):
        names = ", ".join(("graph", *problem.arguments))
        alone = f"({names})" if "," in names else f"({names},)"
        raise refusal(where, f"{alone}, ({names}, proposals) or ({names}, keywords)", given)
    keywords = given[needed] if len(given) > needed else {}
    if not isinstance(keywords, Mapping):
        keywords = {} if keywords is None else {"proposals": keywords}
    # A threshold in the unit of the points takes the place of that in pixels.
    in_pixels = "threshold" not in problem.arguments
    fields = [field for field in _FIELDS if in_pixels or field != "threshold_px"]
    known = (*problem.keywords, *fields)
    for keyword in keywords:
        if keyword not in known:
            raise ValueError(
                f"{where} must have keywords of {problem.estimate.__name__} or fields of Options, "
                f"got {keyword!r}{suggest(keyword, known)}"
            )
    return _Listed(problem, given[:needed], keywords)


def _prepared(entry: _Listed, options: Options, where: str) -> PreparedPair:
    """Check one problem; an error begins with its number."""
    changes = {name: value for name, value in entry.keywords.items() if name in _FIELDS}
    others = {name: value for name, value in entry.keywords.items() if name not in _FIELDS}
    proposals = others.pop("proposals", None)
    try:
        own = checked_options(options, changes)
        return entry.problem.prepare(*entry.arguments, own, proposals, where, **others)
    except ValueError as error:
        if str(error).startswith(where):
            raise
        raise ValueError(f"{where}{error}") from error
