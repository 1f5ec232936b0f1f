"""The adaptive iteration bound, with exact rational arithmetic for the inlier probability."""

import math
from fractions import Fraction

SAMPLE_SIZE = 5
NEGLIGIBLE = 1e-7


def all_inlier_probability(num_inliers, num_edges):
    """Probability that five distinct edges are all inliers, as a fraction."""
    if num_inliers < SAMPLE_SIZE:
        return Fraction(0)
    p = Fraction(1)
    for u in range(SAMPLE_SIZE):
        p *= Fraction(num_inliers - u, num_edges - u)
    return p


def iteration_bound(num_inliers, num_edges, min_iterations, max_iterations, confidence, safety):
    """Iterations after which the search may stop."""
    p = float(all_inlier_probability(num_inliers, num_edges))
    if p >= 1.0 - NEGLIGIBLE:
        return min_iterations
    if p <= NEGLIGIBLE:
        return max_iterations
    needed = math.ceil(safety * math.log(1.0 - confidence) / math.log1p(-p))
    return min(max(needed, min_iterations), max_iterations)
