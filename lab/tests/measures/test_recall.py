"""Correspondence recall, against numbers worked out by hand and a slow twin."""

from __future__ import annotations

import math

import numpy as np
import pytest

from manymatch.associate.neighbours import associate
from manymatch_lab.measures.recall import (
    PatchTruth,
    RecallCurve,
    descriptor_recall,
    frontier,
    frontier_regret,
    graph_recall,
    interpolated_gap,
    known_mean,
    macro_mean,
    nearest_within,
)

NAN = math.nan
# Five patches an image along a line, in metres. Patch 3 of image 0 is not valid; patches 0 and 3 of
# image 1 are both within 1 cm of patch 0 of image 0; the last ones are far from everything.
LINE0 = [0.000, 0.100, 0.200, NAN, 5.0]
LINE1 = [0.005, 0.115, 0.240, -0.004, 9.0]
EDGES = [(0, 0), (1, 2), (3, 4), (1, 1), (2, 2), (0, 3)]
RANKS = [1, 1, 1, 2, 3, 3]


def on_a_line(values: list[float]) -> np.ndarray:
    return np.column_stack([values, np.zeros(len(values)), np.ones(len(values))])


def test_five_patches_by_hand() -> None:
    truth = PatchTruth.of(on_a_line(LINE0), on_a_line(LINE1))
    yes0 = [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0]]
    yes1 = [[1, 0, 0, 1, 0], [1, 1, 0, 1, 0], [1, 1, 1, 1, 0]]
    assert truth.eligible(0).astype(int).tolist() == yes0
    assert truth.eligible(1).astype(int).tolist() == yes1
    curve = graph_recall(truth, EDGES, RANKS, 4)
    assert curve.edges.tolist() == [3, 4, 6, 6]
    # Mean of both images; a row a threshold, a column a K.
    expected = [
        [(1 / 1 + 1 / 2) / 2, (1 / 1 + 1 / 2) / 2, 1, 1],
        [(1 / 2 + 1 / 3) / 2, (2 / 2 + 2 / 3) / 2, 1, 1],
        [(1 / 3 + 1 / 4) / 2, (2 / 3 + 2 / 4) / 2, 1, 1],
    ]
    np.testing.assert_allclose(curve.recall, expected, rtol=1e-15)
    np.testing.assert_allclose(curve.mean, np.mean(expected, axis=0), rtol=1e-15)


def test_macro_mean_weighs_objects_and_not_pairs() -> None:
    def curve(edges: float, *recall: float) -> RecallCurve:
        return RecallCurve(np.array([edges]), np.array([[value] for value in recall]))

    # The cup has 0.5 and nothing at the second threshold, the shoe 0.9 and 0.8.
    pairs = [curve(10, 0.2, NAN), curve(20, 0.4, NAN), curve(60, 0.9, NAN), curve(40, 0.9, 0.8)]
    mean = macro_mean([*pairs[:2], curve(30, 0.9, NAN), *pairs[2:]], ["cup"] * 3 + ["shoe"] * 2)
    assert mean.edges.tolist() == [(20 + 50) / 2]
    np.testing.assert_allclose(mean.recall[:, 0], [(0.5 + 0.9) / 2, 0.8])
    assert np.isnan(known_mean([np.array([NAN]), np.array([NAN])])).all()
    with pytest.raises(ValueError, match="curves must hold one or more"):
        macro_mean([], [])


def slow_recall(
    points0: np.ndarray,
    points1: np.ndarray,
    edges: np.ndarray,
    rank: np.ndarray,
    k: int,
    tau: float,
) -> list[float]:
    """The definition, word by word."""

    def near(i: int, j: int) -> bool:
        return bool(math.dist(points0[i], points1[j]) < tau / 100)

    result = []
    for most in range(1, k + 1):
        kept = [(i, j) for (i, j), r in zip(edges.tolist(), rank, strict=True) if r <= most]
        images = []
        for side, (mine, other) in enumerate(((points0, points1), (points1, points0))):
            eligible = [
                i
                for i in range(len(mine))
                if any(near(*((i, j) if side == 0 else (j, i))) for j in range(len(other)))
            ]
            found = [i for i in eligible if any(e[side] == i and near(*e) for e in kept)]
            images.append(len(found) / len(eligible) if eligible else NAN)
        result.append((images[0] + images[1]) / 2)
    return result


def some_points(rng: np.random.Generator, count: int, spread: float) -> np.ndarray:
    points = rng.uniform(-spread, spread, (count, 3))
    points[rng.uniform(size=count) < 0.2] = NAN
    return points


@pytest.mark.parametrize("operator", ["mutual", "union", "oneway"])
@pytest.mark.parametrize("seed", range(4))
def test_agrees_with_the_slow_twin(operator: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    points0, points1 = some_points(rng, 40, 0.08), some_points(rng, 30, 0.08)
    desc0, desc1 = rng.normal(size=(40, 3)), rng.normal(size=(30, 3))
    truth = PatchTruth.of(points0, points1)
    curve = descriptor_recall(truth, desc0, desc1, 6, operator)
    ways = [(points0, points1, *associate(desc0, desc1, 6, operator))]
    if operator == "oneway":
        ways.append((points1, points0, *associate(desc1, desc0, 6, operator)))
    for row, tau in enumerate(truth.taus_cm):
        slow = [slow_recall(a, b, edges, rank, 6, tau) for a, b, edges, _, rank in ways]
        np.testing.assert_allclose(curve.recall[row], np.mean(slow, axis=0), rtol=1e-12)
    sizes = [[(rank <= k).sum() for k in range(1, 7)] for *_, rank in ways]
    np.testing.assert_allclose(curve.edges, np.mean(sizes, axis=0))


@pytest.mark.parametrize(
    ("spread", "radius"), [(0.05, 0.05), (1.0, 0.05), (0.01, 5.0), (3.0, 1e-7), (0.2, 0.03)]
)
def test_nearest_agrees_with_all_distances(spread, radius):
    rng = np.random.default_rng(5)
    points0, points1 = some_points(rng, 60, spread), some_points(rng, 80, spread)
    points1[7] = points0[np.isfinite(points0).all(axis=1)][3] + 0.4 * radius
    all_of_them = np.linalg.norm(points0[:, None] - points1[None], axis=2)
    all_of_them[~(all_of_them < radius)] = np.inf
    found = nearest_within(points0, points1, radius)
    np.testing.assert_allclose(found[0], all_of_them.min(axis=1), rtol=1e-12)
    np.testing.assert_allclose(found[1], all_of_them.min(axis=0), rtol=1e-12)
    assert np.isfinite(found[0]).any()


def test_bad_input_is_refused() -> None:
    truth = PatchTruth.of([[0, 0, 1]], [[0, 0, 1]])
    with pytest.raises(ValueError, match="edges must hold indices of patches"):
        graph_recall(truth, [(0, 1)], [1], 1)
    with pytest.raises(ValueError, match="rank must be one whole number an edge"):
        graph_recall(truth, [(0, 0)], [1, 2], 1)
    with pytest.raises(ValueError, match="taus_cm must be a finite number above 0"):
        PatchTruth.of([[0, 0, 1]], [[0, 0, 1]], [0.0])
    with pytest.raises(ValueError, match="taus_cm must hold at least one"):
        PatchTruth.of([[0, 0, 1]], [[0, 0, 1]], [])


@pytest.mark.parametrize("seed", range(5))
def test_regret_agrees_with_the_slow_twin(seed: int) -> None:
    rng = np.random.default_rng(seed)
    curves = {
        layer: (np.cumsum(rng.integers(0, 5, 6) + (layer == 0)), np.sort(rng.uniform(size=6)))
        for layer in range(4)
    }
    points = [
        (e, r) for edges, recall in curves.values() for e, r in zip(edges, recall, strict=True)
    ]
    for layer, regret in frontier_regret(curves).items():
        for k, (edges, recall) in enumerate(zip(*curves[layer], strict=True)):
            best = max(r for e, r in points if e <= edges)
            assert regret[k] == pytest.approx(best - recall, abs=1e-15)
    assert min(regret.min() for regret in frontier_regret(curves).values()) >= 0.0


def test_gap_by_hand() -> None:
    # Over the shared range from 10 to 20 the first is 0.2 .. 0.4, the second 0.3 throughout:
    # the difference runs from 0.1 to -0.1.
    first = ([0, 10, 20], [0.0, 0.2, 0.4])
    second = ([10, 30], [0.3, 0.3])
    absolute, signed = interpolated_gap(first, second, 3)
    assert absolute == pytest.approx(0.2 / 3)
    assert signed == pytest.approx(0.0)
    # At 201 budgets: the mean of |1 - k / 100| for k = 0 .. 200, times 0.1.
    absolute, signed = interpolated_gap(first, second)
    assert absolute == pytest.approx(0.1 * (2 * sum(range(1, 101)) / 100) / 201)
    assert signed == pytest.approx(0.0)
    # The other is higher: positive.
    assert interpolated_gap(([1, 2], [0.1, 0.1]), ([1, 2], [0.3, 0.3])) == pytest.approx((0.2, 0.2))


def test_bad_curves_are_refused() -> None:
    with pytest.raises(ValueError, match="edges must never fall"):
        interpolated_gap(([2, 1], [0, 1]), ([1, 2], [0, 1]))
    with pytest.raises(ValueError, match="edges must hold at least one point"):
        frontier([], [], [1])
    with pytest.raises(ValueError, match="recall must be one number a point"):
        frontier_regret({"a": ([1, 2], [0.5])})
