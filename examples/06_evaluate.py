"""Evaluate a matcher of your own: graphs with true poses as files, two estimators, a comparison.

Needs `pip install . ./lab`. Usage: 06_evaluate.py [folder of posed graphs]
"""

import sys
import tempfile
from pathlib import Path

from manymatch import Options
from manymatch.associate.candidates import Association
from manymatch_lab.datasets.synthetic import ORDERING, make_scenes
from manymatch_lab.evaluate.compare import compare_runs
from manymatch_lab.evaluate.inputs import open_graphs
from manymatch_lab.evaluate.posed_graph import PosedGraph, write_posed_graph
from manymatch_lab.evaluate.run import RunConfig, run_set


def write_graphs(folder):
    """Write candidates with cameras and true poses, here of synthetic scenes with repetition."""
    folder.mkdir(parents=True)
    for index, scene in enumerate(make_scenes(ORDERING, 12)):
        posed = PosedGraph(
            name0=f"{index}-left",
            name1=f"{index}-right",
            graph=scene.graph,  # candidates with ranks, from any matcher
            camera0=scene.camera0,
            camera1=scene.camera1,
            size0=scene.size,
            size1=scene.size,
            R=scene.pose.R,
            t=scene.pose.t,
            seed_index=index + 1,
        )
        write_posed_graph(folder / f"{index:03d}.npz", posed)
    return folder


with tempfile.TemporaryDirectory() as folder:
    place = Path(folder)
    # Folders are named <representation>/<set>.
    graphs = sys.argv[1] if len(sys.argv) > 1 else write_graphs(place / "mine" / "facades")
    (source,) = open_graphs([str(graphs)])
    options = Options(max_iterations=3_000)
    configs = {
        "two-stage": RunConfig("hcm-mcm", Association.uncapped(5), options, seeds=2),
        "consensus": RunConfig("cm", Association.uncapped(5), options, seeds=2),
    }
    run_set(source, configs, place / "out")
    comparison = compare_runs(place / "out" / "two-stage", place / "out" / "consensus")
    (facades,) = comparison.sets
    for name, spread in zip(configs, facades.auc, strict=True):
        print(f"{name}: AUC@5 {spread.interval[0]:.1f}")
    print(f"difference: {facades.difference.interval[0]:.1f}, pairs: {facades.counts()}")
