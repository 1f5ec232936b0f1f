"""Whole estimators with a forced number of iterations, timed side by side in one process."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import manymatch
from manymatch import pose_error_deg
from manymatch_lab.evaluate.estimators import (
    BaselineResult,
    estimate_with_opencv,
    estimate_with_poselib,
    estimate_with_pycolmap,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.speed.problems import Problem

METHODS = ("hcm-mcm", "hcm", "mcm", "cm")
POSELIB = "PoseLib CM"
# Repetitions of what takes seconds; its minimum settles early.
SLOW_REPEATS = 2


@dataclass(frozen=True)
class Run:
    """One run: seconds, the pose, and seconds by stage where the estimator tells."""

    seconds: float
    pose: manymatch.RelativePose | None
    stages: dict[str, float] | None = None


@dataclass
class Contestant:
    """An estimator and the fastest run of it on each graph."""

    name: str
    threads: int
    slow: bool
    run: Callable[[Problem], Run]

    def __post_init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.stages: dict[str, dict[str, float]] = {}
        self.error_deg: dict[str, float] = {}

    def time(self, problem: Problem) -> None:
        """Run once and keep the time if it is the best so far."""
        run = self.run(problem)
        if run.seconds < self.seconds.get(problem.name, float("inf")):
            self.seconds[problem.name] = run.seconds
            if run.stages is not None:
                self.stages[problem.name] = run.stages
        self.error_deg[problem.name] = pose_error_deg(run.pose, problem.R, problem.t)


def ours(method: str, options: manymatch.Options) -> Contestant:
    """One of our methods; the clock covers the whole Python call."""

    def run(problem: Problem) -> Run:
        start = time.perf_counter()
        estimate = manymatch.estimate_relative_pose(
            problem.graph, problem.camera0, problem.camera1, method, options
        )
        return Run(time.perf_counter() - start, estimate.pose, estimate.timing)

    return Contestant(method, options.threads, slow=False, run=run)


def theirs(
    name: str,
    estimate: Callable[..., BaselineResult],
    options: manymatch.Options,
    slow: bool = False,
    **more: str,
) -> Contestant:
    """Another estimator; the clock covers its call only, without the conversion of the input."""

    def run(problem: Problem) -> Run:
        found = estimate(problem.graph, problem.camera0, problem.camera1, options, **more)
        return Run(found.seconds, found.pose)

    return Contestant(name, threads=1, slow=slow, run=run)


def others(options: manymatch.Options) -> list[Contestant]:
    """List what we are compared with, all on one thread."""
    return [
        theirs(POSELIB, estimate_with_poselib, options),
        theirs("OpenCV USAC MAGSAC++", estimate_with_opencv, options, slow=True, variant="magsac"),
        theirs(
            "OpenCV USAC accurate", estimate_with_opencv, options, slow=True, variant="accurate"
        ),
        theirs("pycolmap essential matrix", estimate_with_pycolmap, options, slow=True),
    ]


def contestants(iterations: int) -> list[Contestant]:
    """Everything that is compared; on one core, all threads are one thread."""
    forced = manymatch.Options(min_iterations=iterations, max_iterations=iterations)
    cores = os.cpu_count() or 1
    counts = (1, cores) if cores > 1 else (1,)
    return [
        *(ours(method, forced.replace(threads=n)) for n in counts for method in METHODS),
        *others(forced),
    ]


def race(
    entries: list[Contestant],
    problems: list[Problem],
    repeats: int,
    advance: Callable[[str], None],
) -> None:
    """Run everything in turns, so that a slow moment of the machine hits all alike."""
    for repeat in range(repeats):
        for problem in problems:
            for entry in entries:
                if repeat < SLOW_REPEATS or not entry.slow:
                    entry.time(problem)
                advance(f"{problem.name}: {entry.name}")
