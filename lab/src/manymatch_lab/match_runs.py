"""Matches of every pair of a set with their probabilities and what is true of them, resumable."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from manymatch.batch.outputs import Reason, count_reasons
from manymatch.batch.parts import RunProgress, deliver, error_sentence, num_pairs, num_workers
from manymatch.estimate.relative_pose import estimate_relative_pose
from manymatch.geometry.pose import pose_error_deg
from manymatch_lab.checks import (
    BoolArray,
    FloatArray,
    IndexArray,
    int_array,
)
from manymatch_lab.evaluate.inputs import GraphReader
from manymatch_lab.evaluate.posed_graph import PosedGraph
from manymatch_lab.evaluate.records import Records, run_pairs
from manymatch_lab.evaluate.run import RunConfig, run_header

# As in the estimator: least depth in baselines, and least squared slope of an epipolar line.
_MIN_DEPTH, _MIN_SLOPE = 0.01, 2.2e-16
# Digits that are kept: far below anything that is looked at.
_PROBABILITY_DIGITS = 6
_PIXEL_DIGITS = 4


@dataclasses.dataclass(frozen=True, eq=False)
class SetMatches:
    """Matches of all pairs and repetitions of a set, one entry a match.

    `pairs` were run, of which some could not be read (`not_run`); `unmatched` estimates have no
    match. By match: the index of its pair, the pose error of its estimate in degrees, its
    probability, its Sampson distance under the true pose in pixels at working size (infinity behind
    a camera), and whether it is known to be true (None where that is not known).
    """

    pairs: int
    not_run: list[Reason]
    unmatched: int
    pair: IndexArray
    error_deg: FloatArray
    probability: FloatArray
    distance_px: FloatArray
    known: BoolArray | None

    def __len__(self) -> int:
        return len(self.pair)

    @property
    def unreadable(self) -> int:
        """Number of pairs that could not be read."""
        return sum(reason.count for reason in self.not_run)


def run_matches(
    source: GraphReader,
    config: RunConfig,
    folder: Path,
    *,
    workers: int = 0,
    limit: int | None = None,
    progress: Callable[[RunProgress], object] | None = None,
    retry_errors: bool = False,
) -> SetMatches:
    """Estimate every pair of a set and keep its matches, or resume where an earlier run ended.

    The estimator must give probabilities. The other arguments, refusals and the end at Ctrl-C are
    those of `run_set`.
    """
    total = num_pairs(len(source), limit)
    count = num_workers(workers)
    threads = 1 if count > 1 else 0
    header = {**run_header(source, config), "kept": "matches"}
    kept = Records(folder, header)
    outcome = run_pairs(
        {"matches": kept},
        total,
        lambda index, _: {"matches": _work(source, config, index, threads)},
        order=source.order(),
        repeat=lambda record: retry_errors and "error" in record,
        workers=count,
        progress=progress,
        label=f"{source.representation}, {source.title}",
    )
    records = kept.first(total)
    matches = _collected(records)
    deliver(matches, outcome, len(records), total)
    return matches


def _work(source: GraphReader, config: RunConfig, index: int, threads: int) -> dict[str, Any]:
    """Run one pair."""
    try:
        posed = source[index]
    except Exception as error:
        # No fault of the pair: a full disk, a missing package. Unreadable images are values.
        if isinstance(error, OSError | ImportError) and not isinstance(error, ValueError):
            raise
        # One pair must not end a run of thousands.
        return {"index": index, "error": error_sentence(error), "trials": []}
    graph = config.association.apply(posed.graph, **posed.sizes)
    trials = []
    for repetition in range(config.seeds):
        seed = posed.seed_index + repetition
        options = config.options.with_pixels(posed.pixels).replace(seed=seed, threads=threads)
        estimate = estimate_relative_pose(
            graph,
            posed.camera0,
            posed.camera1,
            config.estimator,  # type: ignore[arg-type]
            options,
            working_scale=posed.working_scale,
        )
        if estimate.match_probability is None:
            raise ValueError(
                f"estimator must give probabilities of its matches, got {config.estimator!r}"
            )
        trials.append(
            {
                "seed": options.seed,
                "error_deg": pose_error_deg(estimate.pose, posed.R, posed.t),
                "probability": estimate.match_probability.round(_PROBABILITY_DIGITS).tolist(),
                **_truth(posed, estimate.matches),
            }
        )
    return {"index": index, "name0": posed.name0, "name1": posed.name1, "trials": trials}


def _truth(posed: PosedGraph, matches: IndexArray) -> dict[str, Any]:
    """Say what is true of matches in JSON types, where infinity is None."""
    distance = epipolar_distance(posed, matches).round(_PIXEL_DIGITS).tolist()
    known = known_truth(posed, matches)
    return {
        "distance_px": [value if np.isfinite(value) else None for value in distance],
        "known": None if known is None else known.astype(int).tolist(),
    }


def _collected(records: Sequence[dict[str, Any]]) -> SetMatches:
    """Put the matches of all records one after the other."""
    trials = [(record["index"], trial) for record in records for trial in record["trials"]]
    sizes = [len(trial["probability"]) for _, trial in trials]

    def joined(name: str, kind: type) -> Any:
        return np.array([value for _, trial in trials for value in trial[name]], dtype=kind)

    distance = joined("distance_px", np.float64)
    return SetMatches(
        pairs=len(records),
        not_run=count_reasons(r["error"] for r in records if "error" in r),
        unmatched=sizes.count(0),
        pair=np.repeat(np.array([index for index, _ in trials], dtype=np.int64), sizes),
        error_deg=np.repeat(np.array([trial["error_deg"] for _, trial in trials]), sizes),
        probability=joined("probability", np.float64),
        # None became NaN.
        distance_px=np.where(np.isnan(distance), np.inf, distance),
        known=(
            joined("known", np.bool_)
            if trials and all(trial["known"] is not None for _, trial in trials)
            else None
        ),
    )


def known_truth(posed: PosedGraph, matches: ArrayLike) -> BoolArray | None:
    """Look up which of (M, 2) matches are true edges of the pair, (M,) bool.

    A match that is no edge of the pair is not true. None if the true edges are unknown.
    """
    pairs = _matches(posed, matches)
    if posed.true_edges is None:
        return None
    graph = posed.graph
    # One number a pair of keypoints; there is no edge without a keypoint in image 1.
    step = len(graph.points1)
    true = graph.edges[posed.true_edges]
    return np.isin(pairs[:, 0] * step + pairs[:, 1], true[:, 0] * step + true[:, 1])


def epipolar_distance(posed: PosedGraph, matches: ArrayLike) -> FloatArray:
    """Sampson distance (M,) of (M, 2) matches under the true pose, in pixels at working size.

    Carried from the normalised plane as the estimator carries its threshold; infinite where a depth
    is not positive or there is no distance.
    """
    pairs = _matches(posed, matches)
    if not len(pairs):
        return np.zeros(0)
    x0, x1 = (
        np.column_stack([camera.unproject(points[ends]), np.ones(len(ends))])
        for camera, points, ends in (
            (posed.camera0, posed.graph.points0, pairs[:, 0]),
            (posed.camera1, posed.graph.points1, pairs[:, 1]),
        )
    )
    pose = posed.pose
    with np.errstate(all="ignore"):
        lines1, lines0 = x0 @ pose.essential().T, x1 @ pose.essential()
        slope = np.square(lines0[:, :2]).sum(axis=1) + np.square(lines1[:, :2]).sum(axis=1)
        squared = np.square((x1 * lines1).sum(axis=1)) / slope
        # Depths along unit rays, in baselines, times the squared sine of the angle between them.
        b0, b1 = ((x / np.linalg.norm(x, axis=1, keepdims=True)) for x in (x0 @ pose.R.T, x1))
        cosine, p, s = -(b0 * b1).sum(axis=1), -b0 @ pose.t, b1 @ pose.t
        floor = _MIN_DEPTH * (1.0 - cosine**2)
        in_front = (p - cosine * s > floor) & (s - cosine * p > floor)
        pixel = 0.5 * (1.0 / posed.camera0.focal + 1.0 / posed.camera1.focal) * posed.pixels
        # The distance of a point at an epipole is not defined.
        defined = in_front & (slope > _MIN_SLOPE) & np.isfinite(squared)
        return np.where(defined, np.sqrt(squared) / pixel, np.inf)


def _matches(posed: PosedGraph, matches: ArrayLike) -> IndexArray:
    pairs = int_array(matches, "matches", "whole numbers of shape (M, 2)", (None, 2))
    for side, points in enumerate((posed.graph.points0, posed.graph.points1)):
        if np.any((pairs[:, side] < 0) | (pairs[:, side] >= len(points))):
            raise ValueError(f"matches must hold keypoints of image {side}, got one that is none")
    return pairs
