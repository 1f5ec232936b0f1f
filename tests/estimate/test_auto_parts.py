"""What each part of method "auto" is for: a graph on which it changes what it must change."""

import numpy as np
import pytest

import manymatch
from manymatch._validate import METHODS
from manymatch.options import AUTO_PARTS
from tests.oracles.auto_graphs import (
    K,
    constant,
    joined,
    off_by,
    synthetic_graph,
    true_scene,
    with_graph,
    wrong_scene,
)
from tests.support.clouds import repeated_object
from tests.support.synthetic_problems import same


def options(**changes):
    return manymatch.Options(**{"min_iterations": 100, "max_iterations": 20_000, **changes})


def with_and_without(name, graph, also=(), **changes):
    """Estimates with a part and without it; `also` are left out of both."""
    return [
        manymatch.estimate_relative_pose(
            graph, K, K, "auto", options(disable=(*also, *extra), **changes)
        )
        for extra in ((), (name,))
    ]


def test_every_part_has_its_test():
    missing = [name for name in AUTO_PARTS if f"test_{name}" not in globals()]
    assert not missing


def test_filter():
    # Half of the best candidates are wrong. Those that move with their neighbours are not, and
    # sampling them first needs less iterations.
    synthetic = synthetic_graph(1, 900, candidates=2, first=0.45, depth=(30.0, 40.0))
    kept = manymatch.gms_filter(synthetic.graph, (1, 1), (1, 1)).mask
    assert synthetic.true[kept].mean() > 0.8
    assert synthetic.true[synthetic.graph.rank == 1].mean() < 0.7
    yes, no = with_and_without("filter", synthetic.graph)
    assert yes.iterations < 0.7 * no.iterations
    assert max(off_by(yes, synthetic), off_by(no, synthetic)) < 1.0


def two_motions():
    """A motion of forty first candidates, and one of sixty that were found last."""
    better, larger = true_scene(2, 40), true_scene(3, 60)
    return joined((better.graph, 1), (larger.graph, int(constant("kRanks")))), better, larger


@pytest.mark.parametrize("name", ["ranks", "weights"])
def test_motion_with_better_ranked_edges_wins(name):
    # The last stage weighs by prior too, and would find the better founded motion without them.
    graph, better, larger = two_motions()
    yes, no = with_and_without(name, graph, ("residuals",), min_iterations=2000, pool_size=2000)
    assert off_by(yes, better) < 0.5
    assert off_by(no, larger) < 0.5
    assert yes.cardinality < no.cardinality


def test_ranks():
    # The search itself scores by rank: pools of the same samples hold other scores.
    graph, *_ = two_motions()
    yes, no = with_and_without("ranks", graph, also=("mixture",), pool_size=20)
    assert yes.worst_pooled != no.worst_pooled


def test_weights():
    # Only the selection knows of weights: the search is the same.
    graph, *_ = two_motions()
    settings = {"min_iterations": 2000, "pool_size": 2000}
    yes, no = with_and_without("weights", graph, ("residuals",), **settings)
    assert (yes.iterations, yes.worst_pooled) == (no.iterations, no.worst_pooled)
    assert yes.pose != no.pose


def test_mixture():
    # The first candidates are right, the others are not.
    synthetic = synthetic_graph(4, 80, candidates=4, first=1.0, present=0.9)
    yes, no = with_and_without("mixture", synthetic.graph)
    assert 5 * yes.iterations < no.iterations
    assert max(off_by(yes, synthetic), off_by(no, synthetic)) < 0.5


def test_stopping():
    # Most edges are wrong, but samples are mostly of those that are right.
    synthetic = synthetic_graph(5, 80, candidates=4, first=1.0, present=0.9)
    yes, no = with_and_without("stopping", synthetic.graph)
    assert max(off_by(yes, synthetic), off_by(no, synthetic)) < 0.5
    assert 5 * yes.iterations < no.iterations
    assert no.iterations == options().max_iterations


def test_stopping_by_the_sampler_and_not_by_the_edges():
    # Ten wrong edges at each of a few keypoints are many edges but few draws.
    synthetic, hubs = true_scene(6, 60), wrong_scene(7, 60)
    wrong = [(i, j) for i in range(6) for j in range(60) if i != j][: 6 * 40]
    crowd = manymatch.AssociationGraph(hubs.graph.points0, hubs.graph.points1, wrong)
    graph = joined((synthetic.graph, 1), (crowd, 1))
    yes, no = with_and_without("stopping", graph, also=("mixture", "filter"))
    assert 5 * yes.iterations < no.iterations


def test_narrow():
    # Of the likeliest edges six in ten are true, of those behind them none.
    explored, considered = int(constant("kSearchedEdges")), int(constant("kConsideredEdges"))
    synthetic = true_scene(8, 6 * explored // 10)
    likely = joined(
        (synthetic.graph, 1), (wrong_scene(9, explored - synthetic.graph.num_edges).graph, 1)
    )
    graph = joined((likely, 1), (wrong_scene(10, considered - explored).graph, 5))
    yes, no = with_and_without("narrow", graph, also=("mixture",))
    assert 3 * yes.iterations < no.iterations
    assert off_by(yes, synthetic) < 0.5
    # Where everything is explored anyway it changes nothing.
    few = synthetic_graph(11, 60).graph
    yes, no = with_and_without("narrow", few)
    assert yes.pose == no.pose
    assert yes.iterations == no.iterations


def test_distinct():
    synthetic = synthetic_graph(12, 80, candidates=3, first=0.8)
    yes, no = with_and_without("distinct", synthetic.graph, pool_size=50)
    assert yes.iterations == no.iterations
    assert yes.pooled == no.pooled == 50
    # Of the good seeds one is refined, and some bad ones; without it, every one.
    assert yes.refinements < no.refinements - 20
    assert max(off_by(yes, synthetic), off_by(no, synthetic)) < 0.5


def test_polish():
    # Noise as large as the threshold: what lies beyond it still tells of the pose.
    errors = np.zeros((12, 2))
    for seed, row in enumerate(errors):
        synthetic = synthetic_graph(40 + seed, 120, candidates=1, present=1.0, first=1.0, noise=0.8)
        runs = with_and_without(
            "polish", synthetic.graph, ("residuals",), threshold_px=0.8, min_iterations=500
        )
        assert runs[0].iterations == runs[1].iterations
        assert runs[0].refinements == runs[1].refinements
        row[:] = [off_by(run, synthetic) for run in runs]
    assert errors[:, 0].mean() < 0.9 * errors[:, 1].mean()


def test_residuals():
    # Forty exact edges among three hundred that pass the true epipolar lines at any distance up to
    # some pixels: within the threshold about as many are wrong as right, and only small residuals
    # tell them apart.
    exact, wrong = 40, 300
    errors = np.zeros((10, 2))
    for seed, row in enumerate(errors):
        synthetic = true_scene(60 + seed, exact + wrong, noise=0.1)
        points = synthetic.graph.points1.copy()
        points[exact:] += np.random.default_rng(seed).uniform(-20.0, 20.0, (wrong, 2))
        graph = with_graph(synthetic.graph, points1=points)
        runs = with_and_without("residuals", graph, min_iterations=500, max_iterations=2000)
        assert runs[0].iterations == runs[1].iterations
        row[:] = [off_by(run, synthetic) for run in runs]
        assert np.isfinite(runs[0].noise_px)
        assert np.isnan(runs[1].noise_px)
        assert runs[1].alternatives == ()
    assert 2.0 * np.median(errors[:, 0]) < np.median(errors[:, 1])
    assert (errors[:, 0] < errors[:, 1]).mean() >= 0.8


def test_trust():
    # One source is right, the other has as many edges by chance; also see test_source_trust.py.
    for seed in (5, 70):
        right, wrong = true_scene(seed, 60), wrong_scene(seed + 1, 350)
        graph = manymatch.merge_graphs([right.graph, wrong.graph], ["right", "wrong"])
        yes, no = with_and_without("trust", graph)
        assert yes.source_trust[0] == 1.0
        assert yes.source_trust[1] < 0.5
        assert no.source_trust.size == 0
        assert off_by(yes, right) < 0.5


def test_overlap():
    # Two clouds, whose candidates mostly lead to a wrong place; also see test_overlap.py.
    graph, truth, wrong = repeated_object(0)
    for parts, expected in (((), truth), (("overlap",), wrong)):
        found = manymatch.estimate_rigid_transform(graph, 0.05, options=options(disable=parts))
        np.testing.assert_allclose(found.transform, expected, atol=0.05)


@pytest.mark.parametrize("method", METHODS[1:])
def test_other_methods_have_none_of_them(method):
    graph = synthetic_graph(13).graph
    first, second = (
        manymatch.estimate_relative_pose(
            graph, K, K, method, options(max_iterations=500, disable=names)
        )
        for names in ((), tuple(AUTO_PARTS))
    )
    assert same(first, second)
