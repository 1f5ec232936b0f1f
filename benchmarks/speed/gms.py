"""Time the GMS filter, all 40 scale and rotation settings, against the number of edges.

    python benchmarks/speed/gms.py [--out out/bench]

Takes graphs of real images where the reference data is present, and synthetic scenes where it is
not or where no real graph has as many edges. One thread, CPU time, the minimum of interleaved runs,
and of these the median over the graphs. OpenCV's matchGMS, where it is installed, does another job:
it takes every edge as a one-to-one match of its own. Writes ``gms.json`` and ``gms.md``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import manymatch
from benchmarks.speed import report
from manymatch_lab.datasets import synthetic
from tests.support.data_folder import data_folder

if TYPE_CHECKING:
    from collections.abc import Callable

NUM_EDGES = (256, 512, 1024, 2048, 4096, 8192)
SETS = ("strecha_fountain_herzjesu", "tum_fr3_office")
OURS, OPENCV = "gms_filter", "OpenCV matchGMS (one-to-one)"
Size = tuple[int, int]
Case = tuple[manymatch.AssociationGraph, Size, Size]


def real_cases() -> list[Case]:
    """Take two pairs of each representation and set, where the reference data is present."""
    data = data_folder()
    folders = [data / "graphs" / name for name in ("sift", "superpoint", "effnet")] if data else []
    return [
        from_file(path)
        for folder in folders
        for name in SETS
        for path in sorted((folder / name).glob("*.npz"))[:2]
    ]


def synthetic_cases() -> list[Case]:
    """Make three scenes of more edges than the largest number that is timed."""
    config = synthetic.SceneConfig(num_points=1900, num_outliers=300, family_size=5)
    scenes = [synthetic.make_scene(config, seed) for seed in range(3)]
    return [(s.graph, camera_size(s.camera0), camera_size(s.camera1)) for s in scenes]


def from_file(path: Path) -> Case:
    """One graph of the reference data."""
    with np.load(path) as file:
        graph = manymatch.AssociationGraph(file["points0"], file["points1"], file["edges"])
        sizes = [(int(file[key][0]), int(file[key][1])) for key in ("size0", "size1")]
    return graph, sizes[0], sizes[1]


def camera_size(camera: manymatch.Camera) -> Size:
    """Width and height of a camera that has them."""
    assert camera.width is not None
    assert camera.height is not None
    return camera.width, camera.height


def ours(case: Case) -> Callable[[], object]:
    """Make the call of our filter."""
    return lambda: manymatch.gms_filter(*case)


def opencv(case: Case) -> Callable[[], object] | None:
    """Make the call of OpenCV's filter on the same edges, or None if it has no such filter."""
    try:
        import cv2
    except ImportError:
        return None
    match_gms = getattr(getattr(cv2, "xfeatures2d", None), "matchGMS", None)
    if match_gms is None:
        return None
    graph, size0, size1 = case
    keypoints0, keypoints1 = (
        [cv2.KeyPoint(float(x), float(y), 1.0) for x, y in points]
        for points in (graph.points0, graph.points1)
    )
    matches = [cv2.DMatch(int(i), int(j), 0.0) for i, j in graph.edges]
    options = {"withRotation": True, "withScale": True, "thresholdFactor": 4.0}
    return lambda: match_gms(size0, size1, keypoints0, keypoints1, matches, **options)


def milliseconds(calls: list[Callable[[], object]], repeats: int) -> float:
    """CPU time: minimum over interleaved repetitions, median over the calls."""
    best = np.full(len(calls), np.inf)
    for _ in range(repeats):
        for k, call in enumerate(calls):
            start = time.process_time()
            call()
            best[k] = min(best[k], time.process_time() - start)
    return 1e3 * float(np.median(best))


def cut(cases: list[Case], count: int) -> list[Case]:
    """Take the first edges of the graphs that are large enough."""
    return [(graph.head(count), *sizes) for graph, *sizes in cases if len(graph) >= count]


def time_all(repeats: int) -> list[dict[str, Any]]:
    """One record per number of edges."""
    real, synthetic = real_cases(), synthetic_cases()
    records = []
    for count in NUM_EDGES:
        usable = cut(real, count)
        enough = usable or cut(synthetic, count)
        record = {
            "edges": count,
            "graphs": f"{len(enough)} {'real' if usable else 'synthetic'}",
            OURS: milliseconds([ours(case) for case in enough], repeats),
        }
        theirs = [call for call in map(opencv, enough) if call is not None]
        if theirs:
            record[OPENCV] = milliseconds(theirs, min(repeats, 3))
        records.append(record)
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20, help="interleaved repetitions")
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="folder of results")
    arguments = parser.parse_args()
    records = time_all(arguments.repeats)
    methods = [name for name in (OURS, OPENCV) if name in records[0]]
    header = ["edges", "graphs", *methods]
    rows = [
        [str(r["edges"]), r["graphs"], *(f"{r[name]:.2f}" for name in methods)] for r in records
    ]
    title = "milliseconds for all 40 settings of GMS, one thread, CPU time"
    report.show(Console(), title, header, rows)
    about = report.environment()
    arguments.out.mkdir(parents=True, exist_ok=True)
    content = {"environment": about, "milliseconds": records}
    (arguments.out / "gms.json").write_text(json.dumps(content, indent=1))
    machine = ", ".join(f"{key} {value}" for key, value in about.items())
    text = f"# GMS\n\n{machine}.\n\n{title[0].upper()}{title[1:]}.\n\n"
    (arguments.out / "gms.md").write_text(text + report.markdown(header, rows) + "\n")


if __name__ == "__main__":
    main()
