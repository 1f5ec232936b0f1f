"""Pose AUC and CPU time of OpenCV's SIFT under other settings, on posed pairs.

    OMP_NUM_THREADS=1 python benchmarks/accuracy/sift_options.py --out out/accuracy

Chooses the settings of the "classic" preset: layers per octave, contrast threshold, and the working
size. OpenCV always enlarges the image twofold before it looks for keypoints, so half the working
size is a search that starts with the image as it is. "auto" with the budget of the other accuracy
benchmarks, five seeds. A setting replaces the present one only if it is at least as accurate on the
sets that did not choose it: the table ends with the settings that all sets but one prefer, and
what that set says. Writes ``sift_options.md``.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from unittest import mock

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.accuracy import protocol
from manymatch import MatcherConfig
from manymatch.associate.candidates import Association
from manymatch.features.detectors import classic
from manymatch.features.extractor import Extractor
from manymatch_lab.evaluate.run import RunConfig
from manymatch_lab.evaluate.statistics import auc_by_seed, macro_difference
from manymatch_lab.evaluate.tables import Table

TODAY = "3 layers, contrast 0.02, 1024 px"
# OpenCV's settings, and those of the matcher.
SETTINGS = {
    TODAY: ({}, {}),
    "2 layers": ({"nOctaveLayers": 2}, {}),
    "contrast 0.04": ({}, {"threshold": 0.04}),
    "724 px": ({}, {"longest": 724}),
    "512 px": ({}, {"longest": 512}),
}
CONFIGS = {"auto": RunConfig("auto", Association(), protocol.OPTIONS)}


def main() -> None:
    parser = protocol.arguments(__doc__.splitlines()[0])
    parser.add_argument("--only", choices=SETTINGS, nargs="+", default=list(SETTINGS))
    parser.add_argument("--limit", type=int, help="only that many pairs of every set")
    given = parser.parse_args()
    folder = protocol.reference_data("posed_pairs")
    if folder is None:
        return
    sets = protocol.posed_sets(folder)
    errors, lines = {}, []
    for label in dict.fromkeys([TODAY, *given.only]):
        of_opencv, of_matcher = SETTINGS[label]
        preset = MatcherConfig.of("classic", **of_matcher)
        with mock.patch.dict(classic._SIFT, of_opencv):
            seconds = cpu_seconds(preset, folder / "strecha_fountain_herzjesu")
            sources = protocol.open_sets(folder, sets, preset, given.out / "features")
            place = given.out / "sift_options" / label.replace(" ", "")
            runs = protocol.run(sources, CONFIGS, place, given.seeds, given.limit)["auto"]
        errors[label] = [run.errors for run in runs]
        by_set = [auc_by_seed(one) for one in errors[label]]
        change = macro_difference(errors[label], errors[TODAY]).interval
        lines.append(
            [
                label,
                f"{1e3 * seconds:.0f}",
                *map(protocol.auc_text, [np.mean(by_set, axis=0)]),
                " / ".join(f"{interval:+.1f}" for interval in change),
                *(f"{one.mean(axis=0)[1]:.1f}" for one in by_set),
            ]
        )
    header = ["SIFT", "CPU ms an image", "macro AUC@5/10/20", "minus today's", *sets]
    note = "In brackets the 95 % interval when pairs are resampled. By set: AUC@10."
    tables = [Table("Settings of SIFT", header, lines, [note]), protocol.left_out(errors, sets)]
    protocol.write(given.out, "sift_options", tables)


def cpu_seconds(preset: MatcherConfig, folder: Path) -> float:
    """Return the least CPU time of features of an image."""
    extractor = Extractor(preset.sources[0].features)
    image = str(sorted(folder.glob("*.jpg"))[0])
    seconds = []
    for _ in range(5):
        start = time.process_time()
        extractor.extract(image)
        seconds.append(time.process_time() - start)
    return min(seconds)


if __name__ == "__main__":
    main()
