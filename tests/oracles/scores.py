"""Slow twins of the priors, of HCM and of MCM, written from the paper's own formulas."""

import math

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching

from tests.oracles.geometry import inliers

NO_MATCH_FLOOR = 1e-9


def neighbours(edges, side, count):
    """Edge indices at each of the count vertices of one side."""
    lists = [[] for _ in range(count)]
    for e, edge in enumerate(edges):
        lists[edge[side]].append(e)
    return lists


def marginal_probabilities(edges, n0, n1, q):
    """p_ij = q / (2 |N_x(i)|) + q / (2 |N_y(j)|), the paper's uniform assignment."""
    at0, at1 = neighbours(edges, 0, n0), neighbours(edges, 1, n1)
    return np.array([q / (2 * len(at0[i])) + q / (2 * len(at1[j])) for i, j in edges])


def match_probability(incident, p):
    """q_x of a vertex: the probability that one of its candidates is real."""
    return math.fsum(p[e] for e in incident)


def vertex_term(incident, inlier, p, delta):
    """log(1 + C w) of one vertex with C = q / ((1 - q) delta), w = inlier share of q."""
    if not incident:
        return 0.0
    q_vertex = match_probability(incident, p)
    C = q_vertex / max(1.0 - q_vertex, NO_MATCH_FLOOR) / delta
    w = math.fsum(p[e] for e in incident if inlier[e]) / q_vertex
    return math.log1p(C * w)


def hcm_sides(edges, inlier, n0, n1, q, delta, given=None):
    """Left and right sums of the HCM score of an inlier mask (E,); p_ij given or uniform."""
    p = marginal_probabilities(edges, n0, n1, q) if given is None else given
    left = math.fsum(vertex_term(at, inlier, p, delta) for at in neighbours(edges, 0, n0))
    right = math.fsum(vertex_term(at, inlier, p, delta) for at in neighbours(edges, 1, n1))
    return left, right


def cardinality(edges, n0, n1):
    if len(edges) == 0:
        return 0
    edges = np.asarray(edges)
    biadjacency = csr_matrix((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(n0, n1))
    return int((maximum_bipartite_matching(biadjacency, perm_type="column") >= 0).sum())


def score(x0, x1, edges, eps, q, delta, R, t, given=None):
    """HCM, cardinality and inlier mask of a pose: the twin of the compiled score."""
    mask = inliers(x0, x1, edges, eps, R, t)
    left, right = hcm_sides(edges, mask, len(x0), len(x1), q, delta, given)
    return left + right, cardinality(np.asarray(edges)[mask], len(x0), len(x1)), mask
