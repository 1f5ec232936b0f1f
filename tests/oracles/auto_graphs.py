"""Synthetic graphs with ranks for the tests of "auto", and the numbers that its sources name."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

import manymatch
from tests.oracles.geometry import angle_between
from tests.oracles.problems import (  # noqa: F401
    CENTRE,
    FOCAL,
    K,
    pixels,
    random_pose,
    two_view_points,
)

_CORE = Path(__file__).parents[2] / "cpp"
_FILES = (
    "include/manymatch/estimator.h",
    "include/manymatch/ransac/lo_ransac.h",
    "include/manymatch/ransac/problem.h",
    "include/manymatch/ransac/sampler.h",
    "include/manymatch/ransac/selection.h",
    "include/manymatch/score/priors.h",
    "include/manymatch/problems/relative_pose/problem.h",
    "src/problems/relative_pose/problem.cpp",
)


@cache
def constant(name, file=None):
    """A number of the core by its name in the sources, or in the one whose path ends so."""
    files = [_CORE / known for known in _FILES]
    if file is not None:
        files = [path for path in _CORE.rglob(Path(file).name) if path.as_posix().endswith(file)]
    found = []
    for path in files:
        text = path.read_text(encoding="utf-8")
        found += re.findall(rf"\bconstexpr [^;]*\b{name} = ([\d.e-]+)", text)
    (value,) = found
    return float(value)


_STEP, _WORD = 0x9E3779B97F4A7C15, 2**64 - 1


def _mix(x):
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _WORD
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _WORD
    return x ^ (x >> 31)


def random_stream(seed, iteration, purpose):
    """A function of n that gives the next whole number of a stream, below n."""
    state = _mix((seed + _STEP) & _WORD)
    state = _mix((state + iteration * _STEP) & _WORD)
    state = _mix((state + purpose) & _WORD)

    def below(n):
        nonlocal state
        state = (state + _STEP) & _WORD
        return _mix(state) * n >> 64

    return below


@dataclass(frozen=True)
class SyntheticGraph:
    """A graph in pixels, the true pose and which edges are true."""

    graph: manymatch.AssociationGraph
    R: np.ndarray
    t: np.ndarray
    true: np.ndarray


def synthetic_graph(
    seed, n=60, candidates=3, first=0.5, present=0.7, noise=0.2, depth=(3.0, 8.0), ranked=True
):
    """n keypoints a side, each with some candidates, best first.

    The true partner is a candidate with probability `present`, and then the first with probability
    `first`. Noise is in pixels.
    """
    rng = np.random.default_rng([seed, 8])
    R, t = random_pose(rng, 0.2)
    x0, x1 = two_view_points(rng, n, R, t, depth)
    rows = []
    for i in range(n):
        partners = rng.choice(n - 1, size=candidates, replace=False)
        partners += partners >= i  # all wrong
        if rng.random() < present:
            partners[0 if rng.random() < first else rng.integers(candidates)] = i
        rows += [(rank, rng.random(), i, int(j)) for rank, j in enumerate(partners, start=1)]
    rows.sort()
    edges = np.array([(i, j) for _, _, i, j in rows])
    rank = np.array([rank for rank, *_ in rows]) if ranked else None
    points = [pixels(x) + rng.normal(scale=noise, size=x.shape) for x in (x0, x1)]
    graph = manymatch.AssociationGraph(*points, edges, rank=rank)
    return SyntheticGraph(graph, R, t, edges[:, 0] == edges[:, 1])


def off_by(estimate, synthetic):
    """Angle in degrees between the estimate's rotation and the true one."""
    return np.degrees(angle_between(estimate.pose.R, synthetic.R))


def with_graph(graph, **changes):
    """The graph with some of its parts changed."""
    parts = {name: getattr(graph, name) for name in ("points0", "points1", "edges", "rank")}
    return manymatch.AssociationGraph(**{**parts, **changes})


def joined(*parts):
    """One graph of several scenes (graph, rank), one after another, with keypoints of their own."""
    points0, points1, edges, ranks = [], [], [], []
    shift = np.zeros(2, dtype=np.int64)
    for graph, rank in parts:
        points0.append(graph.points0)
        points1.append(graph.points1)
        edges.append(graph.edges + shift)
        ranks.append(np.full(graph.num_edges, rank))
        shift += [len(graph.points0), len(graph.points1)]
    return manymatch.AssociationGraph(
        np.concatenate(points0),
        np.concatenate(points1),
        np.concatenate(edges),
        rank=np.concatenate(ranks),
    )


def true_scene(seed, n, noise=0.2):
    """n keypoints a side, each with its true partner only."""
    return synthetic_graph(seed, n, candidates=1, first=1.0, present=1.0, noise=noise)


def wrong_scene(seed, n):
    """n keypoints a side, each with one wrong partner."""
    return synthetic_graph(seed, n, candidates=1, present=0.0)
