"""Relative poses whose focal lengths are unknown: they are found, or said not to be determined."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import manymatch
from manymatch import AssociationGraph, Camera, estimate_relative_pose, pose_error_deg
from tests.oracles.geometry import essential
from tests.oracles.geometry import rotation_from_vector as rotation

SIZE = (1200, 900)
CENTRE = (599.5, 449.5)
UNKNOWN = Camera.unknown(*SIZE)


def made(seed, f0, f1=None, n=200, noise=0.3, wrong=1, R=None, t=None, flat=False):
    """A graph with `wrong` wrong candidates a keypoint, R and t; the centre is at depth 5."""
    rng = np.random.default_rng([19, seed])
    f1 = f0 if f1 is None else f1
    R = rotation(rng.uniform(-0.25, 0.25, 3)) if R is None else R
    t = np.array([1.0, 0.3, 0.4]) if t is None else np.asarray(t, float)
    X = rng.uniform((-2.5, -2, 3.0), (2.5, 2, 8.0), (4 * n, 3))
    if flat:
        X[:, 2] = 5.0 + 0.3 * X[:, 0]
    Y = X @ R.T + t
    x0 = f0 * X[:, :2] / X[:, 2:] + CENTRE
    x1 = f1 * Y[:, :2] / Y[:, 2:] + CENTRE
    limit = np.array(SIZE) - 1
    seen = (Y[:, 2] > 0.5) & np.all((x0 > 0) & (x0 < limit) & (x1 > 0) & (x1 < limit), axis=1)
    x0, x1 = x0[seen][:n], x1[seen][:n]
    x0, x1 = (x + rng.normal(0, noise, x.shape) for x in (x0, x1))
    m = len(x0)
    true = np.column_stack([np.arange(m), np.arange(m)])
    others = [np.column_stack([np.arange(m), rng.permutation(m)]) for _ in range(wrong)]
    edges = np.concatenate([true, *others])
    rank = np.repeat(np.arange(1, wrong + 2), m)
    edges, first = np.unique(edges, axis=0, return_index=True)
    order = np.argsort(first)
    graph = AssociationGraph(x0, x1, edges[order], rank=rank[np.sort(first)])
    return graph, R, t / np.linalg.norm(t)


def check(estimate, R, t, f0, f1=None, within=0.03, degrees=2.0):
    assert estimate.success
    assert pose_error_deg(estimate.pose, R, t) < degrees
    assert estimate.camera0.known_focal
    assert estimate.camera1.known_focal
    assert abs(estimate.camera0.focal / f0 - 1) < within
    assert abs(estimate.camera1.focal / (f1 or f0) - 1) < within


@pytest.mark.parametrize("focal", [700.0, 1100.0, 1900.0])
def test_a_shared_focal_length_is_found(focal):
    graph, R, t = made(1, focal)
    estimate = estimate_relative_pose(graph, UNKNOWN, UNKNOWN)
    check(estimate, R, t, focal)
    assert estimate.camera0.focal == estimate.camera1.focal
    assert estimate.focal_determined
    first, second = estimate.focal_sd_px
    assert first == second
    assert abs(estimate.camera0.focal - focal) < 3 * first < 0.3 * focal
    assert manymatch.assess(estimate).verdict == "solved"


def test_deviation_of_a_shared_focal_length_is_that_of_its_errors():
    """0.6 of what the matches leave, and the prior's where they tell nothing."""
    told = estimate_relative_pose(made(1, 1100.0)[0], UNKNOWN, UNKNOWN)
    parallel = made(2, 1100.0, R=np.eye(3), t=(1.0, 0.0, 0.0))[0]
    untold = estimate_relative_pose(parallel, UNKNOWN, UNKNOWN)
    shares = []
    for estimate in (told, untold):
        left = estimate._pair.focals.deviations[0] * estimate.camera0.focal
        shares.append(estimate.focal_sd_px[0] / left)
    assert shares[0] == pytest.approx(0.6, abs=0.02)
    assert 0.9 < shares[1] <= 1.0


@pytest.mark.parametrize("unknown", [0, 1])
def test_one_focal_length_may_be_known(unknown):
    focals = (1500.0, 800.0)
    graph, R, t = made(3, *focals)
    known = [Camera("SIMPLE_PINHOLE", *SIZE, (f, *CENTRE)) for f in focals]
    cameras = [UNKNOWN if side == unknown else known[side] for side in (0, 1)]
    estimate = estimate_relative_pose(graph, *cameras)
    check(estimate, R, t, *focals)
    found = (estimate.camera0, estimate.camera1)
    assert found[1 - unknown] == known[1 - unknown]
    assert estimate.focal_sd_px[1 - unknown] == 0.0 < estimate.focal_sd_px[unknown]


def test_two_unknown_focal_lengths_may_differ():
    graph, R, t = made(4, 1500.0, 800.0, n=400, noise=0.1)
    estimate = estimate_relative_pose(graph, UNKNOWN, UNKNOWN, shared_focal=False)
    check(estimate, R, t, 1500.0, 800.0, within=0.1, degrees=3.0)


def test_a_known_camera_may_have_distortion():
    graph, R, t = made(5, 1000.0, 800.0)
    lens = Camera("RADIAL", *SIZE, (1000.0, *CENTRE, -0.1, 0.02))
    normalised = (graph.points0 - CENTRE) / 1000.0
    bent = AssociationGraph(lens.project(normalised), graph.points1, graph.edges, rank=graph.rank)
    estimate = estimate_relative_pose(bent, lens, UNKNOWN)
    check(estimate, R, t, 1000.0, 800.0)


def test_pixels_need_not_be_square():
    graph, R, t = made(6, 900.0)
    wide = AssociationGraph(
        graph.points0 * (1.25, 1.0), graph.points1 * (1.25, 1.0), graph.edges, rank=graph.rank
    )
    params = (1.25 * 1200, 1200, 1.25 * CENTRE[0], CENTRE[1])
    camera = Camera("PINHOLE", 1500, 900, params, focal_sigma=0.5)
    estimate = estimate_relative_pose(wide, camera, camera)
    assert pose_error_deg(estimate.pose, R, t) < 2.0
    assert estimate.camera0.fy == pytest.approx(900.0, rel=0.03)
    assert estimate.camera0.fx / estimate.camera0.fy == pytest.approx(1.25)


def test_a_narrow_prior_is_kept_where_the_images_say_little():
    # Axes that are parallel: the focal length of both cannot be seen.
    graph, _, _ = made(7, 900.0, R=np.eye(3))
    narrow = Camera.unknown(*SIZE, focal_px=950.0, sigma=0.02)
    estimate = estimate_relative_pose(graph, narrow, narrow)
    assert abs(estimate.camera0.focal / 950.0 - 1) < 0.05


def meeting():
    """Two cameras at the same distance of a point that both look at."""
    a = 0.2
    R = rotation([0.0, 2 * a, 0.0])
    centre = 5.5 * np.array([math.sin(2 * a), 0.0, 1 - math.cos(2 * a)])
    return R, -R @ centre


@pytest.mark.parametrize("kind", ["parallel", "meeting"])
def test_undetermined_focal_is_reported(kind):
    R, t = (np.eye(3), (1.0, 0.2, 0.1)) if kind == "parallel" else meeting()
    graph, _, _ = made(8, 1200.0, R=R, t=t)
    estimate = estimate_relative_pose(graph, UNKNOWN, UNKNOWN)
    assert estimate.success
    assert not estimate.focal_determined
    assert estimate.focal_sd_px[0] > 0.2 * estimate.camera0.focal
    # The same motion is seen if one of the two is known.
    known = Camera("SIMPLE_PINHOLE", *SIZE, (1200.0, *CENTRE))
    assert estimate_relative_pose(graph, known, UNKNOWN).focal_determined


def test_the_covariance_of_the_pose_has_that_of_the_focal_length():
    graph, _, _ = made(9, 900.0)
    found = estimate_relative_pose(graph, UNKNOWN, UNKNOWN)
    known = dataclasses.replace(found, _pair=found._pair.changed(focals=None))
    more, less = manymatch.assess(found), manymatch.assess(known)
    assert more.rotation.sd_deg > 1.1 * less.rotation.sd_deg
    assert more.translation.sd_deg > 1.1 * less.translation.sd_deg
    assert more.pose_probability < less.pose_probability + 1e-6


def zoomed(seed, n, f1, forward):
    """Matches of a camera that moves along its axis and zooms, a third of them wrong, and t."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(-a, b, n) for a, b in ((2.2, 2.2), (1.6, 1.6), (-5, 6))])
    t = np.array([-0.025, 0.01, forward])
    centre = np.array([499.5, 374.5])
    x0, x1 = (f * Z[:, :2] / Z[:, 2:] + centre for f, Z in ((1120.0, X), (f1, X + t)))
    seen = ((x1 > 0) & (x1 < 2 * centre)).all(axis=1)
    x0, x1 = (x[seen] + 0.5 * rng.normal(size=(seen.sum(), 2)) for x in (x0, x1))
    wrong = rng.random(len(x1)) < 0.3
    x1[wrong] = rng.uniform(0, 2 * centre, (wrong.sum(), 2))
    return AssociationGraph.from_matches(x0, x1), t / np.linalg.norm(t)


@pytest.mark.parametrize(
    ("seed", "n", "f1", "forward"),
    [(161, 131, 2107.0, 0.93), (488, 98, 1206.0, -0.93), (559, 79, 1833.0, 0.93)],
)
def test_a_zoom_that_can_be_taken_for_motion_is_no_certain_pose(seed, n, f1, forward):
    graph, t = zoomed(seed, n, f1, forward)
    unknown = Camera.unknown(1000, 750)
    estimate = estimate_relative_pose(graph, unknown, unknown, shared_focal=False)
    assert abs(estimate.pose.t @ t) > 0.99  # forward and backward fit equally well
    confidence = manymatch.assess(estimate)
    assert confidence.pose_probability < 0.85
    assert confidence.rotation.probability > 0.9
    assert confidence.verdict != "solved"
    if confidence.verdict == "likely":
        assert "the images leave the focal lengths open" in confidence.reason
    assert confidence.translation.sd_deg > 45.0
    known = [Camera.unknown(1000, 750).with_focal(f) for f in (1120.0, f1)]
    right = estimate_relative_pose(graph, *known)
    assert right.pose.t @ t > 0.99
    assert manymatch.assess(right).translation.sd_deg < 5.0


@pytest.mark.parametrize("shared", [True, False])
def test_exact_matches_can_be_assessed(shared):
    graph, R, t = made(9, 900.0, noise=0.0, wrong=0)
    estimate = estimate_relative_pose(graph, UNKNOWN, UNKNOWN, shared_focal=shared)
    check(estimate, R, t, 900.0)
    assert manymatch.assess(estimate).verdict == "solved"


def test_good_prior_does_not_lower_the_verdict():
    graph, _, _ = made(9, 900.0, t=(1.0, 0.0, 0.0), R=np.eye(3))
    exif = Camera.unknown(*SIZE, 900.0, 0.025)
    estimate = estimate_relative_pose(graph, exif, exif)
    assert not estimate.focal_determined
    assert not estimate.focal_vague
    assert manymatch.assess(estimate).verdict == "solved"


def test_undetermined_focal_falls_back_to_prior():
    # The support rises slowly towards one end of a flat valley; the pose of the least expected
    # error is in the middle of it.
    R, t = meeting()
    for seed in range(3):
        graph, _, _ = made(seed, 1700.0, R=R, t=t, wrong=2)
        estimate = estimate_relative_pose(graph, UNKNOWN, UNKNOWN)
        off = math.log(estimate.camera0.focal / UNKNOWN.focal)
        assert abs(off) < 1.5 * UNKNOWN.focal_sigma
        assert estimate.focal_sd_px[0] > 0.2 * estimate.camera0.focal


def test_alternatives_have_focal_lengths_of_their_own():
    graph, _, _ = made(3, 900.0, n=60, wrong=3, flat=True)
    estimate = estimate_relative_pose(graph, UNKNOWN, UNKNOWN)
    assert estimate.alternatives
    for other in estimate.alternatives:
        first, second = other.focals_px
        assert first == second > 0
        # They explain the matches of the alternative, with its pose.
        ends = graph.points0[other.matches[:, 0]], graph.points1[other.matches[:, 1]]
        pixels = [points - CENTRE for points in ends]
        away = slow_residuals(*pixels, other.model.R, other.model.t, other.focals_px)
        assert np.median(np.abs(away)) < 1.0
    known = Camera("SIMPLE_PINHOLE", *SIZE, (900.0, *CENTRE))
    found = estimate_relative_pose(graph, known, known)
    assert all(other.focals_px == () for other in found.alternatives)


@pytest.mark.filterwarnings("ignore:camera1 must have width")
def test_focal_is_shared_by_default_for_equal_sizes():
    graph, _, _ = made(10, 900.0, n=60, wrong=0)

    def shares(first, second, **keywords):
        found = estimate_relative_pose(graph, first, second, **keywords)
        return found.camera0.focal == found.camera1.focal

    assert shares(UNKNOWN, UNKNOWN)
    upright = Camera("SIMPLE_PINHOLE", *SIZE[::-1], (UNKNOWN.focal, *CENTRE), focal_sigma=0.5)
    assert shares(UNKNOWN, upright)
    other = Camera("SIMPLE_PINHOLE", 1200, 800, (UNKNOWN.focal, *CENTRE), focal_sigma=0.5)
    assert not shares(UNKNOWN, other)
    assert shares(UNKNOWN, other, shared_focal=True)
    assert not shares(UNKNOWN, Camera.unknown(*SIZE, sigma=0.4))
    with pytest.raises(ValueError, match="shared_focal must be True, False or None, got 'yes'"):
        shares(UNKNOWN, UNKNOWN, shared_focal="yes")
    words = "shared_focal must not be True unless both focal lengths are unknown and have the same "
    with pytest.raises(ValueError, match=f"{words}prior"):
        shares(UNKNOWN, Camera.unknown(*SIZE, sigma=0.1), shared_focal=True)


def test_too_few_candidates_are_a_failure_with_a_reason():
    graph, _, _ = made(12, 900.0, n=4, wrong=0)
    estimate = estimate_relative_pose(graph, UNKNOWN, UNKNOWN)
    assert not estimate.success
    assert estimate.failure
    assert estimate.camera0 == UNKNOWN
    assert estimate.focal_sd_px == ()


@settings(max_examples=8, deadline=None)
@given(factor=st.floats(0.2, 8.0), seed=st.integers(0, 1000))
@example(factor=2.5, seed=103)  # a model without matches was taken once
def test_another_image_size_changes_nothing_but_the_unit(factor, seed):
    graph, _, _ = made(seed, 1000.0, n=120)
    points = [(p + 0.5) * factor - 0.5 for p in (graph.points0, graph.points1)]
    resized = AssociationGraph(*points, graph.edges, rank=graph.rank)
    # The motion filter counts in whole pixels.
    options = manymatch.Options(disable=("filter",))
    first = estimate_relative_pose(graph, UNKNOWN, UNKNOWN, options=options)
    camera = UNKNOWN.scaled(factor)
    second = estimate_relative_pose(
        resized, camera, camera, options=options, threshold_px=factor, shared_focal=True
    )
    assert second.camera0.focal == pytest.approx(factor * first.camera0.focal, rel=1e-3)
    assert pose_error_deg(second.pose, first.pose.R, first.pose.t) < 0.1


def slow_residuals(x0, x1, R, t, f):
    """Signed Sampson distances of points in images with focal lengths f, by the definition."""
    F = np.diag([1, 1, f[1]]) @ essential(R, t) @ np.diag([1, 1, f[0]])
    a, b = (np.column_stack([x, np.ones(len(x))]) for x in (x0, x1))
    lines1, lines0 = a @ F.T, b @ F
    length = np.sqrt(np.sum(lines1[:, :2] ** 2, axis=1) + np.sum(lines0[:, :2] ** 2, axis=1))
    return np.sum(b * lines1, axis=1) / length
