"""Microseconds per HCM evaluation, MCM evaluation and five-point solve.

The plain HCM evaluation is the definition written down in float64 (``cpp/bench/plain_hcm.cpp``),
compiled with the flags of our kernels. PoseLib's solver can only be called from Python, one problem
at a time; what the call itself costs is measured with its two-point solver, which takes the same
two arrays and computes next to nothing.
"""

from __future__ import annotations

import importlib.util
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.speed import build
from manymatch import Options, _core
from manymatch.io.files import require

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.speed.problems import Problem

SAMPLES = 20_000
POSELIB_SAMPLES = 3_000
GOOD_POSES = 64
CALLS = 5
HCM = "HCM evaluation, {} hypothesis"
PLAIN_HCM = "plain HCM evaluation in float64, {} hypothesis"
MCM = "MCM evaluation, {} hypothesis"
FIVE_POINT = "five-point, sample to poses"
POSELIB = "PoseLib relpose_5pt, called from Python"
POSELIB_CALL = "of that the call (its two-point solver, same arrays)"


def sample_bearings(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Rays (n, 5, 3) of minimal samples, as the search sees them."""
    x0, x1, edges, _ = problem.core_arguments()
    rows = _core.sample(edges, None, 0, SAMPLES, uniform_edges=False)
    ends = edges[rows[(rows >= 0).all(axis=1)]]
    one = np.ones((len(ends), 5, 1))
    return (
        np.concatenate([x0[ends[..., 0]], one], axis=2),
        np.concatenate([x1[ends[..., 1]], one], axis=2),
    )


def good_poses(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Poses (n, 3, 3), (n, 3) within a fraction of a degree of the truth."""
    rng = np.random.default_rng(0)
    moved = [
        _core.perturb(problem.R, problem.t, rng.normal(scale=2e-4, size=5))
        for _ in range(GOOD_POSES)
    ]
    return np.array([R for R, _ in moved]), np.array([t for _, t in moved])


def time_kernels(problem: Problem, repeats: int) -> dict[str, float]:
    """Microseconds of every kernel on one graph, the minimum over repetitions."""
    options = Options()
    b0, b1 = sample_bearings(problem)
    _, R, t = _core.five_point(b0, b1)
    arguments = problem.core_arguments()
    prior = (options.q, options.delta)
    hypotheses = {"typical": (R, t), "good": good_poses(problem)}
    best: dict[str, float] = {}

    def keep(name: str, seconds: float) -> None:
        best[name] = min(1e6 * seconds, best.get(name, np.inf))

    poselib = require("poselib", "the comparison of kernels", "baselines")
    plain_hcm = load_bench_module().plain_hcm
    for _ in range(repeats):
        for kind, poses in hypotheses.items():
            rounds = max(1, 4000 // len(poses[0]))
            for name, mechanism in ((HCM, "hcm"), (MCM, "mcm")):
                keep(name.format(kind), time_scores(arguments, prior, poses, rounds, mechanism))
            plain = plain_hcm(*arguments, *prior, *poses, rounds)[0]
            keep(PLAIN_HCM.format(kind), plain)
        start = time.perf_counter()
        _core.five_point(b0, b1)
        keep(FIVE_POINT, (time.perf_counter() - start) / len(b0))
        keep(POSELIB, time_calls(poselib.relpose_5pt, b0, b1))
        keep(POSELIB_CALL, time_calls(poselib.relpose_upright_planar_2pt, b0, b1))
    return best


def time_scores(
    arguments: tuple[Any, ...],
    prior: tuple[float, float],
    poses: tuple[np.ndarray, np.ndarray],
    rounds: int,
    mechanism: str,
) -> float:
    """Seconds of an evaluation as in the search: screen in float32, then score."""
    R, t = np.tile(poses[0], (rounds, 1, 1)), np.tile(poses[1], (rounds, 1))

    def seconds(count: int) -> float:
        start = time.perf_counter()
        _core.screened_scores(*arguments, *prior, R[:count], t[:count], mechanism)
        return time.perf_counter() - start

    # A call without poses costs what is prepared once in a search.
    whole, preparation = (min(seconds(count) for _ in range(CALLS)) for count in (len(R), 0))
    return (whole - preparation) / len(R)


def load_bench_module() -> Any:
    """Build and import ``_bench``, the compiled module that only the benchmarks have."""
    path = build.bench_module()
    spec = importlib.util.spec_from_file_location("_bench", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def time_calls(solver: Callable[[Any, Any], object], b0: np.ndarray, b1: np.ndarray) -> float:
    """Seconds of a call of one of PoseLib's solvers, one sample at a time."""
    start = time.perf_counter()
    for first, second in zip(b0[:POSELIB_SAMPLES], b1[:POSELIB_SAMPLES], strict=True):
        solver(first, second)
    return (time.perf_counter() - start) / POSELIB_SAMPLES


def ratios(best: dict[str, float]) -> dict[str, float]:
    """Our kernels relative to what they are compared with."""
    ours = best[FIVE_POINT]
    return {
        "HCM evaluation to the plain one, typical": best[HCM.format("typical")]
        / best[PLAIN_HCM.format("typical")],
        "HCM evaluation to the plain one, good": best[HCM.format("good")]
        / best[PLAIN_HCM.format("good")],
        "five-point to PoseLib, its Python call included": ours / best[POSELIB],
        "five-point to PoseLib, its Python call taken off": ours
        / (best[POSELIB] - best[POSELIB_CALL]),
    }
