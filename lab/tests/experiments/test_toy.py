"""The toy graph: every number against the slow likelihoods, and what is shown of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manymatch_lab.experiments import toy
from manymatch_lab.experiments.toy import likelihood, matchings
from tests.oracles import likelihood as oracle
from tests.oracles import scores
from tests.oracles.matching import all_matchings


@st.composite
def cases(draw):
    """Graphs of at most nine edges with inliers, a threshold, delta and q."""
    every = [(i, j) for i in range(4) for j in range(4)]
    edges = draw(st.lists(st.sampled_from(every), min_size=1, max_size=9, unique=True))
    inlier = draw(st.lists(st.booleans(), min_size=len(edges), max_size=len(edges)))
    eps = draw(st.floats(0.1, 10.0))
    delta = draw(st.floats(1e-6, 0.5))
    return edges, inlier, eps, delta, draw(st.floats(0.05, 0.9))


@given(cases())
def test_everything_agrees_with_the_slow_twins(case):
    edges, inlier, eps, delta, q = case
    found = likelihood(edges, inlier, eps, delta, q)
    assert found["log_likelihood"] == pytest.approx(
        oracle.log_likelihood(edges, inlier, eps, delta), rel=1e-9
    )
    assert found["log_dominant"] == pytest.approx(
        oracle.log_surrogate(edges, inlier, eps, delta), rel=1e-9, abs=1e-9
    )
    largest, count = oracle.maximum_matchings(edges, inlier)
    assert (found["cardinality"], found["multiplicity"]) == (largest, count)
    assert found["num_inliers"] == sum(inlier)
    assert found["hcm"] == pytest.approx(
        sum(scores.hcm_sides(np.array(edges), inlier, 4, 4, q, delta)), rel=1e-9, abs=1e-12
    )


@given(cases())
def test_matchings_are_all_of_them_once(case):
    edges = case[0]
    found = matchings(edges)
    assert sorted(found) == sorted(all_matchings(edges))
    assert len(set(found)) == len(found)
    assert [len(m) for m in found] == sorted(len(m) for m in found)


def test_the_shown_configurations_are_what_the_figure_says():
    data = toy.run()
    shown = data["hypotheses"][0]["inlier"]
    edges = [tuple(edge) for edge in data["edges"]]
    for name, possible in (("outlier", False), ("inliers", True)):
        chosen = data["selected"][name]
        assert tuple(chosen["edges"]) in all_matchings(edges)
        assert all(shown[e] for e in chosen["edges"]) is possible
        assert (chosen["log_conditional"] is not None) is possible
    assert len(data["selected"]["inliers"]["edges"]) == data["hypotheses"][0]["cardinality"]
    assert len(data["configurations"]) == data["num_configurations"] == len(all_matchings(edges))


def test_the_toy_graph_tells_the_scores_apart():
    """Plain consensus prefers a hypothesis that the likelihood does not, the others follow it."""
    hypotheses = {h["name"]: h for h in toy.run()["hypotheses"]}
    assert hypotheses["C"]["num_inliers"] > hypotheses["B"]["num_inliers"]
    for key in ("log_likelihood", "log_dominant", "cardinality", "hcm"):
        assert hypotheses["C"][key] < hypotheses["B"][key]
    # Equal cardinality: only the multiplicity, log 2, tells them apart.
    first, second = hypotheses["A"], hypotheses["B"]
    assert first["cardinality"] == second["cardinality"]
    assert first["log_dominant"] - second["log_dominant"] == pytest.approx(math.log(2.0))


def test_differences_from_the_paper():
    assert toy.run()["differs_from_paper"] == []
    assert toy.run(delta=0.1, q=0.5)["differs_from_paper"] == [
        "delta 0.1 instead of 0.01",
        "q 0.5 instead of 0.3",
    ]
