"""Accuracy of `manymatch align` on multimodal images of the reference data.

    python benchmarks/accuracy/align.py --sets mm_VIS_IR mm_remote

From image files to homographies and affine maps with the default features; errors as in
homography.py. Features are computed once and kept in the folder of results.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

import numpy as np
from rich.progress import track

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import manymatch
from benchmarks.accuracy import protocol
from benchmarks.accuracy.homography import THRESHOLDS, Pair, triple
from manymatch.estimate.homography import PLANAR_MODELS
from manymatch_lab.evaluate.statistics import macro_spread

LIMIT_PX = 10.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out/accuracy"), help="folder of results")
    parser.add_argument("--sets", nargs="+", default=["mm_VIS_IR", "mm_remote", "mm_RGB_NIR"])
    parser.add_argument("--preset", help="of the features; default: that of manymatch")
    given = parser.parse_args()
    data = protocol.reference_data("homography")
    if data is None:
        return
    lines = [f"| | pairs | landmarks | corners | landmarks within {LIMIT_PX:g} px | verdicts |"]
    lines.append("|---" * 6 + "|")
    for name in given.sets:
        for model in PLANAR_MODELS:
            errors, verdicts = [], []
            for path in track(sorted((data / name).glob("*.npz")), name, transient=True):
                images = [data / name / "images" / f"{path.stem}_{side}.jpg" for side in (0, 1)]
                result = manymatch.align(
                    *images, model, preset=given.preset, cache=given.out / "features"
                )
                errors.append(Pair(path).errors(result.homography))
                verdicts.append(result.confidence.verdict)
            corners, landmarks = np.array(errors).T
            cells = [triple(macro_spread([e[None]], THRESHOLDS).mean) for e in (landmarks, corners)]
            cells.append(str(np.count_nonzero(landmarks < LIMIT_PX)))
            cells.append(", ".join(f"{n} {verdict}" for verdict, n in Counter(verdicts).items()))
            lines.append(f"| {name}, {model} | {len(errors)} | " + " | ".join(cells) + " |")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
