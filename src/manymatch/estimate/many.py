"""Every geometric problem under its name, and many of any kind at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

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
    >>> problems = [("fundamental", scene.graph), ("homography", scene.graph, {"seed": 3})]
    >>> [estimate.problem for estimate in estimate_many(problems)]
    ['fundamental', 'homography']
    """
    single = isinstance(problems, str | Mapping | AssociationGraph)
    if single or not isinstance(problems, Iterable):
        raise refusal("problems", "an iterable of tuples (kind, graph, ...)", problems)
    chosen, workers, listed = checked_method(method), integer(threads, "threads", 0), list(problems)
    each = options_for_each(options, len(listed), settings)
    prepared = [
        _prepared(given, own, f"problems[{i}]")
        for i, (given, own) in enumerate(zip(listed, each, strict=True))
    ]
    results: dict[int, Estimate] = {}
    for problem in PROBLEMS.values():
        places = [i for i, (own, _) in enumerate(prepared) if own is problem]
        found = problem.run([prepared[i][1] for i in places], chosen, workers)
        results |= zip(places, found, strict=True)
    return [results[i] for i in range(len(listed))]


def _prepared(
    given: object, options: Options, where: str
) -> tuple[GeometricProblem[Estimate], PreparedPair]:
    """Read and check the tuple of one problem, whose first entry says of which kind it is."""
    if not isinstance(given, tuple | list) or not given:
        raise refusal(where, "a tuple (kind, graph, ...)", given)
    kind, *rest = given
    if isinstance(kind, AssociationGraph | HasGraph):
        kind, rest = "relative", list(given)
    named = {problem.estimate: name for name, problem in PROBLEMS.items()}
    name = named.get(kind) if callable(kind) else kind
    if not isinstance(name, str) or name not in PROBLEMS:
        known = ", ".join(map(repr, PROBLEMS))
        raise ValueError(
            f"{where} must begin with one of {known}, the function of one or a graph, got "
            f"{describe(kind)}{suggest(kind, PROBLEMS)}"
        )
    problem = PROBLEMS[name]
    needed = 1 + len(problem.arguments)
    if len(rest) not in (needed, needed + 1):
        names = ", ".join(("graph", *problem.arguments))
        alone = f"({names})" if "," in names else f"({names},)"
        raise refusal(where, f"{alone}, ({names}, proposals) or ({names}, keywords)", tuple(rest))
    keywords = rest.pop() if len(rest) > needed else None
    if not isinstance(keywords, Mapping):
        keywords = {} if keywords is None else {"proposals": keywords}
    # A threshold in the unit of the points takes the place of that in pixels.
    unused = ("threads", "threshold_px" if "threshold" in problem.arguments else "")
    fields = [field.name for field in dataclasses.fields(Options) if field.name not in unused]
    changes = {name: value for name, value in keywords.items() if name in fields}
    others = {name: value for name, value in keywords.items() if name not in fields}
    for keyword in others:
        if keyword not in problem.keywords:
            raise ValueError(
                f"{where} must have keywords of {problem.estimate.__name__} or fields of Options, "
                f"got {keyword!r}{suggest(keyword, (*problem.keywords, *fields))}"
            )
    proposals = others.pop("proposals", None)
    try:
        own = checked_options(options, changes)
        return problem, problem.prepare(*rest, own, proposals, f"{where}: ", **others)
    except ValueError as error:
        if str(error).startswith(where):
            raise
        raise ValueError(f"{where}: {error}") from error
