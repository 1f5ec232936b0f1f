"""How sure an estimate is: verdicts, the probability of the pose, and input that shows no scene."""

import dataclasses
import json
import math
import pickle
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import manymatch
from manymatch import _core, pose_error_deg
from manymatch._validate import METHODS
from manymatch.estimate import confidence, evidence, words
from manymatch.estimate.confidence import assess
from manymatch.estimate.evidence import Rival
from manymatch.estimate.relative_pose import RELATIVE_POSE
from manymatch.estimate.result import Alternative
from manymatch.estimate.uncertainty import (
    Covariance,
    HeldPose,
    Planarity,
    planar_twin,
    rotation,
)
from manymatch.estimate.words import angle
from manymatch.geometry.pose import RelativePose
from manymatch_lab.datasets.synthetic import (
    EASY,
    LOW_PARALLAX,
    ORDERING,
    PLANAR,
    make_scene,
    rotation_matrix,
)
from tests.oracles.problems import K
from tests.support.two_motions import two_motions

OPTIONS = manymatch.Options(min_iterations=500, max_iterations=3000)


BOTH = pytest.mark.parametrize("method", ["auto", "hcm-mcm"])  # the default and the paper's


def solve(graph, camera0=K, camera1=K, options=OPTIONS, method="auto"):
    estimate = manymatch.estimate_relative_pose(graph, camera0, camera1, method, options)
    return estimate, assess(estimate)


def solve_scene(config, seed, method="auto"):
    scene = make_scene(config, seed)
    return scene, *solve(scene.graph, scene.camera0, scene.camera1, method=method)


def clutter(rng, count=80):
    points = [rng.uniform((0, 0), (1023, 767), (count, 2)) for _ in range(2)]
    looks = [rng.standard_normal((count, 16)) for _ in range(2)]
    return manymatch.AssociationGraph(*points, *manymatch.associate(*looks, k=5))


def plain(record):
    """Assert that a record is plain JSON, without NaN, and return what a reader gets."""
    return json.loads(json.dumps(record, allow_nan=False))


# The verdict


@BOTH
@pytest.mark.parametrize("config", [EASY, ORDERING])
def test_a_scene_that_is_solved_says_so(config, method):
    scene, estimate, sure = solve_scene(config, 3, method)
    assert pose_error_deg(estimate.pose, scene.pose.R, scene.pose.t) < 2
    assert sure.verdict == "solved"
    assert sure.pose_probability >= confidence.SOLVED
    percent = confidence.probability_text(sure.pose_probability)
    agree = f"{len(estimate.matches)} matches agree on one pose, which is right (within 5°) with"
    assert sure.reason == f"{agree} probability {percent}."
    assert sure.num_matches == estimate.cardinality
    assert sure.rotation.sd_deg < 1
    assert sure.translation.sd_deg < 2
    assert sure.parallax_deg == estimate.parallax_deg
    assert 0.3 < sure.noise_px < 0.8  # 0.5 px were added
    assert sure.rotation_only < 0.1
    assert sure.planar < 0.5


@pytest.mark.parametrize("method", METHODS)
def test_clutter_is_no_match_by_every_method(method):
    estimate, sure = solve(clutter(np.random.default_rng(1)), method=method)
    assert estimate.success
    assert sure.verdict == "no match"
    assert sure.pose_probability < confidence.NO_MATCH
    agree = f"{len(estimate.matches)} matches agree on one pose"
    assert sure.reason == f"{agree}, no more than chance would give."
    assert sure.homography is None


def test_clutter_is_never_solved():
    options = manymatch.Options(min_iterations=1000, max_iterations=1000)
    claimed = [
        solve(clutter(np.random.default_rng([seed, 2]), 30 + seed), options=options)[1]
        for seed in range(60)
    ]
    counts = Counter(sure.verdict for sure in claimed)
    assert counts.keys() <= {"uncertain", "no match", "failed"}
    assert counts["no match"] >= 55
    assert np.mean([sure.pose_probability for sure in claimed]) < 0.05


@BOTH
def test_a_rotation_is_degenerate(method):
    scene, estimate, sure = solve_scene(LOW_PARALLAX, 2, method)
    assert sure.verdict == "degenerate"
    assert sure.low_parallax
    assert sure.parallax_deg == estimate.parallax_deg < 0.3
    known = f"The rotation is known to ±{angle(sure.rotation.sd_deg)}, the direction of translation"
    assert sure.reason.startswith(f"{known} is open (±")
    assert sure.reason.endswith(f"the matches meet at only {angle(sure.parallax_deg)}.")
    assert sure.rotation.probability > 0.99
    assert sure.translation.probability < 0.6
    # The rotation is known, and the claim says so.
    assert np.linalg.norm(estimate.pose.R - scene.pose.R) < 0.01
    assert sure.rotation.sd_deg < 1 < sure.translation.sd_deg
    assert sure.pose_probability < 0.5


@BOTH
def test_plane_is_called_planar_only_if_a_second_pose_fits(method):
    verdicts, wrong = set(), 0
    for seed in range(300, 316):
        scene, estimate, sure = solve_scene(PLANAR, seed, method)
        verdicts.add(sure.verdict)
        if sure.verdict in ("uncertain", "degenerate"):
            continue
        assert sure.planar > 0.7
        assert (sure.homography is not None) == (sure.verdict == "planar")
        if sure.verdict == "planar":
            assert sure.reason.startswith("The images match (")
            x0, x1 = (
                points[scene.true_matches[:, side]]
                for side, points in enumerate((scene.graph.points0, scene.graph.points1))
            )
            mapped = np.column_stack([x0, np.ones(len(x0))]) @ sure.homography.T
            errors = np.linalg.norm(mapped[:, :2] / mapped[:, 2:] - x1, axis=1)
            assert np.median(errors) < 2.0
        elif sure.verdict != "ambiguous":
            wrong += pose_error_deg(estimate.pose, scene.pose.R, scene.pose.t) >= 5
    assert wrong <= 1
    # "auto" compares the residuals of both poses, by which these scenes are decided.
    assert ("planar" in verdicts) == (method != "auto")
    assert verdicts & {"solved", "likely"}


def test_matches_that_hardly_determine_the_pose_are_not_solved():
    # Everything in one corner of the image, seen with little parallax.
    config = dataclasses.replace(
        EASY, baseline=(0.06, 0.06), noise_px=0.7, width=300, height=225, num_outliers=0
    )
    verdicts = [solve_scene(config, seed)[2] for seed in range(6)]
    assert not any(sure.verdict in ("solved", "likely") for sure in verdicts)
    assert any(" is known to ±" in sure.reason for sure in verdicts)


# Input that shows no scene


def graph_of(points0, points1, edges):
    return manymatch.AssociationGraph(points0, points1, np.reshape(edges, (-1, 2)))


def test_a_failed_estimate_is_failed():
    graph = graph_of(np.zeros((0, 2)), np.zeros((0, 2)), np.zeros((0, 2), dtype=int))
    estimate, sure = solve(graph)
    assert not estimate.success
    assert sure.verdict == "failed"
    assert estimate.failure in sure.reason
    assert sure.pose_probability == 0.0
    record = plain(sure.to_dict())
    assert record["covariance"] == [[None] * 5] * 5
    assert record["rotation_sd_deg"] is None
    assert str(sure).startswith("Failed: ")
    assert "\n" not in str(sure)


def few_matches(seed, count):
    scene = make_scene(EASY, seed)
    points = scene.graph.points0, scene.graph.points1
    return solve(graph_of(*points, scene.true_matches[:count]), scene.camera0, scene.camera1)


def test_five_matches_are_uncertain():
    estimate, sure = few_matches(0, 5)
    assert estimate.success
    assert (sure.verdict, sure.pose_probability) == ("uncertain", 0.0)
    assert sure.reason == "The number of distinct matches is 5, and a pose can be fitted to any 5."
    assert np.isnan(sure.covariance).all()
    assert sure.translation.sd_deg == math.inf
    plain(sure.to_dict())
    assert "unknown" in str(sure)


def repeated_points(distinct):
    """Forty keypoints at as few places."""
    rng, index = np.random.default_rng(distinct), np.arange(40) % distinct
    return tuple(rng.uniform(0, 700, (distinct, 2))[index] for _ in range(2))


LINE = np.linspace(0, 700, 50)[:, None] * [1.0, 0.7]
SPREAD = np.random.default_rng(3).uniform(0, 700, (60, 2))
WITHOUT_A_POSE = {
    **{f"{count} places": repeated_points(count) for count in (1, 2, 5, 7)},
    "equal images": (SPREAD, SPREAD),
    "points on a line": (LINE, LINE + 30.0),
}


@pytest.mark.parametrize("case", [6, 7, 8, *WITHOUT_A_POSE])
def test_input_that_shows_no_scene_is_not_solved(case):
    if case in WITHOUT_A_POSE:
        sure = solve(manymatch.AssociationGraph.from_matches(*WITHOUT_A_POSE[case]))[1]
    else:
        sure = few_matches(1, case)[1]
    assert sure.verdict in ("uncertain", "ambiguous", "degenerate", "failed")
    plain(sure.to_dict())
    str(sure)


def test_an_estimate_can_be_pickled_and_assessed():
    _, estimate, sure = solve_scene(EASY, 0)
    again = pickle.loads(pickle.dumps(estimate))  # noqa: S301
    assert plain(assess(again).to_dict()) == plain(sure.to_dict())
    assert "_graph" not in repr(estimate)
    with pytest.raises(ValueError, match=r"estimate must be an Estimate, got 3"):
        assess(3)


def test_confidence_depends_on_input_and_seed_only():
    _, estimate, first = solve_scene(ORDERING, 5)
    solve_scene(EASY, 1)
    again = assess(estimate)
    assert plain(again.to_dict()) == plain(first.to_dict())
    alone = dataclasses.replace(estimate, options=estimate.options.replace(threads=1))
    assert plain(assess(alone).to_dict()) == plain(first.to_dict())
    other = dataclasses.replace(estimate, options=estimate.options.replace(seed=9))
    assert assess(other).verdict == first.verdict


# The probability


def evidence_of(numbers, inliers, total):
    """Features one after the other, from counts."""
    places, matches, second_matches, apart = numbers
    share = min(second_matches / matches, 1)
    rank_one = sum(inliers[:2])
    return [
        math.log(max(places - 5, 1) / math.sqrt(sum(total))),
        math.log((rank_one + 0.5) / (sum(total[:2]) - rank_one + 1)),
        -share * math.log(1 + apart / 3),
    ]


@pytest.mark.parametrize("config", [EASY, ORDERING])
def test_features_equal_those_counted_one_by_one(config):
    _, estimate, _ = solve_scene(config, 7)
    pair = estimate._pair
    graph = pair.graph
    kept = manymatch.gms_filter(graph, (1.0, 1.0), (1.0, 1.0)).mask
    inliers, total = [0] * 10, [0] * 10
    for rank, passes, inlier in zip(graph.rank, kept, estimate.inliers, strict=True):
        level = 2 * (min(int(rank), 5) - 1) + (0 if passes else 1)
        total[level] += 1
        inliers[level] += bool(inlier)
    second = evidence.second_search(estimate)
    apart = pose_error_deg(estimate.pose, *second.model)
    known = evidence.evidence(estimate).spread
    assert max(known.rotation_sd, known.translation_sd) < math.radians(5)  # nothing is left open
    expected = evidence_of(
        (40, estimate.cardinality, second.cardinality, apart),
        inliers,
        total,
    )
    found = evidence.features_of(estimate, 35, second, apart)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-6)


def test_every_feature_speaks_for_the_pose():
    coefficients = RELATIVE_POSE.model_coefficients
    assert min(coefficients[1:]) >= 0
    known = evidence.evidence(solve_scene(EASY, 0)[1])
    assert len(known.features) + 1 == len(coefficients)


@given(arrays(np.float64, 4, elements=st.floats(-4, 4)), st.integers(0, 3), st.floats(0, 3))
def test_more_evidence_is_a_larger_probability(features, index, more):
    raised = features.copy()
    raised[index] += more
    first, second = (evidence.geometry_odds(RELATIVE_POSE, each) for each in (features, raised))
    assert first <= second
    assert 0 <= evidence.logistic(first) <= evidence.logistic(second) <= 1


@given(st.floats(1e-4, 1.5), st.floats(1e-4, 1.5), st.floats(1.0, 3.0))
def test_a_larger_deviation_is_less_accurate(rotation, translation, factor):
    def accurate(first, second):
        return evidence.accuracy(Covariance(np.eye(5), np.eye(3)[:2], 1.0, first, second))

    value = accurate(rotation, translation)
    assert 0 <= accurate(factor * rotation, translation) <= value <= 1
    assert 0 <= accurate(rotation, factor * translation) <= value
    assert accurate(rotation, math.inf) == 0


@pytest.mark.parametrize("shift", [0.0, 2.0])
def test_the_accuracy_is_that_of_errors_with_heavy_tails(shift):
    rng = np.random.default_rng(0)
    deviation, tail = 3.0, evidence._ERROR_TAIL
    scale = evidence._DEVIATION_SCALE * deviation / math.sqrt(2)
    errors = rng.normal(0, scale, (100_000, 2))
    errors /= np.sqrt(rng.gamma(tail, 1.0 / tail, (100_000, 1)))
    errors[:, 0] += shift
    expected = np.mean(np.linalg.norm(errors, axis=1) < 5)
    spread = Covariance(np.eye(5), np.eye(3)[:2], 1.0, 1e-9, math.radians(deviation))
    held = [HeldPose(1.0, spread, 0.0, math.radians(shift))]
    assert evidence.accuracy(spread, held) == pytest.approx(expected, abs=0.005)


@pytest.mark.statistics
def test_probabilities_are_those_observed_on_other_scenes():
    # None of these scenes or settings was fitted; short searches for some that fail.
    config = dataclasses.replace(EASY, num_points=30, num_outliers=100, descriptor_noise=0.3)
    options = manymatch.Options(min_iterations=100, max_iterations=100)
    claimed, right = [], []
    for seed in range(70_000, 70_120):
        scene = make_scene(config, seed)
        cameras = scene.camera0, scene.camera1
        estimate, sure = solve(scene.graph, *cameras, options=options.replace(seed=seed))
        claimed.append(sure.pose_probability)
        right.append(pose_error_deg(estimate.pose, scene.pose.R, scene.pose.t) < 5)
    claimed, right = np.array(claimed), np.array(right)
    assert 0.1 < right.mean() < 0.95
    assert abs(claimed.mean() - right.mean()) < 0.2
    assert claimed[right].mean() > claimed[~right].mean() + 0.2
    sure = claimed >= confidence.LIKELY
    assert right[sure].mean() > 0.85
    assert right[claimed < 0.3].mean() < 0.5


def test_the_second_search_costs_at_most_half_of_the_first(monkeypatch):
    scene = make_scene(ORDERING, 2)
    searches = []
    plain_search = _core.estimate_relative_pose

    def counted(pairs, method, settings, threads):
        results = plain_search(pairs, method, settings, threads)
        searches.append((method, settings[0], results[0]))
        return results

    monkeypatch.setattr(_core, "estimate_relative_pose", counted)
    for limit in (100, 700, 5000):
        options = manymatch.Options(min_iterations=limit, max_iterations=limit, seed=4)
        searches.clear()
        estimate = manymatch.estimate_relative_pose(
            scene.graph, scene.camera0, scene.camera1, options=options
        )
        assess(estimate)
        # Both searches of `assess` run at the same time.
        first, third, second = [searches[0], *sorted(searches[1:], key=lambda s: s[1].pool_size)]
        assert third[2].iterations == min(300, limit // 2)
        assert second[0] == "auto"
        assert second[2].iterations == min(500, limit // 2)
        assert second[1].pool_size == 10
        assert second[1].seed != first[1].seed
        # The samples are others, what the filter keeps is the same and was not computed again.
        np.testing.assert_array_equal(second[2].kept, first[2].kept)


def judged(estimate, geometry, rival, accurate, deviations=(0.01, 0.01), share=0.2):
    spread = Covariance(np.eye(5), np.eye(3)[:2], 1.0, *deviations)
    shape = Planarity(share, 0.93, 0.93)
    other = Rival(rival, 31.0, rival)
    odds = math.log(geometry / (1.0 - geometry))
    known = evidence.Evidence(60, shape, spread, np.zeros(8), odds, other, accurate)
    return confidence._judge(estimate, known)


DEGREE = math.radians(1.0)
AGREE = "{} matches agree on one pose, which is"
RIGHT = "right (within 5°) with probability"
# Numbers of the evidence, the verdict and its sentence if that is looked at.
VERDICTS = [
    ((0.9925, 0.0, 1.0), "solved", f"{AGREE} {RIGHT} 99.2 %."),
    ((0.8, 0.0, 1.0), "likely", f"{AGREE} {RIGHT} 80 %."),
    ((0.65, 0.0, 1.0), "uncertain", f"{AGREE} only {RIGHT} 65 %."),
    ((0.22, 0.0, 1.0), "uncertain", f"{AGREE} only {RIGHT} 22 %."),
    ((0.22, 0.9, 0.1), "uncertain", None),
    (
        *((0.12, 0.0, 1.0), "no match"),
        "{} matches agree on one pose, no more than chance would give.",
    ),
    (
        *((0.99, 0.4, 1.0), "ambiguous"),
        f"The matches fit more than one pose: this one is {RIGHT} 59 %, another, 31° away, with "
        "40 %.",
    ),
    (
        *((0.99, 0.0, 0.3, (0.4 * DEGREE, 12 * DEGREE)), "degenerate"),
        "The rotation is known to ±0.40°, the direction of translation is open (±12°)"
        ": the rays of the matches meet at only 4.8°.",
    ),
    (
        *((0.99, 0.0, 0.3, (8 * DEGREE, 2 * DEGREE)), "degenerate"),
        "The direction of translation is known to ±2.0°, the rotation is open (±8.0°).",
    ),
    (
        *((0.99, 0.0, 0.0, (8 * DEGREE, math.inf)), "degenerate"),
        "The rotation (±8.0°) and the direction of translation are open.",
    ),
    ((0.99, 0.4, 1.0, (0.01, 0.01), 0.95), "degenerate", None),
]


@pytest.mark.parametrize(("apart_deg", "counts"), [(7.0, False), (9.0, True)])
def test_a_pose_close_by_is_no_rival(apart_deg, counts):
    _, estimate, _ = solve_scene(EASY, 0)
    turn = rotation(np.array([0.0, math.radians(apart_deg), 0.0]))
    other = RelativePose(turn @ estimate.pose.R, estimate.pose.t)
    known = Alternative(other, 0.4, 20, estimate.matches[:20], 50.0)
    beside = dataclasses.replace(estimate, alternatives=(known,))
    assert (evidence.evidence(beside).rival.any == 0.4) == counts
    assert (assess(beside).verdict == "ambiguous") == counts


@pytest.mark.parametrize(("numbers", "verdict", "sentence"), VERDICTS)
def test_every_verdict_has_its_sentence(numbers, verdict, sentence):
    _, estimate, _ = solve_scene(EASY, 0)
    found, said = judged(estimate, *numbers)
    assert found == verdict
    assert sentence is None or said == sentence.format(len(estimate.matches))


# What holds for every estimate

QUICK = manymatch.Options(min_iterations=500, max_iterations=2000)
methods = st.sampled_from(["auto", "hcm-mcm"])
vectors = arrays(np.float64, 3, elements=st.floats(-1, 1, allow_subnormal=False))


@given(turn=vectors, t=vectors, plane=vectors)
def test_the_twin_has_the_same_homography(turn, t, plane):
    if np.linalg.norm(t) < 1e-2 or np.linalg.norm(plane) < 1e-2:
        return
    R, t = rotation_matrix(turn), t / np.linalg.norm(t)
    homography = R + np.outer(t, plane)
    values = np.linalg.svd(homography, compute_uv=False)
    # Without a gap between the singular values there is no second pose, or it is ill-determined.
    if min(values[0] - values[1], values[1] - values[2]) < 1e-2 or np.linalg.det(homography) < 1e-2:
        return
    x0 = np.random.default_rng(0).uniform(-0.3, 0.3, (20, 2))
    twin = planar_twin(R, t, plane, x0)
    assert twin is not None
    R1, t1 = twin
    np.testing.assert_allclose(R1 @ R1.T, np.eye(3), atol=1e-9)
    assert np.linalg.det(R1) > 0
    # H / middle singular value = R1 + t1 v1' for some plane v1: the rest of the rows are t1's.
    rest = homography / values[1] - R1
    across = rest - np.outer(t1, t1 @ rest)
    assert np.linalg.norm(across) < 1e-6
    assert np.linalg.norm(R1 - R) > 1e-4


@settings(max_examples=6)
@given(seed=st.integers(0, 10_000), power=st.sampled_from([-3, -1, 1, 4]), method=methods)
def test_confidence_does_not_depend_on_pixel_size(seed, power, method):
    scene = make_scene(EASY, seed)
    s = 2.0**power  # exact in binary, so that even rounding stays the same
    K = scene.camera0.K
    scale = np.diag([s, s, 1.0])
    graph = scene.graph
    scaled = manymatch.AssociationGraph(
        s * graph.points0, s * graph.points1, graph.edges, graph.similarity, graph.rank
    )
    # The motion filter rounds its grids to whole pixels, so that it alone knows how large they are.
    plain_options = QUICK.replace(disable=("filter",))
    options = plain_options.replace(threshold_px=s * QUICK.threshold_px)
    first = solve(graph, K, K, plain_options, method)[1].to_dict()
    other = solve(scaled, scale @ K, scale @ K, options, method)[1].to_dict()
    assert other.pop("noise_px") == pytest.approx(s * first.pop("noise_px"), rel=1e-9)
    assert json.dumps(other) == json.dumps(first)


@settings(max_examples=6)
@given(seed=st.integers(0, 10_000), config=st.sampled_from([EASY, ORDERING]), method=methods)
def test_swapped_images_have_the_same_confidence(seed, config, method):
    scene = make_scene(dataclasses.replace(config, noise_px=0.4), seed)
    graph = scene.graph
    swapped = manymatch.AssociationGraph(
        graph.points1, graph.points0, graph.edges[:, ::-1], graph.similarity, graph.rank
    )
    options = QUICK.replace(max_iterations=10_000)
    first = solve(graph, scene.camera0, scene.camera1, options, method)[1]
    second = solve(swapped, scene.camera1, scene.camera0, options, method)[1]
    if abs(first.num_matches - second.num_matches) > 3:
        return  # one of the two searches did not get there
    if first.other_motion or second.other_motion:
        return  # rows of equal points can look like a motion, more or less clearly
    assert first.verdict == second.verdict == "solved"
    assert min(first.pose_probability, second.pose_probability) > 0.9
    assert second.parallax_deg == pytest.approx(first.parallax_deg, rel=0.1)
    # The two searches end in poses that differ by what the matches leave open.
    assert 1 / 3 < second.rotation.sd_deg / first.rotation.sd_deg < 3


def test_no_alternative_is_likelier_than_the_choice():
    options = manymatch.Options(min_iterations=300, max_iterations=300)
    several = 0
    for seed in range(12):
        graph = clutter(np.random.default_rng([seed, 5]), 20)
        estimate, sure = solve(graph, options=options.replace(seed=seed))
        shares = [other.probability for other in estimate.alternatives]
        several += len(shares) > 1
        assert max(shares, default=0.0) <= 1.0 - sum(shares) + 1e-12
        assert all(p <= sure.pose_probability + 1e-12 for p in sure.alternative_probabilities)
        assert sure.pose_probability <= sure.rotation.probability <= 1.0
        assert sure.pose_probability <= sure.translation.probability <= 1.0
    assert several > 5


@given(st.floats(-40, 40), st.floats(-40, 40), st.floats(0, 0.9), st.floats(0.1, 1))
def test_probabilities_grow_with_their_log_odds(first, second, rival, accurate):
    shape, spread = Planarity(), Covariance(np.eye(5), np.eye(3)[:2], 1.0, 0.01, 0.01)
    less, more = (
        evidence.Evidence(60, shape, spread, np.zeros(8), odds, Rival(any=rival), accurate)
        for odds in sorted((first, second))
    )
    assert less.right <= more.right
    assert less.log_odds <= more.log_odds + 1e-12
    assert more.right == pytest.approx(evidence.logistic(more.log_odds), rel=1e-9)
    if rival == 0.0 and accurate == 1.0:
        assert more.log_odds == pytest.approx(max(first, second), abs=1e-9)


@pytest.mark.parametrize("config", [EASY, LOW_PARALLAX])
def test_json_has_both_parts_and_the_names_of_columns(config):
    sure = solve_scene(config, 1)[2]
    record = sure.to_dict()
    assert plain(record) == record
    for name in ("rotation", "translation"):
        part = getattr(sure, name)
        assert record[name] == {"probability": part.probability, "sd_deg": part.sd_deg}
        assert record[f"{name}_sd_deg"] == part.sd_deg
        assert record[f"{name}_probability"] == part.probability
    assert confidence.PartConfidence(**record["rotation"]) == sure.rotation


@pytest.mark.parametrize("turn", [0.0, 0.1])
def test_an_image_and_itself_determine_the_rotation(turn):
    points = np.random.default_rng(4).uniform(0.0, 900.0, (300, 2))
    K = np.array([[800.0, 0.0, 450.0], [0.0, 800.0, 450.0], [0.0, 0.0, 1.0]])
    R = np.array([[np.cos(turn), 0, np.sin(turn)], [0, 1, 0], [-np.sin(turn), 0, np.cos(turn)]])
    rays = np.c_[points, np.ones(300)] @ (K @ R @ np.linalg.inv(K)).T
    graph = manymatch.AssociationGraph.from_matches(points, rays[:, :2] / rays[:, 2:])
    found = manymatch.assess(manymatch.estimate_relative_pose(graph, K, K))
    assert found.verdict == "degenerate"
    assert found.reason.startswith("The rotation is known to ±")
    assert "the direction of translation is open" in found.reason


def test_direction_at_little_parallax_is_open_while_the_rotation_is_known():
    # Rays meet at about 0.5 degrees: the noise leaves the direction open.
    config = dataclasses.replace(EASY, baseline=(0.06, 0.06), noise_px=0.7)
    for seed in range(8):
        scene, estimate, sure = solve_scene(config, seed)
        assert sure.parallax_deg < 1.0
        assert sure.rotation.probability > 0.9
        assert sure.rotation.sd_deg < 1.0
        assert sure.translation.probability < sure.rotation.probability
        error = np.degrees(np.arccos(np.clip(estimate.pose.t @ scene.pose.t, -1, 1)))
        assert sure.verdict != "solved" or error < 5.0


# Two motions


def solve_motions(background, moving, seed, **settings):
    scene = two_motions(background, moving, seed)
    estimate, sure = solve(scene.graph, options=OPTIONS.replace(seed=seed, **settings))
    return scene, estimate, sure


@pytest.mark.parametrize(("background", "moving"), [(120, 80), (100, 100), (60, 140)])
def test_an_object_that_turns_is_said_to_be_another_motion(background, moving):
    for seed in range(5):
        scene, estimate, sure = solve_motions(background, moving, seed)
        other = sure.other_motion
        assert other is not None
        assert (
            f"; another motion with {other.cardinality} matches may be the camera's" in sure.reason
        )
        assert other.cardinality > 0.5 * min(background, moving)
        assert not {*estimate.matches[:, 0]} & {*other.matches[:, 0]}
        # One of the two is the background's, the other one the object's.
        for pose in scene.poses:
            errors = [
                pose_error_deg(found, pose.R, pose.t) for found in (estimate.pose, other.model)
            ]
            assert min(errors) < 10.0
        assert sure.verdict != "solved"
        share = other.cardinality / (other.cardinality + len(estimate.matches))
        assert sure.pose_probability <= 1.0 - 0.9 * share
        assert sure.rotation.probability <= 1.0 - 0.9 * share
        record = plain(sure.to_dict())["other_motion"]
        assert record["matches"] == other.cardinality
        assert record["pose"]["R"] == other.model.R.tolist()


def test_equal_motions_are_ambiguous_and_listed():
    scene, estimate, sure = solve_motions(100, 100, 1)
    assert sure.verdict == "ambiguous"
    said = words.estimate_sentences(estimate, scene.graph, sure)
    assert any(sentence.startswith("Or camera 1 is ") for sentence in said)


def test_a_static_scene_has_one_motion():
    for seed in range(8):
        for config in (EASY, ORDERING):
            assert solve_scene(config, seed)[2].other_motion is None
        assert solve_motions(200, 0, seed)[2].other_motion is None


@pytest.mark.parametrize(("moving", "said"), [(10, False), (80, True)])
def test_sources_that_repeat_each_other_make_no_motion(moving, said):
    for seed in range(5):
        graph = two_motions(150, moving, seed).graph
        # Four detectors find the same places, two pixels apart.
        shifts = np.array([[0.0, 0.0], [2.0, 0.0], [4.0, 0.0], [6.0, 0.0]])
        copies = [
            manymatch.AssociationGraph(
                graph.points0 + shift, graph.points1 + shift, graph.edges, **graph.of_edges()
            )
            for shift in shifts
        ]
        for seen in (graph, manymatch.merge_graphs(copies)):
            _, sure = solve(seen, options=OPTIONS.replace(seed=seed))
            assert (sure.other_motion is not None) == said
