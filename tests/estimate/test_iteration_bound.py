"""The adaptive iteration bound against exact arithmetic."""

import numpy as np
import pytest

from manymatch import _core
from tests.oracles.iteration_bound import iteration_bound

DEFAULTS = (1_000, 100_000, 0.9999, 3.0)


def test_every_inlier_count_of_some_graphs():
    for num_edges in (5, 6, 10, 64, 200, 1024):
        for num_inliers in range(num_edges + 1):
            arguments = (num_inliers, num_edges, *DEFAULTS)
            # The ceiling may round the other way when the quotient is a whole number up to 1e-12.
            assert abs(_core.iteration_bound(*arguments) - iteration_bound(*arguments)) <= 1


def test_random_settings():
    rng = np.random.default_rng(1)
    for _ in range(3000):
        num_edges = int(rng.integers(5, 5000))
        low = int(rng.integers(1, 1000))
        arguments = (
            int(rng.integers(0, num_edges + 1)),
            num_edges,
            low,
            low + int(rng.integers(0, 1_000_000)),
            float(rng.uniform(0.5, 0.999999)),
            float(rng.uniform(0.1, 10.0)),
        )
        assert _core.iteration_bound(*arguments) == pytest.approx(
            iteration_bound(*arguments), abs=1
        )


def test_all_edges_inliers_stops_at_the_minimum():
    for num_edges in (5, 6, 1024):
        assert _core.iteration_bound(num_edges, num_edges, *DEFAULTS) == 1_000


@pytest.mark.parametrize("num_inliers", range(5))
def test_fewer_than_five_inliers_never_stop_early(num_inliers):
    for num_edges in (5, 6, 1024):
        assert _core.iteration_bound(num_inliers, num_edges, *DEFAULTS) == 100_000


def test_a_known_value():
    # Half of very many edges: p = 2^-5, 3 log(1e-4) / log(1 - p) = 870.3.
    assert _core.iteration_bound(500_000_000, 1_000_000_000, 1, 10**6, 0.9999, 3.0) == 871


def test_the_largest_budget_does_not_overflow():
    largest = 2**31 - 1
    assert _core.iteration_bound(5, 10_000, 1, largest, 0.9999, 3.0) == largest
    assert _core.iteration_bound(60, 1024, 1, largest, 0.9999, 1e9) == largest
