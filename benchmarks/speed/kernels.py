"""Microseconds per HCM evaluation, MCM evaluation and five-point solve."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from manymatch import Options, _core
from manymatch.baselines import require

if TYPE_CHECKING:
    from benchmarks.speed.problems import Problem

SAMPLES = 20_000
POSELIB_SAMPLES = 3_000
GOOD_POSES = 64


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
    scoring = (*problem.core_arguments(), options.q, options.delta)
    hypotheses = {"typical": (R, t), "good": good_poses(problem)}
    best: dict[str, float] = {}

    def keep(name: str, seconds: float) -> None:
        best[name] = min(1e6 * seconds, best.get(name, np.inf))

    poselib = require("poselib", "poselib")
    for _ in range(repeats):
        for kind, (rotations, translations) in hypotheses.items():
            rounds = max(1, 4000 // len(rotations))
            arguments = (*scoring, rotations, translations, rounds)
            keep(f"HCM evaluation, {kind} hypothesis", _core.benchmark_hcm(*arguments))
            keep(f"MCM evaluation, {kind} hypothesis", _core.benchmark_mcm(*arguments))
        start = time.perf_counter()
        _core.five_point(b0, b1)
        keep("five-point, sample to poses", (time.perf_counter() - start) / len(b0))
        start = time.perf_counter()
        for first, second in zip(b0[:POSELIB_SAMPLES], b1[:POSELIB_SAMPLES], strict=True):
            poselib.relpose_5pt(first, second)
        elapsed = time.perf_counter() - start
        keep("PoseLib relpose_5pt, called from Python", elapsed / POSELIB_SAMPLES)
    return best
