"""Minimal samples without outliers for a shared unknown focal length: six points or five.

    python benchmarks/accuracy/focal_samples.py

Six candidates determine pose and focal length (a quadratic eigenvalue problem in 1 / f², up to 15
solutions); five determine the pose for a focal length that is drawn from the prior, as "auto" draws
it. Samples are drawn from the rank-one candidates within 1.5 px of the true pose of every posed
pair with equal cameras. Prints, set by set, in what share of them a solution is close enough to be
refined: the focal length within 28 %, the pose within 15 degrees.
"""

from __future__ import annotations

import itertools
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import eig

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.accuracy.protocol import arguments, reference_data
from manymatch import Camera, _core, pose_error_deg
from manymatch.geometry.pose import RelativePose
from manymatch_lab.evaluate.inputs import open_graphs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from manymatch_lab.evaluate.posed_graph import PosedGraph

NEAR_PX, LOG_FOCAL, POSE_DEG = 1.5, 0.25, 15.0
LOGISTIC_DEVIATION = math.pi / math.sqrt(3.0)
#: Exponents of the unknowns (x, y) in F = x F0 + y F1 + F2, the constant last.
MONOMIALS = [(a, n - a) for n in (3, 2, 1, 0) for a in range(n, -1, -1)]


def six_point(x0: np.ndarray, x1: np.ndarray) -> Iterator[tuple[float, np.ndarray]]:
    """Every focal length and F of points (6, 2) relative to the principal points."""
    rays = [np.column_stack([x, np.ones(6)]) for x in (x1, x0)]
    rows = np.einsum("ki,kj->kij", *rays).reshape(6, 9)
    basis = np.linalg.svd(rows)[2][6:].reshape(3, 3, 3)
    # With w = 1 / f² and Q = diag(1, 1, w): 2 F Q F' Q F = tr(F Q F' Q) F, and det F = 0.
    parts, system = (np.diag([1.0, 1.0, 0.0]), np.diag([0.0, 0.0, 1.0])), np.zeros((3, 10, 10))
    for chosen in itertools.product(range(3), repeat=3):
        a, b, c = basis[list(chosen)]
        column = MONOMIALS.index((chosen.count(0), chosen.count(1)))
        for p, q in itertools.product(range(2), repeat=2):
            product = a @ parts[p] @ b.T @ parts[q]
            system[p + q, :9, column] += (2.0 * product @ c - np.trace(product) * c).ravel()
        system[0, 9, column] += np.linalg.det(np.stack([a[0], b[1], c[2]]))
    zero, one = np.zeros((10, 10)), np.eye(10)
    first = np.block([[zero, one], [-system[0], -system[1]]])
    w, vectors = eig(first, np.block([[one, zero], [zero, system[2]]]))
    real = np.isfinite(w) & (np.abs(w.imag) < 1e-6 * np.abs(w)) & (w.real > 0.0)
    for k in np.flatnonzero(real):
        v = vectors[:10, k]
        if abs(v[9]) > 1e-12 * np.abs(v).max():
            x, y = (v[7:9] / v[9]).real
            yield float(w[k].real ** -0.5), x * basis[0] + y * basis[1] + basis[2]


def pose_of(E: np.ndarray, x0: np.ndarray, x1: np.ndarray) -> RelativePose:
    """Return the pose of E that has most points in front of both cameras."""
    u, _, vt = np.linalg.svd(E)
    u, vt = u * np.linalg.det(u), vt * np.linalg.det(vt)
    quarter = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    turns = (u @ quarter @ vt, u @ quarter.T @ vt)
    poses = [(R, t) for R in turns for t in (u[:, 2], -u[:, 2])]
    return RelativePose(*max(poses, key=lambda pose: int(_core.sampson(x0, x1, *pose)[1].sum())))


def shares(pair: PosedGraph, samples: int, rng: np.random.Generator) -> list[float] | None:
    """Share of the samples with a close solution: six points, five with a drawn focal length."""
    prior = Camera.unknown(*map(int, pair.size0))
    graph, true = pair.graph.up_to_rank(1), pair.camera0.focal / prior.focal
    middle = pair.camera0.cx, pair.camera0.cy
    x0, x1 = (
        (points[ends] - middle) / prior.focal
        for points, ends in zip((graph.points0, graph.points1), graph.edges.T, strict=True)
    )
    r2, front = _core.sampson(x0 / true, x1 / true, pair.R, pair.t)
    near = np.flatnonzero(front & (r2 < (NEAR_PX / pair.camera0.focal) ** 2))
    if len(near) < 12:
        return None

    def close(f: float, pose: RelativePose) -> bool:
        off = abs(math.log(f / true))
        return off < LOG_FOCAL and pose_error_deg(pose, pair.R, pair.t) < POSE_DEG

    found = np.zeros(2)
    for _ in range(samples):
        six = rng.choice(near, 6, replace=False)
        a, b = x0[six], x1[six]
        found[0] += any(
            close(f, pose_of(np.diag([f, f, 1.0]) @ F @ np.diag([f, f, 1.0]), a / f, b / f))
            for f, F in six_point(a, b)
        )
        u = rng.uniform(1e-4, 1.0 - 1e-4)
        f = math.exp(prior.focal_sigma / LOGISTIC_DEVIATION * math.log(u / (1.0 - u)))
        rays = (np.column_stack([x[:5], np.full(5, f)])[None] for x in (a, b))
        _, R, t = _core.five_point(*rays)
        found[1] += any(close(f, RelativePose(*pose)) for pose in zip(R, t, strict=True))
    return (found / samples).tolist()


def main() -> None:
    parser = arguments(__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=["sift", "effnet"], help="representations")
    parser.add_argument("--every", type=int, default=3, help="every N-th pair")
    parser.add_argument("--samples", type=int, default=40, help="of each pair")
    given = parser.parse_args()
    data = reference_data("graphs")
    for name in given.only if data is not None else ():
        for source in open_graphs([str(data / name)]):
            pairs = [source[i] for i in range(0, len(source), given.every)]
            pairs = [p for p in pairs if np.allclose(p.camera0.params, p.camera1.params)]
            rng = np.random.default_rng(1)
            rows = [row for p in pairs if (row := shares(p, given.samples, rng)) is not None]
            if rows:
                six, five = np.mean(rows, axis=0)
                sys.stdout.write(f"{name} {source.name} ({len(rows)}): {six:.3f} {five:.3f}\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
