"""Method "auto": what it promises of its result, odd graphs, proposals, threads."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import manymatch
from manymatch import _core
from manymatch.estimate.relative_pose import prepare
from manymatch.geometry.camera import Camera
from manymatch.geometry.pose import pose_error_deg
from manymatch.options import AUTO_PARTS, core_options
from manymatch_lab.datasets.synthetic import EASY, make_scene
from tests.oracles.auto import joint_ranks
from tests.oracles.auto_graphs import (
    CENTRE,
    FOCAL,
    K,
    constant,
    joined,
    off_by,
    synthetic_graph,
    true_scene,
    with_graph,
)
from tests.oracles.matching import is_matching
from tests.support.synthetic_problems import same

CONSIDERED, EXPLORED = int(constant("kConsideredEdges")), int(constant("kSearchedEdges"))
# Beyond r (1 - r^2 / 5) = 0.86 no ray has a pixel.
FOLDED = Camera("SIMPLE_RADIAL", 1024, 768, [FOCAL, *CENTRE, -0.2])


def options(**changes):
    return manymatch.Options(**{"min_iterations": 200, "max_iterations": 2000, **changes})


def solve(graph, settings=None, proposals=None, camera=K):
    settings = settings or options()
    return manymatch.estimate_relative_pose(graph, camera, camera, "auto", settings, proposals)


def assert_contract(graph, estimate, camera=K):
    """Inliers and scores are those of the pose on the whole graph, matches resolve the inliers."""
    assert estimate.success
    score = manymatch.score_pose(graph, camera, camera, estimate.pose, estimate.options)
    np.testing.assert_array_equal(estimate.inliers, score.inliers)
    assert (estimate.hcm, estimate.num_inliers) == (score.hcm, score.num_inliers)
    assert estimate.cardinality == score.cardinality == len(estimate.matches)
    assert is_matching(estimate.matches)
    numbers = {tuple(edge): e for e, edge in enumerate(graph.edges.tolist())}
    chosen = np.array([numbers[tuple(match)] for match in estimate.matches.tolist()], dtype=int)
    assert estimate.inliers[chosen].all()
    assert (np.diff(chosen) > 0).all()
    for array in (estimate.match_probability, estimate.inliers, estimate.matches):
        assert not array.flags.writeable


@pytest.mark.parametrize("ranked", [True, False])
def test_contract(ranked):
    for seed in range(4):
        graph = synthetic_graph(seed, 70, first=0.7, noise=0.4, ranked=ranked).graph
        estimate = solve(graph, options(seed=seed, q=0.4, delta=0.02, threshold_px=1.5))
        assert_contract(graph, estimate)
        assert estimate.method == "auto"


def test_guidance_does_not_matter():
    graph = synthetic_graph(3).graph
    assert same(solve(graph, options(guidance=0.9)), solve(graph))


def test_inliers_beyond_the_considered_edges_are_reported():
    synthetic = synthetic_graph(7, 700, candidates=4, first=0.7)
    assert synthetic.graph.num_edges > CONSIDERED
    estimate = solve(synthetic.graph)
    assert_contract(synthetic.graph, estimate)
    assert off_by(estimate, synthetic) < 0.5
    order = np.argsort(joint_ranks(synthetic.graph), kind="stable")
    beyond = order[CONSIDERED:][synthetic.true[order[CONSIDERED:]]]
    assert len(beyond) > 10
    assert estimate.inliers[beyond].mean() > 0.9


@pytest.mark.parametrize("side", [0, 1])
def test_first_edges_may_all_touch_one_keypoint(side):
    synthetic = true_scene(8, 80)
    rng = np.random.default_rng(8)
    hub = CONSIDERED + 10
    points = [synthetic.graph.points0, synthetic.graph.points1]
    far = rng.uniform((0, 0), (1024, 768), size=(hub, 2))
    edges = np.zeros((hub, 2), dtype=int)
    edges[:, 1 - side] = 80 + np.arange(hub)
    points[1 - side] = np.concatenate([points[1 - side], far])
    for rank in (None, np.ones(hub + 80, dtype=int)):
        all_edges = np.concatenate([edges, synthetic.graph.edges])
        graph = manymatch.AssociationGraph(*points, all_edges, rank=rank)
        estimate = solve(graph)
        assert_contract(graph, estimate)
        assert off_by(estimate, synthetic) < 0.5
        assert estimate.inliers[hub:].mean() > 0.9


@pytest.mark.parametrize("value", [2e9, 1e30])
def test_huge_coordinates_switch_the_filter_off(value):
    synthetic = synthetic_graph(9, 150, candidates=2, depth=(30.0, 40.0))
    points0 = synthetic.graph.points0.copy()
    points0[[3, 50]] = value, -value
    graph = with_graph(synthetic.graph, points0=points0)
    estimate = solve(graph)
    assert_contract(graph, estimate)
    without = solve(graph, options(disable=("filter",)))
    assert same(estimate, without)
    points0[[3, 50]] = 9e8, -9e8  # still fine for the filter, which is then seen to work
    graph = with_graph(synthetic.graph, points0=points0)
    assert solve(graph).worst_pooled != solve(graph, options(disable=("filter",))).worst_pooled


def test_pixels_that_cannot_be_unprojected():
    synthetic = synthetic_graph(10, 120, candidates=2, first=0.8, noise=0.05)
    points = []
    for pixels in (synthetic.graph.points0, synthetic.graph.points1):
        x = (pixels - CENTRE) / FOCAL
        x = np.where(np.abs(x) > 0.8, 0.0, x)  # far out nothing is seen; these become wrong
        points.append(FOCAL * x * (1 - 0.2 * (x**2).sum(axis=1, keepdims=True)) + CENTRE)
    points[0][:20] += 5000.0
    points[1][15:30] -= 5000.0
    graph = with_graph(synthetic.graph, points0=points[0], points1=points[1])
    assert np.isnan(FOLDED.unproject(graph.points0)).any(axis=1).sum() == 20
    estimate = solve(graph, camera=FOLDED)
    assert_contract(graph, estimate, FOLDED)
    assert off_by(estimate, synthetic) < 1.0
    assert not (estimate.matches[:, 0] < 20).any()
    assert not ((estimate.matches[:, 1] >= 15) & (estimate.matches[:, 1] < 30)).any()


def test_nothing_can_be_unprojected():
    graph = true_scene(11, 40).graph
    far = with_graph(graph, points0=graph.points0 + 5000.0)
    failed = solve(far, camera=FOLDED)
    assert "no sample gave a pose" in failed.failure
    assert failed.pose is None
    assert not failed.match_probability.flags.writeable


@pytest.mark.parametrize("before", [200, EXPLORED + 20, CONSIDERED + 20])
def test_proposals_are_honoured_wherever_they_stand(before):
    # Two motions. The first has more and better edges; samples come from the second alone.
    crowd, few = true_scene(12, before), true_scene(13, 150)
    graph = joined((crowd.graph, 1), (few.graph, 5))
    place, settings = np.arange(graph.num_edges), options(max_iterations=500)
    assert off_by(solve(graph, settings), crowd) < 0.5
    estimate = solve(graph, settings, place >= before)
    assert_contract(graph, estimate)
    assert off_by(estimate, few) < 0.5
    assert estimate.inliers[before:].mean() > 0.9
    assert off_by(solve(graph, settings, place < 60), crowd) < 0.5


def test_search_equals_the_paper_with_all_parts_disabled():
    for seed in range(8):
        graph = synthetic_graph(30 + seed, 90, candidates=3, first=0.6, noise=0.4).graph
        settings = options(seed=seed, disable=tuple(AUTO_PARTS))
        bare = solve(graph, settings)
        paper = manymatch.estimate_relative_pose(graph, K, K, "hcm-mcm", settings)
        for name in ("iterations", "refinements", "pooled", "worst_pooled"):
            assert getattr(bare, name) == getattr(paper, name)
        # The found pose, which the paper forgets, competes with the pool: it can only help.
        assert bare.cardinality >= paper.cardinality


def test_points_on_the_normalised_plane_are_filtered_like_pixels():
    scene = make_scene(EASY, seed=3)
    x0, x1 = (
        scene.camera0.unproject(scene.graph.points0),
        scene.camera1.unproject(scene.graph.points1),
    )

    def graph(scale):
        return manymatch.AssociationGraph(scale * x0, scale * x1, scene.graph.edges)

    pair = prepare(graph(1.0), np.eye(3), np.eye(3), options(threshold_px=1e-3))
    (result,) = _core.estimate_relative_pose(
        [pair.for_core()], "auto", [core_options(pair.options)], 1
    )
    span = max(np.ptp(x0, axis=0).max(), np.ptp(x1, axis=0).max())
    size = (1.0, 1.0)
    expected = manymatch.gms_filter(graph(1000.0 / span), size, size).mask
    np.testing.assert_array_equal(result.kept, expected)
    assert not np.array_equal(expected, manymatch.gms_filter(graph(1.0), size, size).mask)


def rows_of_wrong_candidates(seed, true=45, wrong=300):
    """A turn with 45 true edges; 300 keypoints with five partners each at about their height."""
    rng = np.random.default_rng(seed)
    camera = np.array([[700.0, 0.0, 512.0], [0.0, 700.0, 190.0], [0.0, 0.0, 1.0]])
    R = Rotation.from_euler("y", -35, degrees=True).as_matrix()
    t = np.array([0.4, 0.0, 0.9]) / np.hypot(0.4, 0.9)
    points0, points1 = [], []
    while len(points0) < true:
        pixel = rng.uniform((0, 0), (1024, 380))
        point = R @ (np.linalg.solve(camera, [*pixel, 1.0]) * rng.uniform(4, 30)) + t
        image = (camera @ point)[:2] / point[2]
        if point[2] > 0.5 and (image > 0).all() and (image < (1024, 380)).all():
            points0.append(pixel + rng.normal(0, 0.4, 2))
            points1.append(image + rng.normal(0, 0.4, 2))
    points0 = np.r_[points0, rng.uniform((0, 0), (1024, 380), (wrong, 2))]
    points1 = np.r_[points1, rng.uniform((0, 0), (1024, 380), (wrong, 2))]
    edges, rank = [(i, i) for i in range(true)], [1] * true
    for i in range(true, true + wrong):
        weight = np.exp(-0.5 * ((points1[:, 1] - points0[i, 1]) / 20.0) ** 2)
        edges += [
            (i, j) for j in rng.choice(len(weight), 5, replace=False, p=weight / weight.sum())
        ]
        rank += range(1, 6)
    order = np.argsort(rank, kind="stable")
    lists = np.array(edges)[order], None, np.array(rank)[order]
    return manymatch.AssociationGraph(points0, points1, *lists), camera, R, t


def test_wrong_candidates_at_the_same_height_do_not_outvote_the_true_pose():
    right = 0
    for seed in range(12):
        graph, camera, R, t = rows_of_wrong_candidates(seed)
        found = manymatch.estimate_relative_pose(graph, camera, camera, seed=seed)
        right += pose_error_deg(found.pose, R, t) < 10.0
    assert right >= 10
