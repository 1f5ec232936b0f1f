"""Lists of candidates from one side, from both, and mutual ones: the accuracy of "auto" on each.

    python benchmarks/accuracy/one_way_lists.py --seeds 5

SIFT of the images of five sets, some pairs of each; the candidates of `associate` with every
operator and K; at most 20,000 iterations, 1 px at working size. Macro average of AUC@5/10/20, and
the difference from mutual candidates with K = 5 at 10 degrees, with its 95 % interval over pairs.
Two minutes on one core with one seed. Writes ``one_way_lists.md``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.accuracy import protocol
from manymatch import AssociationGraph, associate, estimate_relative_pose, pose_error_deg
from manymatch.features.extractor import Extractor
from manymatch.geometry.camera import working_pixel
from manymatch.io.pairs import read_pairs
from manymatch_lab.evaluate.statistics import macro_difference, macro_spread
from manymatch_lab.evaluate.tables import Table

#: Every fourth pair of the first set, every third of the next, and so on.
SETS = {
    "strecha_fountain_herzjesu": 4,
    "tum_fr3_office": 3,
    "ngp_fox": 3,
    "middlebury_temple": 2,
    "kitti_vo": 1,
}
GRAPHS = (("oneway", 1), ("oneway", 5), ("oneway", 10), ("union", 5), ("mutual", 10), ("mutual", 5))


def errors_of(pair: Any, extractor: Extractor, seeds: int) -> dict[tuple[str, int], list[float]]:
    """Errors of one pair, one for each seed, by graph."""
    first, second = (extractor.extract(path) for path in (pair.path0, pair.path1))
    cameras = pair.camera0, pair.camera1
    scale = first.working_scale, second.working_scale
    options = protocol.OPTIONS.replace(threads=1).with_pixels(working_pixel(*cameras, *scale))
    found = {}
    for operator, k in GRAPHS:
        candidates = associate(first.descriptors, second.descriptors, k=k, operator=operator)
        graph = AssociationGraph(first.points, second.points, *candidates)
        poses = (
            estimate_relative_pose(
                graph, *cameras, options=options.replace(seed=seed), working_scale=scale
            ).pose
            for seed in range(seeds)
        )
        found[operator, k] = [pose_error_deg(pose, pair.R, pair.t) for pose in poses]
    return found


def main() -> None:
    given = protocol.arguments(__doc__.splitlines()[0]).parse_args()
    folder = protocol.reference_data("posed_pairs")
    if folder is None:
        return
    extractor = Extractor("classic")
    by_graph: dict[tuple[str, int], list[np.ndarray]] = {graph: [] for graph in GRAPHS}
    for name, every in SETS.items():
        pairs = read_pairs(folder / name / "pairs.txt", folder / name)[::every]
        rows = [errors_of(p, extractor, given.seeds) for p in track(pairs, name, transient=True)]
        for graph, sets in by_graph.items():
            sets.append(np.array([row[graph] for row in rows]).T)
    lines = []
    for (operator, k), sets in by_graph.items():
        auc = " / ".join(f"{value:.1f}" for value in macro_spread(sets).mean)
        spread = macro_difference(sets, by_graph["mutual", 5])
        interval = spread.interval[1]
        difference = f"{spread.mean[1]:+.1f} [{interval.low:.1f}, {interval.high:.1f}]"
        lines.append([f"{operator}, K = {k}", auc, difference])
    count = sum(errors.shape[1] for errors in by_graph["mutual", 5])
    header = ["candidates", "AUC@5 / 10 / 20", "difference from mutual, K = 5, at 10°"]
    given.out.mkdir(parents=True, exist_ok=True)
    protocol.write(given.out, "one_way_lists", [Table(f"{count} pairs", header, lines)])


if __name__ == "__main__":
    main()
