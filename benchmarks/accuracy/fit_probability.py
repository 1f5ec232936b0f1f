"""Fit the coefficients of `Estimate.match_probability` and of `Confidence.pose_probability`.

    python benchmarks/accuracy/fit_probability.py                # 5 minutes on one core
    python benchmarks/accuracy/fit_probability.py --table out/accuracy/probability.npz   # fit again
    python benchmarks/accuracy/fit_probability.py --stacked      # measure several sources

Estimates of "auto" after 20,000 and, for more wrong poses, after 300 iterations: on the real graphs
of every representation, on the synthetic graphs of the reference data, on synthetic scenes, on
clutter, and on pairs of images of different sets, which have no pose. Fitted on three sets (desk,
turntable, road), every other synthetic graph and the rest; the other sets judge the pose
probability, which is also fitted without one set or one representation at a time and judged on it.

A pose is right if its error is below 5 degrees. A match is true if the synthetic graph or scene
says so, or if it lies within 5 px of the true epipolar geometry. Logistic regression in which every
pair counts alike within its source. `manymatch-lab calibration` measures the reliability of
`match_probability` on other sets, benchmarks/accuracy/confidence.py that of `pose_probability`.
With --stacked, both are measured as they are on graphs of SIFT, SuperPoint and EfficientNet, and
beside them what other coefficients for such graphs would give, fitted without the set they judge.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.progress import Progress

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import manymatch
from benchmarks.accuracy import confidence as scenes
from benchmarks.accuracy import fusion, protocol
from manymatch import pose_error_deg
from manymatch.associate.candidates import Association
from manymatch.estimate import confidence
from manymatch.estimate.problem import match_features
from manymatch.estimate.relative_pose import RELATIVE_POSE, prepare, sampson_distances
from manymatch_lab.datasets.synthetic import make_scene
from manymatch_lab.evaluate.inputs import open_graphs
from manymatch_lab.evaluate.tables import Table
from tests.support.data_folder import data_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from manymatch.estimate.result import Estimate

SETS = ("tum_fr3_office", "middlebury_temple", "kitti_vo")
# Its true poses are off by some degrees: errors between these two say nothing.
INEXACT, UNKNOWN_DEG = "7scenes_tsdf", (5.0, 20.0)
REAL = ("sift", "superpoint", "effnet", "sam2")
ITERATIONS = (20_000, 300)
TRUTH_PX = 5.0
# Keeps slopes finite where the data would allow any.
RIDGE = 1e-4
# What the sources of estimates count, all their pairs together.
SHARES = {"real": 1.0, "synthetic": 0.15, "made": 0.15, "clutter": 0.1, "unrelated": 0.25}
NUM_SCENES = 40


def budget(iterations: int) -> manymatch.Options:
    return manymatch.Options(
        min_iterations=min(iterations, 1_000), max_iterations=iterations, threads=1
    )


# One estimate each: what it is of, the estimate, its error in degrees, its true edges.
Sample = tuple[dict[str, str], "Estimate", float, np.ndarray]


def real_samples(data: Path) -> Iterator[Sample]:
    """All real pairs; the truth of an edge is its distance from the true epipolar line."""
    folders = [str(data / "graphs" / name) for name in REAL if (data / "graphs" / name).is_dir()]
    association = Association().for_method("auto")
    for source in open_graphs(folders):
        for index in range(len(source)):
            posed = source[index]
            graph = association.apply(posed.graph, **posed.sizes)
            cameras = posed.camera0, posed.camera1
            pair = prepare(graph, *cameras, budget(1))
            true = sampson_distances(pair, posed.R, posed.t) / pair.eps < TRUTH_PX
            name = {"source": "real", "set": source.name, "representation": source.representation}
            for iterations in ITERATIONS:
                options = budget(iterations).replace(seed=posed.seed_index)
                found = manymatch.estimate_relative_pose(graph, *cameras, options=options)
                yield name, found, pose_error_deg(found.pose, posed.R, posed.t), true


def stacked_samples(data: Path) -> Iterator[Sample]:
    """All real pairs, with the candidates of several representations in one graph."""
    association = Association().for_method("auto")
    sources = [open_graphs([str(data / "graphs" / name)]) for name in fusion.SOURCES]
    for of_set in zip(*sources, strict=True):
        for index in range(len(of_set[0])):
            each = [source[index] for source in of_set]
            posed = each[0]
            graph = manymatch.merge_graphs(
                [association.apply(one.graph, **one.sizes) for one in each], fusion.SOURCES
            )
            cameras = posed.camera0, posed.camera1
            pair = prepare(graph, *cameras, budget(1))
            true = sampson_distances(pair, posed.R, posed.t) / pair.eps < TRUTH_PX
            name = {"source": "real", "set": of_set[0].name, "representation": "stacked"}
            options = budget(ITERATIONS[0]).replace(seed=posed.seed_index)
            found = manymatch.estimate_relative_pose(graph, *cameras, options=options)
            yield name, found, pose_error_deg(found.pose, posed.R, posed.t), true


def synthetic_graph_samples(data: Path) -> Iterator[Sample]:
    for index, path in enumerate(sorted((data / "graphs" / "made").glob("g_*.npz"))):
        with np.load(path) as file:
            edges = np.column_stack([file["idx1"], file["idx2"]])
            graph = manymatch.AssociationGraph(
                file["kp1"], file["kp2"], edges, file["similarity"], file["first_k"]
            )
            name = {"source": "made", "set": ("fitted", "judged")[index % 2]}
            for iterations in ITERATIONS:
                found = manymatch.estimate_relative_pose(
                    graph, file["K1"], file["K2"], options=budget(iterations).replace(seed=index)
                )
                yield (
                    name,
                    found,
                    pose_error_deg(found.pose, file["R"], file["t"]),
                    file["kind"] == 0,
                )


def scene_samples() -> Iterator[Sample]:
    for kind, config in scenes.VERDICT_SCENES.items():
        for seed in range(NUM_SCENES):
            scene = make_scene(config, seed)
            for iterations in ITERATIONS:
                found = manymatch.estimate_relative_pose(
                    scene.graph,
                    scene.camera0,
                    scene.camera1,
                    options=budget(iterations).replace(seed=seed),
                )
                error = pose_error_deg(found.pose, scene.pose.R, scene.pose.t)
                yield {"source": "synthetic", "set": kind}, found, error, scene.is_true


def clutter_samples() -> Iterator[Sample]:
    for kind, make in scenes.CLUTTER.items():
        for seed in range(NUM_SCENES):
            graph = make(np.random.default_rng([seed, 17]))
            found = manymatch.estimate_relative_pose(
                graph, scenes.K, scenes.K, options=budget(20_000).replace(seed=seed)
            )
            nothing = np.zeros(graph.num_edges, dtype=bool)
            yield {"source": "clutter", "set": kind}, found, 180.0, nothing


def unrelated_samples(data: Path) -> Iterator[Sample]:
    for result in scenes.unrelated_images(data / "posed_pairs", SETS, budget(20_000)):
        nothing = np.zeros(result.graph.num_edges, dtype=bool)
        yield {"source": "unrelated", "set": "fitted"}, result.estimate, 180.0, nothing


def collect(samples: Iterator[Sample], tick: Callable[[], None]) -> list[dict[str, Any]]:
    """One row per estimate: what its probabilities are computed from, and the truth."""
    rows = []
    for name, estimate, error, true in samples:
        tick()
        row = {"representation": "", **name, "error": error}
        if not estimate.success:
            continue
        parts = confidence.evidence(estimate)
        row |= {
            "features": parts.features,
            "rival": parts.rival.any,
            "accurate": parts.accurate,
        }
        pair = estimate._pair
        distance = sampson_distances(pair, estimate.pose.R, estimate.pose.t) / pair.eps
        number = {tuple(edge): e for e, edge in enumerate(pair.graph.edges.tolist())}
        matched = np.array([number[tuple(match)] for match in estimate.matches.tolist()])
        known = pair.edges, pair.graph.rank, estimate._kept, distance, estimate.inliers, matched
        weight = None
        if len(estimate.source_trust):
            weight = estimate.source_trust[pair.graph.source]
            row |= {"untrusted": match_features(*known)}
        row |= {"matches": match_features(*known, weight=weight), "true": true[matched]}
        rows.append(row)
    return rows


def fit(x: np.ndarray, true: np.ndarray, weight: np.ndarray, most: Any = 1.0) -> np.ndarray:
    """Coefficients of a weighted logistic regression, by Fisher scoring; slopes in units of x.

    The probability is the logistic one times `most`, which is known.
    """
    middle, scale = x.mean(axis=0), x.std(axis=0) + 1e-9
    design = np.column_stack([np.ones(len(x)), (x - middle) / scale])
    penalty = RIDGE * np.diag([0.0] + [1.0] * x.shape[1])
    most = np.broadcast_to(most, len(x))
    theta = np.zeros(design.shape[1])
    for _ in range(200):
        logistic = 1.0 / (1.0 + np.exp(-np.clip(design @ theta, -30.0, 30.0)))
        p = np.clip(most * logistic, 1e-7, 1.0 - 1e-7)
        slope = most * logistic * (1.0 - logistic)
        gradient = design.T @ (weight * slope * (p - true) / (p * (1.0 - p))) + penalty @ theta
        information = (design * (weight * slope**2 / (p * (1.0 - p)))[:, None]).T @ design
        step = np.clip(np.linalg.solve(information + penalty, gradient), -2.0, 2.0)
        theta -= step
        if np.abs(step).max() < 1e-9:
            break
    slopes = theta[1:] / scale
    return np.concatenate([[theta[0] - slopes @ middle], slopes])


def weights(source: np.ndarray) -> np.ndarray:
    """Every pair counts alike within its source, and a source what `SHARES` says."""
    counts = {name: max(int(np.sum(source == name)), 1) for name in SHARES}
    weight = np.array([SHARES[name] / counts[name] for name in source])
    return weight / weight.sum()


class PoseTable:
    """Columns of the rows of `collect`, and the pose probability fitted to some of them."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.error = np.array([row["error"] for row in rows])
        self.features = np.array([row["features"] for row in rows])
        self.most = np.array([(1.0 - row["rival"]) * row["accurate"] for row in rows])
        self.source, self.set, self.representation = (
            np.array([row[name] for row in rows]) for name in ("source", "set", "representation")
        )
        low, high = UNKNOWN_DEG
        self.unclear = (self.set == INEXACT) & (self.error >= low) & (self.error < high)
        self.real = self.source == "real"
        self.fitted = np.where(self.real, np.isin(self.set, SETS), self.set != "judged")

    def fit(self, rows: np.ndarray) -> np.ndarray:
        rows = rows & ~self.unclear
        right = (self.error[rows] < confidence.ERROR_LIMIT_DEG).astype(float)
        return fit(self.features[rows], right, weights(self.source[rows]), self.most[rows])

    def probability(self, theta: np.ndarray) -> np.ndarray:
        logistic = 1.0 / (1.0 + np.exp(-theta[0] - self.features @ theta[1:]))
        return np.asarray(logistic * self.most)

    def without(self, column: np.ndarray) -> np.ndarray:
        """Probability of every real pair, fitted without its own group."""
        found = np.zeros(len(self.error))
        for group in np.unique(column[self.real]):
            own = self.real & (column == group)
            found[own] = self.probability(self.fit(np.where(self.real, ~own, self.fitted)))[own]
        return found

    def line(self, name: str, p: np.ndarray, rows: np.ndarray) -> list[str]:
        right, clear = rows & (self.error < confidence.ERROR_LIMIT_DEG), rows & ~self.unclear
        cells = [name, str(int(rows.sum())), str(int(right.sum()))]
        for limit in (confidence.LIKELY, confidence.SOLVED):
            shares = [right, rows & (self.error > 20.0), clear & (self.error > 10.0)]
            shares.append(clear & (self.error >= 5.0))
            cells.append(" / ".join(f"{100 * np.mean(p[s] >= limit):.1f}" for s in shares))
        wrong = np.sort(p[rows & (self.error > 20.0)])[::-1]
        limit = wrong[int(0.03 * len(wrong))] if len(wrong) else 0.0
        true = self.error[clear] < confidence.ERROR_LIMIT_DEG
        loss = -np.mean(np.log(np.clip(np.where(true, p[clear], 1 - p[clear]), 1e-9, 1)))
        return [*cells, f"{100 * np.mean(p[right] > limit):.1f}", f"{loss:.3f}"]

    def judged(self, theta: np.ndarray) -> Table:
        others = self.real & ~self.fitted
        rows = [
            self.line("sets not fitted", self.probability(theta), others),
            self.line("without the pair's set", self.without(self.set), self.real),
            self.line("without its representation", self.without(self.representation), self.real),
        ]
        what = "of right (< 5°) and wrong poses (> 20°, > 10°, ≥ 5°)"
        header = ["fitted on", "estimates", "right", f"likely or solved, % {what}", "solved, %"]
        header += ["right that pass with 3 % of those beyond 20°", "log-loss"]
        return Table("Pose probability on pairs that were not fitted", header, rows)


def fit_matches(rows: list[dict[str, Any]], fitted: np.ndarray) -> np.ndarray:
    """Coefficients of the probability of a match."""
    used = [row for row, use in zip(rows, fitted, strict=True) if use and len(row["true"])]
    of_pair = weights(np.array([row["source"] for row in used]))
    sizes = [len(row["true"]) for row in used]
    return fit(
        np.concatenate([row["matches"] for row in used]),
        np.concatenate([row["true"] for row in used]).astype(float),
        np.repeat(of_pair / sizes, sizes),
    )


def reliability(p: list[np.ndarray], true: list[np.ndarray]) -> str:
    """Mean probability, share of truth, expected calibration error and log-loss; pairs alike."""
    weight = np.concatenate([np.full(len(one), 1.0 / len(one)) for one in p]) / len(p)
    said, right = np.concatenate(p), np.concatenate(true).astype(float)
    bins = np.minimum((10 * said).astype(int), 9)
    error = sum(
        abs(float(weight[own] @ (said[own] - right[own]))) for own in (bins == k for k in range(10))
    )
    loss = -float(weight @ np.log(np.clip(np.where(right > 0.5, said, 1.0 - said), 1e-9, 1.0)))
    return f"{weight @ said:.3f} / {weight @ right:.3f} / {error:.3f} / {loss:.3f}"


def stacked_table(rows: list[dict[str, Any]]) -> Table:
    """Reliability by set: matches without trust, with it, and fitted without the set; poses."""
    low, high = UNKNOWN_DEG
    rows = [
        row
        for row in rows
        if len(row["true"]) and not (row["set"] == INEXACT and low <= row["error"] < high)
    ]

    def said(row: dict[str, Any], theta: np.ndarray, name: str = "matches") -> np.ndarray:
        return np.asarray(1.0 / (1.0 + np.exp(-theta[0] - row[name] @ theta[1:])))

    kept = np.array(RELATIVE_POSE.match_coefficients)
    pose = np.array(RELATIVE_POSE.model_coefficients)
    columns: dict[str, list[list[np.ndarray]]] = {}
    for name in sorted({row["set"] for row in rows}):
        own = [row for row in rows if row["set"] == name]
        other = fit_matches(rows, np.array([row["set"] != name for row in rows]))
        right = [1.0 / (1.0 + np.exp(-pose[0] - row["features"] @ pose[1:])) for row in own]
        columns[name] = [
            [said(row, kept, "untrusted") for row in own],
            [said(row, kept) for row in own],
            [said(row, other) for row in own],
            [
                np.array([p * (1.0 - row["rival"]) * row["accurate"]])
                for p, row in zip(right, own, strict=True)
            ],
            [row["true"] for row in own],
            [np.array([row["error"] < confidence.ERROR_LIMIT_DEG]) for row in own],
        ]
    columns["all"] = [
        [one for part in parts for one in part] for parts in zip(*columns.values(), strict=True)
    ]
    lines = [
        [
            name,
            str(len(matches)),
            *(reliability(p, matches) for p in of_matches),
            reliability(of_poses, poses),
        ]
        for name, (*of_matches, of_poses, matches, poses) in columns.items()
    ]
    what = "matches: mean probability / true / ECE / log-loss"
    header = ["set", "pairs", f"{what}, without trust", "with trust", "fitted without the set"]
    return Table("Probabilities on stacked graphs", [*header, "poses, likewise"], lines)


def save(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    sizes = np.array([len(row["true"]) for row in rows])
    single = {k: np.array([r[k] for r in rows]) for k in rows[0] if k not in ("matches", "true")}
    long = {k: np.concatenate([row[k] for row in rows]) for k in ("matches", "true")}
    np.savez_compressed(path, sizes=sizes, **single, **long)


def load(path: Path) -> list[dict[str, Any]]:
    with np.load(path) as file:
        columns = {name: file[name] for name in file.files}
    ends = np.cumsum(columns.pop("sizes"))[:-1]
    for name in ("matches", "true"):
        columns[name] = np.split(columns[name], ends)
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


def main() -> None:
    parser = protocol.arguments(__doc__.splitlines()[0])
    parser.add_argument("--table", type=Path, help="a table of an earlier run, to fit again")
    parser.add_argument("--stacked", action="store_true", help="measure graphs of several sources")
    arguments = parser.parse_args()
    console = Console()
    if arguments.stacked:
        graphs = protocol.reference_data("graphs")
        if graphs is not None:
            arguments.out.mkdir(parents=True, exist_ok=True)
            rows = collect(stacked_samples(graphs.parent), lambda: None)
            protocol.write(arguments.out, "probability-stacked", [stacked_table(rows)])
        return
    if arguments.table is not None:
        rows = load(arguments.table)
    else:
        data = data_folder()
        if data is None:
            console.print("The reference data is not here; set MANYMATCH_DATA to its folder.")
            return
        rows = []
        with Progress(console=console, transient=True) as progress:
            for name, samples in (
                ("real", real_samples(data)),
                ("synthetic graphs", synthetic_graph_samples(data)),
                ("scenes", scene_samples()),
                ("clutter", clutter_samples()),
                ("unrelated images", unrelated_samples(data)),
            ):
                task = progress.add_task(name, total=None)
                rows += collect(samples, lambda task=task: progress.advance(task))
        save(arguments.out / "probability.npz", rows)
    table = PoseTable(rows)
    theta = table.fit(table.fitted)
    arguments.out.mkdir(parents=True, exist_ok=True)
    protocol.write(arguments.out, "probability", [table.judged(theta)])
    matches = fit_matches(rows, table.fitted)
    for name, values in (
        (
            "model_coefficients: matches, size, rank one, best, near, few, seeds, support",
            theta,
        ),
        (
            "match_coefficients: competition, excess, size, prior, share",
            matches,
        ),
    ):
        console.print(f"{name}:\n({', '.join(f'{value:.3f}' for value in values)})")


if __name__ == "__main__":
    main()
