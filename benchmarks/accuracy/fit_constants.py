"""Fit every constant of "auto", of probabilities and of verdicts that comes from data.

    python benchmarks/accuracy/fit_constants.py                       # all problems, 30 minutes
    python benchmarks/accuracy/fit_constants.py --problems rigid      # one of them
    python benchmarks/accuracy/fit_constants.py --pairs FOLDER        # with graphs of all_pairs.py
    python benchmarks/accuracy/fit_constants.py --table out/constants/rows.npz     # fit again

Three kinds of constants are fitted for every problem: `match_coefficients` (is a match right?),
`model_coefficients` (is the geometry right?) and the priors of candidates by rank and motion
filter. Beside the loss of the fit stands that on each set when it is left out, and that of the
coefficients in the package: a fit that is good only on its own sets shows there.

Every pair of the reference data is estimated as it is, after a few iterations only (for more wrong
models), with the points of one side exchanged (which leaves nothing to find), and with variations
that users bring: candidates of rank one or up to rank three, half of the keypoints, half or twice
the threshold, true candidates removed. Relative poses also get SIFT with up to 8,192 keypoints and
ten candidates each, the five sources of the preset "fused", synthetic scenes, clutter without a
pose, images of different places and, with --pairs, all pairs of the images of whole places, most of
which do not overlap. Slopes are fitted with sets that count alike, and pairs within a set; then the
constant of a model with all estimates that count alike, right and wrong ones half each.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.progress import track

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import manymatch
from benchmarks.accuracy import confidence as scenes
from benchmarks.accuracy import homography, one_way_lists, protocol, registration
from benchmarks.accuracy.absolute_pose import nearest_pose
from manymatch import pose_error_deg
from manymatch.estimate import confidence, evidence
from manymatch.estimate.many import PROBLEMS
from manymatch.estimate.problem import match_features
from manymatch.estimate.relative_pose import sampson_distances
from manymatch.estimate.words import RELIABLE
from manymatch.features.extractor import Extractor
from manymatch.features.feature_config import feature_config
from manymatch.geometry.camera import working_pixel
from manymatch.io.pairs import read_pairs
from manymatch_lab.datasets.synthetic import EASY, make_scene
from manymatch_lab.evaluate.inputs import open_graphs
from manymatch_lab.evaluate.tables import Table
from tests.support.data_folder import data_folder
from tests.support.two_motions import two_motions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from manymatch import AssociationGraph, Estimate

ITERATIONS, FEW_ITERATIONS = 10_000, 50
# Errors between one and this many limits say little about the geometry that was searched.
UNCLEAR = 2.0
# The truth of these sets is coarse: errors up to this many limits say nothing.
COARSE = {"7scenes_tsdf": 4.0, "sevenscenes": 4.0}
# A candidate is true within this many thresholds of the true geometry.
TRUE_WITHIN = 3.0
# Keeps slopes finite where the data would allow any.
RIDGE = 1e-3
# Sets that show the same place are left out together.
SAME_PLACE = {
    **dict.fromkeys(("fountain_p11", "herzjesu_p25", "herzjesu_p8"), "strecha_fountain_herzjesu"),
    "temple": "middlebury_temple",
    "tum_office": "tum_fr3_office",
    "fox": "ngp_fox",
    "sevenscenes": "7scenes_tsdf",
}
# What the rendered places with equal sides count all together, and a synthetic kind, in sets. Two
# images cannot tell equal sides apart; with more weight no pair of any place would be trusted.
RENDERED, RENDERED_SHARE = ("courtyard", "cup", "kiosk", "street"), 0.1
MADE_SHARE = 0.1
# Features that are not fitted here; their slopes are set by hand.
DROPPED = {"rigid": (4,), "similarity": (4,)}
# Numbers that every problem has; clouds have more.
COMMON = 3
# Most pairs of a place, drawn at random.
MOST_PAIRS = 120
NUM_SCENES = 20
# One in so many of the pairs of one_way_lists.py gets many keypoints and ten neighbours.
LARGE_EVERY = 3
# Each pair has two of the six variations, which move on by five with the seed.
SEEDS_APART = 1001
BINS = np.array([0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97, 0.99, 0.999, 1.0])


@dataclasses.dataclass(frozen=True)
class Case:
    """One pair with its truth."""

    problem: str
    set: str
    graph: AssociationGraph
    arguments: tuple[Any, ...]  # of the public function, after the graph
    # Error over the largest that counts as right.
    error: Callable[[Any], float]
    # Distance of every candidate of a graph from the true geometry, in thresholds.
    distance: Callable[[AssociationGraph], np.ndarray]
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    varied: bool = True


def relative_poses(data: Path) -> Iterator[Case]:
    """Every third pair of the posed graphs of all representations."""
    for name in ("sift", "superpoint", "effnet", "sam2"):
        for reader in open_graphs([str(data / "graphs" / name)]):
            for index in range(0, len(reader), 3):
                posed = reader[index]
                cameras = posed.camera0, posed.camera1
                yield pose_case(reader.name, posed.graph, cameras, posed.R, posed.t)


def pose_case(
    name: str, graph: Any, cameras: Any, R: Any, t: Any, settings: Any = None, varied: bool = True
) -> Case:
    """Make the case of a relative pose; t is None where there is nothing to find."""

    def error(found: Any) -> float:
        return np.inf if t is None else pose_error_deg(found.pose, R, t) / 5.0

    def distance(seen: Any) -> np.ndarray:
        if t is None:
            return np.full(seen.num_edges, np.inf)
        pair = PROBLEMS["relative"].prepare(seen, *cameras, manymatch.Options())
        return sampson_distances(pair, R, t) / pair.eps

    return Case("relative", name, graph, cameras, error, distance, settings or {}, varied)


def all_pairs(folder: Path) -> Iterator[Case]:
    """Pairs of whole places; those that do not overlap have nothing to find."""
    paths = sorted(folder.glob("*/*/*__*.npz"))
    np.random.default_rng(1).shuffle(paths)
    taken: Counter[Path] = Counter()
    for path in paths:
        taken[path.parent] += 1
        if taken[path.parent] > MOST_PAIRS:
            continue
        with np.load(path) as file:
            known = {key: file[key] for key in file.files}
        source = {}
        if "source" in known:
            names = known["source_names"].tolist()
            source = {"source": known["source"], "source_names": names, "prior": known.get("prior")}
        arrays = (known[key] for key in ("points0", "points1", "edges", "similarity", "rank"))
        graph = manymatch.AssociationGraph(*arrays, **source)
        cameras = [
            manymatch.Camera.from_matrix(known[f"K{i}"], *map(int, known[f"size{i}"]))
            for i in (0, 1)
        ]
        scale = tuple(known[f"working_scale{i}"] for i in (0, 1))
        settings = {"threshold_px": working_pixel(*cameras, *scale), "working_scale": scale}
        alone = known["overlap"] == 0.0 and known["tracks"] <= 0
        t = None if alone else known["t"]
        if t is None or np.any(t):
            yield pose_case(
                path.parent.name, graph, tuple(cameras), known["R"], t, settings, varied=False
            )


def large_poses(data: Path) -> Iterator[Case]:
    """Pairs of images with up to 8,192 keypoints and ten mutual neighbours each."""
    features = dataclasses.replace(feature_config("classic"), max_keypoints=8192)
    extractor = Extractor(features)
    for name, every in one_way_lists.SETS.items():
        folder = data / "posed_pairs" / name
        for pair in read_pairs(folder / "pairs.txt", folder)[1 :: LARGE_EVERY * every]:
            first, second = (extractor.extract(path) for path in (pair.path0, pair.path1))
            candidates = manymatch.associate(first.descriptors, second.descriptors, k=10)
            graph = manymatch.AssociationGraph(first.points, second.points, *candidates)
            yield image_case(name, pair, graph, first, second)


def fused_poses(data: Path) -> Iterator[Case]:
    """Every third pair of images with the candidates of all sources of the preset "fused"."""
    matcher = manymatch.Matcher("fused", threads=1)
    for name in protocol.posed_sets(data / "posed_pairs"):
        folder = data / "posed_pairs" / name
        longest = (None, 0 if name == protocol.THERMAL else None)
        for pair in read_pairs(folder / "pairs.txt", folder)[::3]:
            first, second = matcher.extract([pair.path0, pair.path1], longest=longest)
            graph = matcher.candidates(first, second)[0].graph
            yield image_case(name, pair, graph, first[0], second[0])


def image_case(name: str, pair: Any, graph: Any, first: Any, second: Any) -> Case:
    """Make the case of two images by their features, which know the size they were found at."""
    cameras = pair.camera0, pair.camera1
    scale = first.working_scale, second.working_scale
    settings = {"threshold_px": working_pixel(*cameras, *scale), "working_scale": scale}
    return pose_case(name, graph, cameras, pair.R, pair.t, settings)


def made_poses(data: Path) -> Iterator[Case]:
    """Synthetic scenes, clutter without a pose, two motions, and images of different places."""
    kinds = scenes.VERDICT_SCENES | {
        f"baseline {length}": dataclasses.replace(
            EASY, baseline=(length, length), num_points=120, num_outliers=60, descriptor_noise=0.3
        )
        for length in (0.02, 0.05, 0.1, 0.2)
    }
    for background, moving in ((120, 80), (100, 100), (60, 140), (140, 60), (170, 30)):
        for seed in range(NUM_SCENES):
            graph, (pose, _) = two_motions(background, moving, seed)
            name = f"motions {background}/{moving}"
            yield pose_case(name, graph, (scenes.K, scenes.K), pose.R, pose.t, varied=False)
    for kind, config in kinds.items():
        for seed in range(NUM_SCENES):
            scene = make_scene(config, seed)
            cameras = scene.camera0, scene.camera1
            yield pose_case(kind, scene.graph, cameras, scene.pose.R, scene.pose.t, varied=False)
    for kind, make in scenes.CLUTTER.items():
        for seed in range(NUM_SCENES):
            graph = make(np.random.default_rng([seed, 17]))
            yield pose_case(kind, graph, (scenes.K, scenes.K), None, None, varied=False)
    sets = ("tum_fr3_office", "middlebury_temple", "kitti_vo", "ngp_fox")
    for result in scenes.unrelated_images(data / "posed_pairs", sets, manymatch.Options(), 4):
        cameras = result.estimate.camera0, result.estimate.camera1
        yield pose_case("unrelated", result.graph, cameras, None, None, varied=False)


def homographies(data: Path) -> Iterator[Case]:
    for name, pairs in homography.load_sets(data / "homography", None).items():
        for pair in pairs:
            used = pair.graph.points0[np.unique(pair.graph.edges[:, 0])]
            low, high = used.min(axis=0), used.max(axis=0)
            corners = np.array([low, [low[0], high[1]], high, [high[0], low[1]]])

            def error(found: Any, H: Any = pair.H, corners: Any = corners) -> float:
                gap = homography.transfer(found.homography, corners)
                gap = np.sum((gap - homography.transfer(H, corners)) ** 2, axis=1)
                return float(np.sqrt(np.mean(gap)) / (3.0 * found.threshold_px))

            def distance(seen: Any, H: Any = pair.H) -> np.ndarray:
                points = [p[side] for p, side in zip(ends(seen), seen.edges.T, strict=True)]
                there = homography.transfer(H, points[0]) - points[1]
                back = homography.transfer(np.linalg.inv(H), points[1]) - points[0]
                return np.sqrt(0.5 * (np.sum(there**2, axis=1) + np.sum(back**2, axis=1))) / 3.0

            yield Case("homography", name, pair.graph, (), error, distance, {"threshold_px": 3.0})


def ends(graph: Any) -> tuple[Any, Any]:
    return graph.points0, graph.points1


def fundamentals(data: Path) -> Iterator[Case]:
    """Every fourth pair of the posed graphs of two representations."""
    for reader in open_graphs([str(data / "graphs" / name) for name in ("sift", "effnet")]):
        for index in range(0, len(reader), 4):
            posed = reader[index]
            K0, K1 = (np.linalg.inv(camera.K) for camera in (posed.camera0, posed.camera1))
            F = K1.T @ posed.pose.essential() @ K0

            def error(found: Any, F: Any = F) -> float:
                into = [np.linalg.inv(found._pair.frame.matrix(side)) for side in (1, 0)]
                true = into[0].T @ F @ into[1]
                true /= np.linalg.norm(true)
                gap = PROBLEMS["fundamental"].chart.error(found._pair, found._model, (true, None))
                return float(np.linalg.norm(gap))

            case = pose_case(
                reader.name, posed.graph, (posed.camera0, posed.camera1), posed.R, posed.t
            )
            yield dataclasses.replace(case, problem="fundamental", arguments=(), error=error)


def absolute_poses(data: Path) -> Iterator[Case]:
    for path in sorted((data / "absolute_pose").glob("*/*.npz")):
        with np.load(path) as file:
            arrays = (file[k] for k in ("points2D", "points3D", "edges", "similarity", "rank"))
            graph = manymatch.AssociationGraph(*arrays)
            K, pose = file["K"], nearest_pose(file["R"], file["t"])
        seen = graph.points1 @ pose.R.T + pose.t
        depth = float(np.median(np.abs(seen[graph.edges[:, 1], 2])))

        def error(found: Any, pose: Any = pose, depth: float = depth) -> float:
            cosine = 0.5 * (np.sum(found.pose.R * pose.R) - 1.0)
            turned = np.degrees(np.arccos(np.clip(cosine, -1.0, 1.0)))
            away = np.linalg.norm(found.pose.center - pose.center)
            return float(max(turned / 5.0, 20.0 * away / depth))

        def distance(graph: Any, pose: Any = pose, K: Any = K) -> np.ndarray:
            points = graph.points1[graph.edges[:, 1]] @ pose.R.T + pose.t
            pixels = points @ K.T
            with np.errstate(divide="ignore", invalid="ignore"):
                off = pixels[:, :2] / pixels[:, 2:] - graph.points0[graph.edges[:, 0]]
            return np.where(points[:, 2] > 0.0, np.linalg.norm(off, axis=1) / 3.0, np.inf)

        yield Case(
            *("absolute", path.parent.name, graph, (K,), error, distance), {"threshold_px": 3.0}
        )


def transforms(data: Path, similarity: bool) -> Iterator[Case]:
    for name, pairs in registration.load_sets(data / "registration", None, similarity).items():
        for pair in pairs:
            threshold = registration.VOXELS * pair.voxel

            def error(found: Any, pair: Any = pair) -> float:
                used = pair.graph.points0[np.unique(pair.graph.edges[:, 0])]
                gap = registration.moved(found.transform, used)
                gap = np.sum((gap - registration.moved(pair.truth, used)) ** 2, axis=1)
                return float(np.sqrt(np.mean(gap)) / (3.0 * found.threshold))

            def distance(seen: Any, pair: Any = pair, threshold: float = threshold) -> np.ndarray:
                off = registration.moved(pair.truth, seen.points0[seen.edges[:, 0]])
                off -= seen.points1[seen.edges[:, 1]]
                return np.linalg.norm(off, axis=1) / threshold

            problem = "similarity" if similarity else "rigid"
            yield Case(problem, name, pair.graph, (threshold,), error, distance)


CASES: dict[str, Callable[[Path], Iterator[Case]]] = {
    "relative": relative_poses,
    "homography": homographies,
    "fundamental": fundamentals,
    "absolute": absolute_poses,
    "rigid": lambda data: transforms(data, similarity=False),
    "similarity": lambda data: transforms(data, similarity=True),
}


def filtered(graph: AssociationGraph, mask: np.ndarray) -> AssociationGraph:
    return graph.filter(np.asarray(mask, dtype=bool))


def variations(case: Case, index: int) -> Iterator[tuple[str, AssociationGraph, float, int]]:
    """Name, graph, factor of the threshold and iterations of every run on one pair."""
    graph, rng = case.graph, np.random.default_rng([index, 31])
    yield "as it is", graph, 1.0, ITERATIONS
    if not case.varied:
        return
    yield "few iterations", graph, 1.0, FEW_ITERATIONS
    yield "exchanged", exchanged(graph, rng), 1.0, ITERATIONS
    near = case.distance(graph) < TRUE_WITHIN
    seen = (rng.random(len(side)) < 0.5 for side in ends(graph))
    chosen = [mask[side] for mask, side in zip(seen, graph.edges.T, strict=True)]
    others = [
        ("rank one", graph.up_to_rank(1), 1.0),
        ("up to rank three", graph.up_to_rank(3), 1.0),
        ("half of the keypoints", filtered(graph, chosen[0] & chosen[1]), 1.0),
        ("half the threshold", graph, 0.5),
        ("twice the threshold", graph, 2.0),
        ("a third of the true ones", filtered(graph, ~near | (rng.random(len(near)) < 0.33)), 1.0),
    ]
    for turn in (0, 3):
        name, seen_graph, factor = others[(index + turn) % len(others)]
        if seen_graph.num_edges:
            yield name, seen_graph, factor, ITERATIONS


def exchanged(graph: AssociationGraph, rng: np.random.Generator) -> AssociationGraph:
    """Return the same graph with the points of side 1 at each other's places."""
    order = rng.permutation(len(graph.points1))
    return manymatch.AssociationGraph(
        graph.points0, graph.points1[order], graph.edges, **graph.of_edges()
    )


def estimated(case: Case, graph: AssociationGraph, factor: float, **settings: Any) -> Estimate:
    """Estimate one pair with a threshold that is multiplied by a factor."""
    problem = PROBLEMS[case.problem]
    given, arguments = {"threads": 1, **case.settings, **settings}, case.arguments
    if "threshold" in problem.arguments:
        arguments = (factor * arguments[0], *arguments[1:])
    else:
        given["threshold_px"] = factor * given.get("threshold_px", 1.0)
    return problem.estimate(graph, *arguments, **given)


def rows_of(cases: list[Case], seed: int = 0) -> list[dict[str, Any]]:
    """One row per estimate: what its probabilities are computed from, and the truth."""
    rows = []
    for index, case in enumerate(track(cases, transient=True), start=SEEDS_APART * seed):
        for kind, graph, factor, iterations in variations(case, index):
            budget = {"max_iterations": iterations, "min_iterations": min(iterations, 1_000)}
            found = estimated(case, graph, factor, seed=index, **budget)
            if not found.success:
                continue
            known = evidence.evidence(found)
            certain = dataclasses.replace(known, odds=np.inf)
            nothing = kind == "exchanged"
            # Exchanged points are still the same clouds, which "auto" may align without candidates.
            aligned = case.problem in ("rigid", "similarity") and case.error(found) < UNCLEAR
            if nothing and aligned:
                continue
            near = case.distance(graph) / factor < TRUE_WITHIN
            rows.append(
                {
                    "problem": case.problem,
                    "set": case.set,
                    "kind": kind,
                    "error": np.inf if nothing else case.error(found),
                    "features": known.features,
                    "places": known.places - PROBLEMS[case.problem].sample_size,
                    "most": (1.0 - known.rival.any) * known.accurate,
                    # Whether nothing but the probability can keep the model from passing.
                    "settled": confidence._judge(found, certain)[0] in (*RELIABLE, "uncertain"),
                    **match_columns(found, near & ~nothing),
                }
            )
    return rows


def match_columns(found: Estimate, near: np.ndarray) -> dict[str, Any]:
    """Features and truth of the matches of an estimate."""
    pair = found._pair
    problem = PROBLEMS[found.problem].of(pair)
    number = {tuple(edge): e for e, edge in enumerate(pair.graph.edges.tolist())}
    matched = np.array([number[tuple(match)] for match in found.matches.tolist()])
    weight = found.source_trust[pair.graph.source] if len(found.source_trust) else None
    if found.problem == "relative":
        distance = sampson_distances(pair, found.pose.R, found.pose.t) / pair.eps
    else:
        distance = problem.errors(pair, found._model)
    features = match_features(
        *(pair.edges, pair.graph.rank, found._kept, distance, found.inliers, matched),
        *(pair.options.q, problem.sample_size, problem.dimensions, weight),
    )
    return {"matches": features, "true": near[matched]}


def fit(
    x: np.ndarray, true: np.ndarray, weight: np.ndarray, most: Any = 1.0, known: Any = 0.0
) -> np.ndarray:
    """Coefficients of a weighted logistic regression, by Fisher scoring; slopes in units of x.

    The probability is the logistic one times `most`; `known` is a part of the log-odds.
    """
    middle, scale = x.mean(axis=0), x.std(axis=0) + 1e-9
    design = np.column_stack([np.ones(len(x)), (x - middle) / scale])
    penalty = RIDGE * np.diag([0.0] + [1.0] * x.shape[1])
    most, weight = np.broadcast_to(most, len(x)), weight / weight.sum()
    theta = np.zeros(design.shape[1])
    for _ in range(200):
        logistic = 1.0 / (1.0 + np.exp(-np.clip(known + design @ theta, -30.0, 30.0)))
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


def fit_growing(
    x: np.ndarray, true: np.ndarray, weight: np.ndarray, most: Any, dropped: Sequence[int] = ()
) -> np.ndarray:
    """Fit with slopes of at least zero: columns whose slope would be negative are left out."""
    used = np.ones(x.shape[1], dtype=bool)
    used[list(dropped)] = False
    while True:
        found = fit(x[:, used], true, weight, most)
        theta = np.zeros(x.shape[1] + 1)
        theta[0], theta[1:][used] = found[0], found[1:]
        if (theta[1:] >= 0.0).all():
            return theta
        used &= theta[1:] >= 0.0


@dataclasses.dataclass(frozen=True)
class Columns:
    """What one logistic model is fitted to; one entry per row."""

    set: np.ndarray
    x: np.ndarray
    true: np.ndarray
    weight: np.ndarray
    alike: np.ndarray  # weights for the constant
    most: np.ndarray
    settled: np.ndarray
    exchanged: np.ndarray
    growing: bool
    dropped: Sequence[int] = ()

    def fit(self, rows: np.ndarray) -> np.ndarray:
        x, true, most = self.x[rows], self.true[rows], self.most[rows]
        if not self.growing:
            return fit(x, true, self.weight[rows])
        weight, alike = (halved(values[rows], true) for values in (self.weight, self.alike))
        theta = fit_growing(x, true, weight, most, self.dropped)
        none = np.empty((len(x), 0))
        theta[:1] = fit(none, true, alike, most, known=x @ theta[1:])
        return theta

    def probability(self, theta: np.ndarray) -> np.ndarray:
        odds = np.clip(theta[0] + self.x @ theta[1:], -700.0, 700.0)
        return np.asarray(self.most / (1.0 + np.exp(-odds)))

    def left_out(self) -> np.ndarray:
        """Probability of every row, fitted without its own set."""
        found = np.zeros(len(self.true))
        for name in np.unique(self.set):
            own = self.set == name
            found[own] = self.probability(self.fit(~own))[own]
        return found

    def losses(self, p: np.ndarray, rows: Any = slice(None)) -> str:
        """Brier score, log-loss and calibration error."""
        said, true, weight = p[rows], self.true[rows], self.weight[rows] / self.weight[rows].sum()
        brier = float(weight @ (said - true) ** 2)
        log = -float(weight @ np.log(np.clip(np.where(true > 0.5, said, 1.0 - said), 1e-9, 1.0)))
        bins = np.clip(np.digitize(said, BINS) - 1, 0, len(BINS) - 2)
        gaps = (weight[bins == b] @ (said - true)[bins == b] for b in range(len(BINS) - 1))
        return f"{brier:.3f} / {log:.3f} / {sum(map(abs, gaps)):.3f}"

    def reliability(self, p: np.ndarray) -> list[list[str]]:
        """Mean probability, share of right ones, and number, by probability."""
        bins = np.clip(np.digitize(p, BINS) - 1, 0, len(BINS) - 2)
        lines = []
        for own in (bins == b for b in range(len(BINS) - 1)):
            if own.any():
                said, right = (np.average(v[own], weights=self.weight[own]) for v in (p, self.true))
                lines.append([f"{said:.4f}", f"{right:.4f}", str(int(own.sum()))])
        return lines


def halved(weight: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Weights with which right and wrong ones count alike.

    How many pairs have a solution is the user's to know.
    """
    total = np.where(right > 0.5, weight @ right, weight @ (1.0 - right))
    return weight / np.maximum(total, 1e-9)


def model_columns(rows: list[dict[str, Any]]) -> Columns:
    """Rows whose geometry is clearly right or clearly wrong; sets count alike, but see above."""
    error = np.array([row["error"] for row in rows])
    limit = np.array([COARSE.get(row["set"], UNCLEAR) for row in rows])
    spare = np.array([row["places"] > 0 for row in rows])
    used = np.flatnonzero(spare & ~((error >= 1.0) & (error < limit)))
    name = np.array([SAME_PLACE.get(row["set"], row["set"]) for row in rows])[used]
    right = (error[used] < 1.0).astype(float)
    count = Counter(name.tolist())
    rendered = [key for key in count if key.startswith(RENDERED)]
    share = dict.fromkeys(rendered, RENDERED_SHARE / max(len(rendered), 1))
    share |= {key: MADE_SHARE for key in count if is_made(key)}
    weight = np.array([share.get(key, 1.0) / count[key] for key in name.tolist()])
    alike = np.array([not key.startswith(RENDERED) and not is_made(key) for key in name], float)
    weight = halved(weight, right)
    keys = "features", "most", "settled", "kind"
    x, most, settled, kind = (np.array([rows[i][key] for i in used]) for key in keys)
    dropped = DROPPED.get(rows[0]["problem"], ()) if x.shape[1] > COMMON else ()
    known = name, x, right, weight, alike, most, settled, kind == "exchanged"
    return Columns(*known, growing=True, dropped=dropped)


def without_evidence(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with the numbers that every problem has, as of plain matches."""
    return [{**row, "features": row["features"][:COMMON]} for row in rows]


def is_made(name: str) -> bool:
    """Whether a set of relative poses is synthetic."""
    return (
        name.startswith(("motions ", "baseline ")) or name in scenes.VERDICT_SCENES | scenes.CLUTTER
    )


def matches_columns(rows: list[dict[str, Any]]) -> Columns:
    """All matches; pairs count alike within their set, and sets count alike."""
    used = [row for row in rows if len(row["true"])]
    sizes = [len(row["true"]) for row in used]
    name = np.array([row["set"] for row in used])
    count = {key: np.sum(name == key) for key in np.unique(name)}
    weight = np.repeat([1.0 / (count[row["set"]] * len(row["true"])) for row in used], sizes)
    x = np.concatenate([row["matches"] for row in used])
    true = np.concatenate([row["true"] for row in used]).astype(float)
    sure = np.ones(len(x))
    name = np.repeat(name, sizes)
    return Columns(name, x, true, weight, weight, sure, sure > 0.0, sure < 0.0, growing=False)


def operating_point(columns: Columns, p: np.ndarray, rows: np.ndarray) -> str:
    """Share of right and of wrong models that pass; and of wrong ones if 90 % of right ones do."""
    p = np.where(columns.settled, p, 0.0)
    right, wrong = p[rows & (columns.true == 1.0)], p[rows & (columns.true == 0.0)]
    if not len(right) or not len(wrong):
        return "-"
    passing = (100 * np.mean(group >= confidence.LIKELY) for group in (right, wrong))
    limit = np.quantile(right, 0.1)
    text = " / ".join(f"{share:.1f}" for share in passing)
    return f"{text} / {100 * np.mean(wrong >= max(limit, 1e-9)):.1f}"


def numbers_of(columns: Columns, rows: np.ndarray) -> list[str]:
    """Return how many models are right and wrong."""
    return [str(int(np.sum(rows & (columns.true == value)))) for value in (1.0, 0.0)]


def judged(problem: str, kind: str, columns: Columns, stored: np.ndarray) -> list[Table]:
    """Losses of the fit, of the fit without the own set, and of the package, set by set."""
    theta = columns.fit(np.ones(len(columns.true), dtype=bool))
    fits = [columns.probability(theta), columns.left_out()]
    if len(stored) == columns.x.shape[1] + 1:
        fits.append(columns.probability(stored))
    names = ["fit", "left out", "package"][: len(fits)]
    rows = []
    for name in ["all", *np.unique(columns.set)]:
        own = np.ones(len(columns.set), dtype=bool) if name == "all" else columns.set == name
        share = np.average(columns.true[own], weights=columns.weight[own])
        cells = [name, str(int(own.sum())), f"{share:.2f}"]
        rows.append(cells + [columns.losses(p, own) for p in fits])
    numbers = f"({', '.join(f'{value:.3f}' for value in theta)})"
    title = f"{problem}: {kind} {numbers}"
    header = ["set", "rows", "right", *(f"{n}: Brier / log-loss / ECE" for n in names)]
    tables = [Table(title, header, rows)]
    if columns.growing:
        rendered = np.array([key.startswith(RENDERED) for key in columns.set])
        real = np.array([not is_made(key) for key in columns.set]) & ~rendered
        kinds = {"": real, ", without exchanged points": real & ~columns.exchanged}
        if rendered.any():
            kinds[", rendered places"] = rendered
        points = [
            [f"{name}{kind}", *numbers_of(columns, own), operating_point(columns, p, own)]
            for kind, own in kinds.items()
            for name, p in zip(names, fits, strict=True)
        ]
        what = "likely or solved, % of right / of wrong / of wrong where 90 % of right ones pass"
        header = ["coefficients", "right", "wrong", what]
        tables.append(Table(f"{problem}: verdicts", header, points))
    lines = columns.reliability(fits[1])
    said = ["said", "right", kind.split("_")[0]]
    return [*tables, Table(f"{problem}: {kind}, reliability with the set left out", said, lines)]


def draw_reliability(columns: Columns, path: Path) -> None:
    """Draw how often models are right by their log-odds, each fitted without its own set."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    p = columns.left_out()
    rendered = np.array([name.startswith(RENDERED) for name in columns.set])
    made = np.array([is_made(name) for name in columns.set])
    figure, axis = plt.subplots(figsize=(4.6, 3.6))
    odds = np.log(np.clip(p, 1e-6, 1 - 1e-6) / np.clip(1 - p, 1e-6, 1.0))
    limits = np.array([-14.0, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 14])
    said = np.linspace(-6, 10, 200)
    axis.plot(said, 1 / (1 + np.exp(-said)), color="0.6", linewidth=0.8, label="as said")
    for name, rows in (("photographs", ~rendered & ~made), ("places with equal sides", rendered)):
        bins = [rows & (odds >= a) & (odds < b) for a, b in itertools.pairwise(limits)]
        bins = [own for own in bins if own.sum() >= 5]
        if bins:
            means = [(odds[own].mean(), columns.true[own].mean()) for own in bins]
            axis.plot(*zip(*means, strict=True), "o-", markersize=4, linewidth=1, label=name)
    axis.set_xlabel("log-odds, fitted without the own set")
    axis.set_ylabel("share of right models")
    axis.legend(fontsize=8)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})


def prior_table(cases: list[Case]) -> Table:
    """Share of true candidates by rank, with the exponent a of q / rank^a, set by set.

    Wrong candidates within the limit are subtracted by the number in a ring around it.
    """
    rows, exponents = [], []
    for name in sorted({case.set for case in cases}):
        found, total = np.zeros(6), np.zeros(6)
        for case in cases:
            if case.set != name or case.graph.rank is None or not case.varied:
                continue
            distance, dimensions = case.distance(case.graph), PROBLEMS[case.problem].dimensions
            ring = (distance > 5.0) & (distance < 10.0)
            chance = TRUE_WITHIN**dimensions / (10.0**dimensions - 5.0**dimensions)
            rank = np.minimum(case.graph.rank, 5)
            total += np.bincount(rank, minlength=6)[:6]
            found += np.bincount(rank, (distance < TRUE_WITHIN) - chance * ring, 6)[:6]
        if total[1:].min() < 50:
            continue
        share = np.maximum(found[1:], 0.5) / total[1:]
        logs = np.log(np.arange(1, 6))
        slope = np.polyfit(logs, np.log(share), 1, w=np.sqrt(np.maximum(found[1:], 0.5)))[0]
        exponents.append(-slope)
        rows.append([name, *(f"{100 * s:.1f}" for s in share), f"{-slope:.2f}"])
    for i, row in enumerate(rows):
        row.append(f"{np.mean(np.delete(exponents, i)):.2f}" if len(rows) > 1 else "-")
    header = ["set", *(f"rank {k}, %" for k in range(1, 6)), "exponent", "of the other sets"]
    return Table(f"{cases[0].problem}: share of true candidates", header, rows)


def save(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    sizes = np.array([len(row["true"]) for row in rows])
    kept = [name for name in rows[0] if name not in ("matches", "true", "features")]
    single = {name: np.array([row[name] for row in rows]) for name in kept}
    long = {name: np.concatenate([row[name] for row in rows]) for name in ("matches", "true")}
    width = max(len(row["features"]) for row in rows)  # problems differ in it
    features = np.full((len(rows), width), np.nan)
    for values, row in zip(features, rows, strict=True):
        values[: len(row["features"])] = row["features"]
    np.savez_compressed(path, sizes=sizes, features=features, **single, **long)


def load(path: Path) -> list[dict[str, Any]]:
    with np.load(path) as file:
        columns: dict[str, Any] = {name: file[name] for name in file.files}
    limits = np.cumsum(columns.pop("sizes"))[:-1]
    for name in ("matches", "true"):
        columns[name] = np.split(columns[name], limits)
    columns["features"] = [values[~np.isnan(values)] for values in columns["features"]]
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


def main() -> None:
    parser = protocol.arguments(__doc__.splitlines()[0])
    parser.set_defaults(out=Path("out/constants"), seeds=1)
    parser.add_argument("--problems", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--pairs", type=Path, help="folder of graphs that all_pairs.py wrote")
    parser.add_argument("--table", type=Path, help="rows of an earlier run, to fit again")
    parser.add_argument("--figure", type=Path, help="file of the reliability of relative poses")
    given = parser.parse_args()
    data, tables = data_folder(), []
    given.out.mkdir(parents=True, exist_ok=True)
    if given.table is not None:
        rows = load(given.table)
    elif data is None:
        Console().print("The reference data is not here; set MANYMATCH_DATA to its folder.")
        return
    else:
        rows = []
        for problem in given.problems:
            cases = list(CASES[problem](data))
            tables.append(prior_table(cases))
            if problem == "relative":
                cases += [*large_poses(data), *fused_poses(data), *made_poses(data)]
                cases += [] if given.pairs is None else all_pairs(given.pairs)
            for seed in range(given.seeds):
                rows += rows_of(cases, seed)
            save(given.out / "rows.npz", rows)
    for problem in given.problems:
        own = [row for row in rows if row["problem"] == problem]
        if own:
            known = PROBLEMS[problem]
            stored = np.array(known.model_coefficients), np.array(known.match_coefficients)
            name = "model_coefficients"
            if known.evidence_coefficients:
                tables += judged(problem, name, model_columns(without_evidence(own)), stored[0])
                name, stored = "evidence_coefficients", (known.evidence_coefficients, stored[1])
            tables += judged(problem, name, model_columns(own), np.array(stored[0]))
            if problem == "relative" and given.figure is not None:
                draw_reliability(model_columns(own), given.figure)
            tables += judged(problem, "match_coefficients", matches_columns(own), stored[1])
    protocol.write(given.out, "constants", tables)


if __name__ == "__main__":
    main()
