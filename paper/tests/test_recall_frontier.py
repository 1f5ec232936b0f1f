"""Frontier regret and the gap between curves, against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from manymatch_paper.measures.frontier import frontier, frontier_regret, interpolated_gap


def test_regret_by_hand() -> None:
    curves = {
        # Better with few edges; its last point is beaten by a smaller point of the other.
        "a": ([10, 20, 40], [0.30, 0.40, 0.45]),
        "b": ([15, 30, 60], [0.20, 0.50, 0.70]),
    }
    regret = frontier_regret(curves)
    np.testing.assert_allclose(regret["a"], [0.0, 0.0, 0.05], atol=1e-15)
    np.testing.assert_allclose(regret["b"], [0.10, 0.0, 0.0], atol=1e-15)


def test_frontier_is_a_staircase_that_includes_its_steps() -> None:
    heights = frontier([10, 20, 30], [0.3, 0.2, 0.5], [9, 10, 19, 20, 29.9, 30, 100])
    assert math.isnan(heights[0])
    assert heights[1:].tolist() == [0.3, 0.3, 0.3, 0.3, 0.5, 0.5]


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


def test_gap_without_a_shared_range() -> None:
    assert all(map(math.isnan, interpolated_gap(([1, 2], [0, 1]), ([3, 4], [0, 1]))))
    # One number of edges in common is a range of length zero.
    assert interpolated_gap(([1, 2], [0, 1]), ([2, 3], [0.5, 1])) == pytest.approx((0.5, -0.5))


def test_of_equal_counts_the_last_point_counts() -> None:
    assert interpolated_gap(([5, 5], [0.1, 0.4]), ([5, 5], [0.2, 0.9])) == pytest.approx((0.5, 0.5))


def test_bad_curves_are_refused() -> None:
    with pytest.raises(ValueError, match="edges must never fall"):
        interpolated_gap(([2, 1], [0, 1]), ([1, 2], [0, 1]))
    with pytest.raises(ValueError, match="edges must hold at least one point"):
        frontier([], [], [1])
    with pytest.raises(ValueError, match="recall must be one number a point"):
        frontier_regret({"a": ([1, 2], [0.5])})
