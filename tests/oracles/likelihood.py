"""The paper's likelihoods by enumeration: the joint one over matchings, the relaxed per vertex."""

import math

from tests.oracles.matching import all_matchings


def log_sum_exp(values):
    """Logarithm of a sum of exponentials without overflow."""
    top = max(values)
    return top + math.log(math.fsum(math.exp(v - top) for v in values))


def conditional_log_likelihood(matching, inlier, num_edges, eps, delta):
    """Residual densities of one configuration: real edges U(0, eps), the rest U(0, eps/delta)."""
    if any(not inlier[e] for e in matching):
        return -math.inf
    real = len(matching) * math.log(1.0 / eps)
    false = (num_edges - len(matching)) * math.log(delta / eps)
    return real + false


def log_likelihood(edges, inlier, eps, delta):
    """Joint log-likelihood with a uniform prior over all 1-to-1 configurations of the graph."""
    configurations = all_matchings(edges)
    prior = -math.log(len(configurations))
    terms = [
        prior + conditional_log_likelihood(m, inlier, len(edges), eps, delta)
        for m in configurations
    ]
    return log_sum_exp([term for term in terms if term > -math.inf])


def maximum_matchings(edges, inlier):
    """Cardinality m* and number N* of the maximum matchings of the inlier subgraph."""
    sizes = [
        len(m) for m in all_matchings([e for e, use in zip(edges, inlier, strict=True) if use])
    ]
    return max(sizes), sizes.count(max(sizes))


def log_surrogate(edges, inlier, eps, delta):
    """Dominant-cardinality approximation: log N* + m* log(1/delta) and the pose-free constant."""
    largest, count = maximum_matchings(edges, inlier)
    constant = -math.log(len(all_matchings(edges))) + len(edges) * math.log(delta / eps)
    return math.log(count) + largest * math.log(1.0 / delta) + constant


def vertex_likelihood(incident, inlier, p, eps, delta):
    """One-sided likelihood of a vertex: marginal over 'no match' and each of its candidates."""
    degree = len(incident)
    no_match = 1.0 - math.fsum(p[e] for e in incident)
    total = no_match * (delta / eps) ** degree
    for e in incident:
        if inlier[e]:
            total += p[e] * (delta / eps) ** (degree - 1) * (1.0 / eps)
    return total


def vertex_prefactor(incident, p, eps, delta):
    """The part of the one-sided likelihood that no pose changes."""
    return (1.0 - math.fsum(p[e] for e in incident)) * (delta / eps) ** len(incident)
