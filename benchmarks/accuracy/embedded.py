"""Pose AUC of EfficientNet-Lite0 features at the keypoints of free detectors, on posed pairs.

    python benchmarks/accuracy/embedded.py --out out/accuracy

Chooses the detector of the "embedded" preset: dense features of block 10 at the keypoints of SIFT,
ALIKED and XFeat, all from weights that install as packages, and for comparison the detectors'
own descriptors (``--own``). Longer edge 1024 px (thermal frames as they are), at most 2048
keypoints. Three systems: mutual nearest neighbours with PoseLib; K = 5, first 2048, GMS, first
1024, two-stage; "auto". 1 px at working size, 1,000 to 20,000 iterations, five seeds. Features are
kept in ``<out>/features``, and a run that was interrupted resumes. Writes ``embedded.md``.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.accuracy import protocol
from manymatch import MatcherConfig
from manymatch.associate.candidates import Association
from manymatch_lab.evaluate.run import RunConfig
from manymatch_lab.evaluate.statistics import macro_difference
from manymatch_lab.evaluate.tables import Table

DETECTORS = ("sift", "aliked", "xfeat")
CONFIGS = {
    "rank-one, PoseLib": RunConfig("poselib", Association.rank_one(), protocol.OPTIONS),
    "K = 5, GMS, two-stage": RunConfig("hcm-mcm", Association.paper(), protocol.OPTIONS),
    "auto": RunConfig("auto", Association(), protocol.OPTIONS),
}


def main() -> None:
    parser = protocol.arguments(__doc__.splitlines()[0])
    parser.add_argument("--only", choices=DETECTORS, nargs="+", default=DETECTORS)
    parser.add_argument("--sets", nargs="+", help="names of sets; by default all")
    parser.add_argument("--own", action="store_true", help="also the detectors' own descriptors")
    parser.add_argument("--limit", type=int, help="only that many pairs of every set")
    given = parser.parse_args()
    folder = protocol.reference_data("posed_pairs")
    if folder is None:
        return
    sets = protocol.posed_sets(folder, given.sets)
    base = MatcherConfig.of("classic", method="hcm-mcm")
    tables, gains = [], []
    for detector in given.only:
        presets = [base.of(base, detector=detector, descriptor="efficientnet-lite0", layer=10)]
        if given.own:
            presets.append(base.of(base, detector=detector, descriptor="native"))
        for preset in presets:
            label = f"{detector} + {preset.sources[0].features.descriptor}"
            sources = protocol.open_sets(folder, sets, preset, given.out / "features")
            place = given.out / "embedded" / label.replace(" ", "")
            rows = protocol.run(sources, CONFIGS, place, given.seeds, given.limit)
            tables.append(protocol.auc_table(label, rows, sets))
            errors = {name: [run.errors for run in runs] for name, runs in rows.items()}
            first, *others = errors
            for other in others:
                gain = macro_difference(errors[other], errors[first]).interval
                gains.append([label, f"{other} minus {first}", *(f"{i:+.1f}" for i in gain)])
    header = ["features", "difference of macro averages", "AUC@5", "AUC@10", "AUC@20"]
    note = "In brackets the 95 % interval when pairs are resampled."
    protocol.write(given.out, "embedded", [*tables, Table("Gains", header, gains, [note])])


if __name__ == "__main__":
    main()
