"""What a focal length from EXIF should be: known, or found near it; by how wrong it is.

    python benchmarks/accuracy/exif_prior.py --out out/accuracy

On the graphs of real images of six sets whose two cameras are equal, the focal length is the true
one times a log-normal error, as EXIF might have it, and the principal point the centre: as a known
camera, and as unknown with a narrow prior around it. Method "auto", 1,000 to 20,000 iterations.
Writes ``exif_prior.md``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.accuracy import protocol
from manymatch import Camera
from manymatch.associate.candidates import Association
from manymatch.matcher.cameras import EXIF_SIGMA
from manymatch_lab.evaluate.estimators import trial
from manymatch_lab.evaluate.inputs import open_graphs
from manymatch_lab.evaluate.statistics import auc_by_seed
from manymatch_lab.evaluate.tables import Table

SPREADS = (0.0, 0.02, 0.05, 0.15)
SIGMAS = (None, EXIF_SIGMA, 0.05)


def main() -> None:
    parser = protocol.arguments(__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=["sift"], help="representations")
    parser.add_argument("--limit", type=int, default=12, help="pairs of a set, evenly spaced")
    given = parser.parse_args()
    graphs = protocol.reference_data("graphs")
    if graphs is None:
        return
    lines = []
    for representation in given.only:
        sources = [
            source
            for source in open_graphs([str(graphs / representation)])
            if "metu" not in source.name
        ]
        for spread in SPREADS:
            errors = np.array([_errors(s, spread, given.limit, given.seeds) for s in sources])
            for k, sigma in enumerate(SIGMAS):
                auc = np.mean([auc_by_seed(one) for one in errors[:, k]], axis=0)
                how = "known" if sigma is None else f"found, prior {100 * sigma:g} %"
                lines.append([representation, f"{spread:.0%}", how, protocol.auc_text(auc)])
    header = ["graphs", "error of EXIF", "focal length", "AUC@5 / 10 / 20"]
    table = Table(f"Macro average over six sets, at most {given.limit} pairs", header, lines, [])
    given.out.mkdir(parents=True, exist_ok=True)
    protocol.write(given.out, "exif_prior", [table])


def _errors(source, spread: float, limit: int, seeds: int) -> list[np.ndarray]:
    """Return pose errors (sigmas, seeds, pairs) in degrees of one set."""
    chosen = np.unique(np.linspace(0, len(source) - 1, limit).round().astype(int))
    errors = np.empty((len(SIGMAS), seeds, len(chosen)))
    for column, index in enumerate(chosen.tolist()):
        posed = source[index]
        graph = Association().for_method("auto").apply(posed.graph, **posed.sizes)
        for seed in range(seeds):
            factor = np.exp(spread * np.random.default_rng([index, seed]).normal())
            focal = factor * posed.camera0.focal
            options = protocol.OPTIONS.replace(seed=index + 1 + seed)
            for row, sigma in enumerate(SIGMAS):
                camera = Camera.unknown(*posed.size0).with_focal(focal, sigma)
                found = trial("auto", posed, graph, options, cameras=(camera, camera))
                errors[row, seed, column] = found["error_deg"]
    return list(errors)


if __name__ == "__main__":
    main()
