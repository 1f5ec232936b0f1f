"""Pose AUC on the graphs of real images, beside the reference results.

    python benchmarks/accuracy/real_graphs.py --out out/accuracy

For every representation (sift, superpoint, effnet, sam2) and set, 1,000 to 20,000 iterations, 1 px,
five seeds: the methods on the first 1024 edges, with guidance, on what the GMS filter leaves of the
first 2048, and "auto" on the first 2048. A run that was interrupted resumes. Writes
``real_graphs.md``.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.accuracy import protocol
from manymatch.associate.candidates import Association
from manymatch_lab.evaluate.inputs import open_graphs
from manymatch_lab.evaluate.run import RunConfig

REPRESENTATIONS = ("sift", "superpoint", "effnet", "sam2")
# The first 1024 edges, unfiltered.
FIRST = Association(max_edges=1024, gms=False, keep=None)
GUIDED = {share: protocol.OPTIONS.replace(guidance=share) for share in (0.5, 1.0)}
CONFIGS = {
    "PoseLib CM, rank-one edges": RunConfig("poselib", Association.rank_one(), protocol.OPTIONS),
    **{name: RunConfig(name, FIRST, protocol.OPTIONS) for name in ("cm", "hcm", "mcm", "hcm-mcm")},
    "hcm-mcm, guidance 0.5": RunConfig("hcm-mcm", FIRST, GUIDED[0.5]),
    "hcm-mcm, guidance 1": RunConfig("hcm-mcm", FIRST, GUIDED[1.0]),
    "hcm-mcm after GMS": RunConfig("hcm-mcm", Association.paper(), protocol.OPTIONS),
    "auto": RunConfig("auto", Association(), protocol.OPTIONS),
}
# Lines of the reference results, each a run with one seed, and sets that it calls otherwise.
REFERENCE = {
    "MNN_CM": "reference: PoseLib CM, rank-one edges",
    "HCM_MC": "reference: two-stage",
    "G_HCM_MC": "reference: two-stage after GMS",
}
REFERENCE_SETS = {"metu_vistir_pseudo": "metu_dev"}


def main() -> None:
    parser = protocol.arguments(__doc__.splitlines()[0])
    parser.add_argument("--only", choices=REPRESENTATIONS, nargs="+", default=REPRESENTATIONS)
    parser.add_argument("--methods", choices=list(CONFIGS), nargs="+", default=list(CONFIGS))
    given = parser.parse_args()
    graphs = protocol.reference_data("graphs")
    if graphs is None:
        return
    reference = json.loads((graphs / "real_reference.json").read_text())
    tables = []
    for representation in given.only:
        sources = open_graphs([str(graphs / representation)])
        sets = [source.name for source in sources]
        configs = {name: CONFIGS[name] for name in given.methods}
        rows = protocol.run(sources, configs, given.out / "real_graphs", given.seeds)
        table = protocol.auc_table(representation, rows, sets)
        references = []
        for key, label in REFERENCE.items():
            known = reference.get(f"{representation}/dev/{key}")
            if known:
                by_set = np.array([[known[REFERENCE_SETS.get(s, s)][:3]] for s in sets])
                cells = map(protocol.auc_text, [by_set.mean(axis=0), *by_set])
                references.append([label, *cells])
        tables.append(dataclasses.replace(table, rows=[*table.rows, *references]))
    protocol.write(given.out, "real_graphs", tables)


if __name__ == "__main__":
    main()
