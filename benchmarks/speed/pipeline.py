"""Time the whole way from cached descriptors to a pose against the estimator alone.

    OPENBLAS_NUM_THREADS=1 python benchmarks/speed/pipeline.py [--iterations 100000] [--out DIR]

Synthetic pairs with descriptors: association (mutual 5-nearest neighbours, capped at 2048 edges),
GMS (all 40 settings), the first 1024 edges, then the two-stage estimator with a forced number of
iterations. The minimum of interleaved runs counts. NumPy's matrix product takes the threads it is
given: the environment variable makes it one, like the estimator's. The cost of the association is
that of the matrix product, so it depends on the length of a descriptor and the number of keypoints.
Writes ``pipeline.json`` and ``pipeline.md``.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import manymatch
from benchmarks.speed import report
from tests.golden.exact_graphs import CAMERA, make_graph

SIZE = (1024, 768)
# Keypoints of an image and length of a descriptor: SIFT, SuperPoint, ViT-S, ViT-B and ViT-L.
CASES = [(n, d) for n in (1024, 2048) for d in (128, 256, 384, 768, 1024)]
STAGES = ("associate", "gms", "estimate")


Pair = tuple[Any, Any, Any, Any]


def made_pair(keypoints: int, dimension: int) -> Pair:
    """Points (N, 2) and descriptors (N, D) of two views; half of the keypoints have a partner."""
    points = make_graph(5, keypoints, 1.0).graph
    rng = np.random.default_rng(6)
    desc0 = rng.standard_normal((keypoints, dimension))
    desc1 = desc0 + rng.standard_normal((keypoints, dimension))
    desc1[keypoints // 2 :] = rng.standard_normal((keypoints - keypoints // 2, dimension))
    return (
        points.points0,
        points.points1,
        np.ascontiguousarray(desc0, dtype=np.float32),
        np.ascontiguousarray(desc1, dtype=np.float32),
    )


def run(
    pair: tuple[Any, Any, Any, Any], options: manymatch.Options
) -> tuple[dict[str, float], int]:
    """Seconds of every stage, and the number of edges that reached the estimator."""
    points0, points1, desc0, desc1 = pair
    times = [time.perf_counter()]
    edges, similarity, rank = manymatch.associate(desc0, desc1, 5, "mutual", 2048)
    graph = manymatch.AssociationGraph(points0, points1, edges, similarity, rank)
    times.append(time.perf_counter())
    kept = manymatch.gms_filter(graph, SIZE, SIZE).mask
    graph = graph.filter(kept).head(1024)
    times.append(time.perf_counter())
    manymatch.estimate_relative_pose(graph, CAMERA, CAMERA, "hcm-mcm", options)
    times.append(time.perf_counter())
    return dict(zip(STAGES, np.diff(times).tolist(), strict=True)), len(graph)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=100_000, help="forced iterations")
    parser.add_argument("--repeats", type=int, default=5, help="interleaved repetitions")
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="folder of results")
    arguments = parser.parse_args()
    count = arguments.iterations
    options = manymatch.Options(min_iterations=count, max_iterations=count)
    pairs = {case: made_pair(*case) for case in CASES}
    best: dict[tuple[int, int], dict[str, float]] = {}
    edges: dict[tuple[int, int], int] = {}
    for _ in range(arguments.repeats):
        for case, pair in pairs.items():
            seconds, edges[case] = run(pair, options)
            old = best.get(case, seconds)
            best[case] = {stage: min(seconds[stage], old[stage]) for stage in STAGES}
    records = [
        {
            "keypoints": case[0],
            "dimension": case[1],
            "edges": edges[case],
            "milliseconds": {stage: 1e3 * s for stage, s in seconds.items()},
            "total_to_estimate": sum(seconds.values()) / seconds["estimate"],
        }
        for case, seconds in best.items()
    ]
    header = ["keypoints", "descriptor", "edges", *STAGES, "all / estimate"]
    rows = [
        [
            str(r["keypoints"]),
            str(r["dimension"]),
            str(r["edges"]),
            *(f"{r['milliseconds'][stage]:.1f}" for stage in STAGES),
            f"{r['total_to_estimate']:.2f}",
        ]
        for r in records
    ]
    caption = f"Milliseconds from descriptors to a pose, {count:,} iterations, one thread."
    report.show(Console(), caption.rstrip("."), header, rows)
    report.write_json(arguments.out / "pipeline.json", {"iterations": count, "cases": records})
    report.write_markdown(arguments.out / "pipeline.md", "Pipeline", {caption: (header, rows)})


if __name__ == "__main__":
    main()
