"""Words for estimates and poses: numbers that agree with the objects, directions that are true."""

import dataclasses
import math
import re
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manymatch import (
    AssociationGraph,
    Camera,
    Options,
    assess,
    estimate_homography,
    estimate_relative_pose,
)
from manymatch.estimate import confidence as confidence_module
from manymatch.estimate import words
from manymatch.estimate.confidence import Verdict
from manymatch.estimate.evidence import Evidence, PartConfidence, Rival
from manymatch.estimate.many import PROBLEMS
from manymatch.estimate.result import Alternative
from manymatch.estimate.uncertainty import Covariance, Planarity
from manymatch.estimate.words import (
    camera_centre,
    describe_pose,
    describe_rotation,
    describe_translation,
)
from manymatch.geometry.pose import AbsolutePose, RelativePose
from manymatch_lab.datasets.synthetic import EASY, LOW_PARALLAX, make_scene
from tests.oracles.geometry import rotation_from_vector
from tests.support.synthetic_alternatives import with_alternatives
from tests.support.wording import assert_reads_well, assert_sentence


@pytest.fixture(scope="module")
def scene():
    return make_scene(EASY, 0)


@pytest.fixture(scope="module")
def estimate(scene):
    return estimate_relative_pose(scene.graph, scene.camera0, scene.camera1)


@pytest.fixture(scope="module")
def confidence(estimate):
    return assess(estimate)


def test_a_solved_pair(scene, estimate, confidence):
    verdict, pose, numbers = words.estimate_sentences(estimate, scene.graph, confidence)
    assert verdict == f"Solved: {confidence.reason}"
    assert pose.startswith("Camera 1 is turned ")
    assert numbers.startswith("Method auto: ")
    expected = round(float(estimate.match_probability.sum()))
    said = f" ({expected} expected to be right)" if expected < len(estimate.matches) else ""
    assert f"{len(estimate.matches)} one-to-one matches{said}; noise" in numbers
    assert f"{scene.graph.num_edges} candidates, {estimate.num_inliers} inliers" in numbers
    for text in (verdict, pose, numbers):
        assert_sentence(text)
    assert words.estimate_sentences(estimate, scene.graph) == [pose, numbers]


def as_problem(estimate, problem, model, **fields):
    """The estimate as one of another problem, with a noise of 0.25."""
    cls = PROBLEMS[problem].result
    lengths = {"threshold": 1.0, "noise": 0.25, "noise_sd": 0.01}
    fields |= {f"{name}{cls.length_suffix}": value for name, value in lengths.items()}
    shared = {f.name for f in dataclasses.fields(cls) if hasattr(estimate, f.name)}
    kept = {name: getattr(estimate, name) for name in shared}
    return cls(**{**kept, **fields, "problem": problem, "model": model})


def with_focals(estimate, focals, deviations, determined=True):
    """The estimate with focal lengths as if they had been found."""
    cameras = [Camera("SIMPLE_PINHOLE", 640, 480, [f, 319.5, 239.5]) for f in focals]
    return dataclasses.replace(
        estimate,
        **{f"camera{side}": camera for side, camera in enumerate(cameras)},
        focal_sd_px=tuple(deviations),
        focal_determined=determined,
    )


ALSO = "The two images do not determine it, and the pose is only as good as that."


@pytest.mark.parametrize(
    ("focals", "deviations", "determined", "said"),
    [
        ((912.4, 912.4), (25.2, 25.2), True, "Focal length found: 912 ± 25 px (from the two"),
        ((912, 1100), (0.25, 40), True, "Focal lengths found: 912 ± 0.2 px and 1100 ± 40 px (from"),
        ((912, 1100), (0, 40), True, "Focal length of image 1 found: 1100 ± 40 px (from the two "),
        ((912, 1100), (30, 0), True, "Focal length of image 0 found: 912 ± 30 px (from the two im"),
        ((1024, 1024), (480, 480), False, f"Focal length assumed: 1024 ± 480 px. {ALSO}"),
        ((1024, 500), (40, 20), False, "Focal lengths as given: 1024 ± 40 px and 500 ± 20 px. The"),
    ],
)
def test_focal_lengths_that_were_found(
    scene, estimate, confidence, focals, deviations, determined, said
):
    found = with_focals(estimate, focals, deviations, determined)
    [sentence] = words.focal_sentences(found)
    assert sentence.startswith(said)
    assert_sentence(sentence)
    assert sentence in words.estimate_sentences(found, scene.graph, confidence)
    assert sentence in words.headline(found, confidence)[1]
    [row] = [row for row in words.confidence_rows(confidence, found) if row[0] == "Focal length"]
    assert row[1] in said or " and " in row[1]
    assumed = "assumed, not known" if ALSO in said else "as given"
    assert row[2] == ("found from the images" if determined else assumed)
    doubtful = dataclasses.replace(confidence, verdict="ambiguous")
    [other] = words.focal_sentences(found, doubtful)
    assert (other == sentence) == (not determined)
    if determined:
        assert re.fullmatch(r"Focal length.* with this pose: [^(]* px\.", other)
        assert_sentence(other)


def test_focal_lengths_of_an_absolute_pose_and_known_ones(estimate):
    found = as_problem(with_focals(estimate, (800, 1), (9,)), "absolute", estimate.pose)
    assert words.focal_sentences(found) == ["Focal length found: 800 ± 9 px (from the image)."]
    found = with_focals(estimate, (800, 1), (300,), determined=False)
    found = as_problem(found, "absolute", estimate.pose)
    assert words.focal_sentences(found)[0].startswith(
        "Focal length assumed: 800 ± 300 px. The image does not determine it, and"
    )
    assert words.focal_sentences(estimate) == []
    assert words.focal_texts(estimate) == {}


def test_reason_of_failure_appears_once(scene):
    graph = scene.graph.head(1)
    failed = estimate_relative_pose(graph, scene.camera0, scene.camera1)
    confidence = assess(failed)
    said = words.estimate_sentences(failed, graph, confidence)
    assert " ".join(said).count(failed.failure) == 1
    assert said[-1].endswith("1 candidate.")
    for text in said:
        assert_sentence(text)
    assert words.model_sentence(failed).startswith("No solution was found: ")
    assert words.confidence_rows(confidence, failed) == []


def test_low_parallax_has_no_direction():
    scene = make_scene(LOW_PARALLAX, 0)
    estimate = estimate_relative_pose(scene.graph, scene.camera0, scene.camera1)
    said = words.model_sentence(estimate)
    assert "moved cannot be determined" in said
    assert_sentence(said)


def test_rows_have_the_numbers(estimate, confidence):
    rows = {name: value for name, value, _ in words.confidence_rows(confidence, estimate)}
    assert rows["A match"] == words.probability_text(estimate.match_probability.mean())
    assert rows["Parallax"] == f"{confidence.parallax_deg:.2f}°"
    assert rows["One plane"] == f"{100 * confidence.planar:.0f} %"
    assert "A match" not in {name for name, _, _ in words.confidence_rows(confidence)}
    unknown = dataclasses.replace(
        confidence,
        pose_probability=0.994,
        rotation=PartConfidence(0.999, 0.0312),
        translation=PartConfidence(0.5, math.inf),
    )
    rows = {name: value for name, value, _ in words.confidence_rows(unknown)}
    assert (rows["Pose"], rows["Rotation"]) == ("99.4 %", "±0.031°")
    assert rows["Direction of motion"] == "unknown"


def said_of(estimate, graph, confidence, verdict):
    shares = tuple(other.probability for other in estimate.alternatives)
    judged = dataclasses.replace(
        confidence, verdict=verdict, reason="It is so.", alternative_probabilities=shares
    )
    return words.estimate_sentences(estimate, graph, judged)


@pytest.mark.parametrize("verdict", get_args(Verdict))
def test_doubtful_verdicts_omit_claims_that_need_a_right_pose(scene, estimate, confidence, verdict):
    """What holds only if the pose is right is not said beside a verdict that doubts it."""
    unsure = dataclasses.replace(estimate, match_probability=0.9 * estimate.match_probability)
    first, *others = said_of(with_alternatives(unsure), scene.graph, confidence, verdict)
    assert first == f"{verdict.capitalize()}: It is so."
    relied_on = verdict in ("solved", "likely")
    assert any("expected to be right" in sentence for sentence in others) == relied_on
    assert not any(re.search(r"chance|certain|guess", sentence) for sentence in others)
    judged = dataclasses.replace(confidence, verdict=verdict)
    rows = {name: text for name, *text in words.confidence_rows(judged, estimate)}
    assert ("A match" in rows) == relied_on
    if verdict in words.NOTHING:
        assert rows == {}
        assert not any("Camera 1" in sentence for sentence in others)
        return
    expected = words.probability_text(confidence.pose_probability)
    assert rows["Pose"] == [expected, "probability to be right (within 5°)"]
    if verdict == "planar":
        assert not any("Camera 1" in sentence for sentence in others)
        return
    # Low parallax is the verdict's to judge.
    low = dataclasses.replace(estimate, low_parallax=True)
    assert "cannot be determined" not in words.headline(low, judged)[0]
    assert any("cannot be" in s for s in said_of(low, scene.graph, confidence, verdict)) != (
        relied_on
    )


@pytest.mark.parametrize("verdict", get_args(Verdict))
def test_alternatives_are_listed_for_ambiguous_poses(scene, estimate, confidence, verdict):
    several = with_alternatives(estimate, (0.4, 0.004))
    said = [s for s in said_of(several, scene.graph, confidence, verdict) if s.startswith("Or ")]
    assert len(said) == (2 if verdict == "ambiguous" else 0)
    for sentence, other, share in zip(said, several.alternatives, ("40 %", "less than 1 %")):  # noqa: B905
        assert_sentence(sentence)
        assert describe_pose(other.model) in sentence
        assert f"({share}, {len(other.matches)} matches)" in sentence
    first, _ = words.headline(several, dataclasses.replace(confidence, verdict=verdict))
    assert (first == "More than one pose explains the matches.") == (verdict == "ambiguous")


def test_noise_and_the_threshold_that_was_chosen(scene, estimate, confidence):
    noisy = dataclasses.replace(estimate, noise_px=0.3123, noise_sd_px=0.0467, threshold_px=1.234)
    assert words.noise_text(noisy) == "0.31 ± 0.05 px"
    assert words.threshold_text(noisy) == "noise 0.31 ± 0.05 px"
    assert words.estimate_sentences(noisy, scene.graph)[-1].endswith("; noise 0.31 ± 0.05 px.")
    auto = dataclasses.replace(noisy, options=Options(threshold_px="auto"))
    assert words.threshold_text(auto) == "noise 0.31 ± 0.05 px, threshold 1.2 px"
    rows = {name: value for name, value, _ in words.confidence_rows(confidence, auto)}
    assert (rows["Noise"], rows["Threshold"]) == ("0.31 ± 0.05 px", "1.2 px")
    for deviation, text in ((math.nan, "0.31 px"), (0.0, "0.31 px"), (1.6, "0 ± 2 px")):
        assert words.noise_text(dataclasses.replace(noisy, noise_sd_px=deviation)) == text
    unknown = dataclasses.replace(estimate, noise_px=math.nan)
    assert words.threshold_text(unknown) == words.noise_text(unknown) == ""
    rows = {name: value for name, value, _ in words.confidence_rows(confidence, unknown)}
    assert rows["Noise"] == f"{confidence.noise_px:.2f} px"


def test_comparison(estimate, scene):
    failed = estimate_relative_pose(scene.graph.head(3), scene.camera0, scene.camera1)
    systems = [("ours", estimate), ("other", failed)]
    ours, other = words.comparison_rows(systems)
    assert ours[1:4] == [
        str(n) for n in (scene.graph.num_edges, estimate.num_inliers, len(estimate.matches))
    ]
    assert (ours[4], other[4]) == (f"{estimate.pose.angle_deg:.2f}", "-")
    assert words.comparison_rows(systems, [1.234, None])[0][5] == "1.23"
    assert len(words.COMPARISON_HEADINGS) == 6


# ---------------------------------------------------------------- poses
RIGHT, DOWN, FORWARD = UNTURNED = np.eye(3)


def pose_of(turn=UNTURNED, centre=RIGHT):
    """Pose of a camera 1 whose axes in frame 0 are the columns of ``turn``, standing at centre."""
    return RelativePose(turn.T, -turn.T @ np.asarray(centre, dtype=float))


def turn(axis, degrees):
    """Right-handed rotation, written as what it does to the camera's own axes."""
    return rotation_from_vector(np.radians(degrees) * np.asarray(axis, dtype=float))


def looking(towards, degrees):
    """Camera that looks ``degrees`` off straight ahead, towards a direction across it."""
    camera = turn(np.cross(FORWARD, towards), degrees)
    np.testing.assert_allclose(np.cos(np.radians(degrees)), camera[2, 2], atol=1e-12)
    assert (camera @ FORWARD) @ np.asarray(towards, dtype=float) > 0.0
    return camera


@pytest.mark.parametrize(
    ("centre", "text"),
    [
        (RIGHT, "moved to the right"),
        (-RIGHT, "moved to the left"),
        (DOWN, "moved down"),
        (-DOWN, "moved up"),
        (FORWARD, "moved forward"),
        (-FORWARD, "moved backward"),
        ((0.9, 0.0, 0.43), "moved mostly to the right and forward"),
        ((-0.2, 0.1, -0.97), "moved backward"),
        ((-1, -1.1, 1.2), "moved forward, up and to the left"),
        ((-1, 0.05, 1.2), "moved forward and to the left"),
        ((3, -1, 1.2), "moved mostly to the right, forward and up"),
    ],
)
@pytest.mark.parametrize("camera", [np.eye(3), turn(DOWN, 30), turn((0.6, 0.8, 0), -170)])
def test_translation_words_do_not_depend_on_rotation(centre, text, camera):
    unit = np.asarray(centre) / np.linalg.norm(centre)
    numbers = ", ".join(f"{value:z.2f}" for value in unit)
    assert describe_translation(pose_of(camera, centre)) == f"{text}, direction ({numbers})"


@pytest.mark.parametrize(
    ("towards", "text"),
    [
        (RIGHT, "turned 20.0° to the right, axis (0.00, 1.00, 0.00)"),
        (-RIGHT, "turned 20.0° to the left, axis (0.00, -1.00, 0.00)"),
        (-DOWN, "turned 20.0° up, axis (1.00, 0.00, 0.00)"),
        (DOWN, "turned 20.0° down, axis (-1.00, 0.00, 0.00)"),
        ((-0.8, -0.6, 0), "turned 20.0° to the left and up, axis (0.60, -0.80, 0.00)"),
        ((0.96, 0.28, 0), "turned 20.0° mostly to the right and down, axis (-0.28, 0.96, 0.00)"),
    ],
)
def test_rotation_words(towards, text):
    assert describe_rotation(pose_of(looking(towards, 20))) == text


def test_a_rolled_camera():
    # Clockwise for somebody behind it: the right-hand side goes down.
    camera = np.column_stack([DOWN, -RIGHT, FORWARD])
    said = "turned 90.0° clockwise, axis (0.00, 0.00, 1.00)"
    assert describe_rotation(pose_of(camera)) == said
    assert "counter-clockwise" in describe_rotation(pose_of(camera.T))


def test_no_turn_and_half_a_turn():
    assert describe_pose(pose_of()) == (
        "not turned, and moved to the right, direction (1.00, 0.00, 0.00)"
    )
    assert describe_rotation(pose_of(turn(DOWN, 0.04))) == "not turned"
    assert describe_rotation(pose_of(turn(DOWN, 0.06))).startswith("turned 0.1° to the right")
    # Facing back: neither to the left nor to the right.
    for degrees in (180, 179.6, -179.6):
        text = describe_rotation(pose_of(turn(DOWN, degrees)))
        assert re.fullmatch(r"turned 1\d\d\.\d° half around, axis \(0.00, -?1.00, 0.00\)", text)
    slanted = describe_rotation(pose_of(turn((0.6, 0.8, 0), 180)))
    assert slanted == "turned 180.0° half around, axis (0.60, 0.80, 0.00)"


unit = st.tuples(*[st.floats(-1, 1)] * 3).filter(lambda v: np.linalg.norm(v) > 0.1)


@given(unit, st.floats(-150, 150), unit)
def test_every_word_is_true(axis, degrees, centre):
    camera = turn(np.array(axis) / np.linalg.norm(axis), degrees)
    pose = pose_of(camera, centre)
    np.testing.assert_allclose(camera_centre(pose), centre / np.linalg.norm(centre), atol=1e-9)
    moved = describe_translation(pose)
    opposite = describe_translation(pose_of(camera, -np.array(centre)))
    sides = (("to the right", "to the left"), ("down", "up"), ("forward", "backward"))
    for value, (positive, negative) in zip(centre, sides, strict=True):
        for side, sign in ((positive, 1), (negative, -1)):
            if side in moved:
                assert sign * value > 0
                assert side not in opposite
    # A single turn to the left or right takes the view there.
    turned = describe_rotation(pose)
    if re.search("axis \\(.*, -?1.00, .*\\)", turned):
        assert ("to the right" in turned) == ((camera @ FORWARD)[0] > 0)


# ---------------------------------------------------------------- every input reads well
numbers = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, 0.5, 1e-4, 1e-300, 5e-324, 0.9999, math.nan, math.inf]),
    st.floats(0, 1),
    st.floats(0, 1e6),
)
# A null among the parts of a direction, or two that are equal, is where words go missing.
directions = st.tuples(
    *[st.one_of(st.floats(-1, 1), st.sampled_from([0.0, 0.25, 0.5, 1.0, -1.0, 1e-9]))] * 3
).filter(lambda v: np.linalg.norm(v) > 1e-3)


@given(directions, st.one_of(st.floats(-180, 180), st.sampled_from([0.0, 1e-9, 180.0])), directions)
def test_every_pose_reads_well(axis, degrees, centre):
    pose = pose_of(turn(np.array(axis) / np.linalg.norm(axis), degrees), centre)
    assert_reads_well(describe_pose(pose))
    said = describe_rotation(pose), describe_translation(pose)
    for text in said:
        assert re.fullmatch(r"(not )?(turned|moved)( [^\s]+)*", text)
        # As many parts as there are commas and an "and" between them.
        for part in re.split(r", | and ", re.sub(r"\(.*\)", "numbers", text)):
            assert re.search(r"[a-z]", part)


def small_graph(first, second):
    """Graph of that many keypoints, each with at most one edge."""
    edges = [(i, i) for i in range(min(first, second))]
    return AssociationGraph(np.zeros((first, 2)), np.zeros((second, 2)), edges)


@given(
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(0, 2000),
    st.one_of(st.none(), st.floats(0, 1)),
    st.booleans(),
    st.sampled_from(["pose", "homography", "nothing"]),
)
def test_every_estimate_reads_well(
    estimate, confidence, first, second, inliers, probability, low, model
):
    graph = small_graph(first, second)
    count = graph.num_edges
    found = dataclasses.replace(
        estimate,
        success=model != "nothing",
        failure="" if model != "nothing" else "the graph has 1 edge, five are needed",
        model=estimate.pose if model == "pose" else None,
        matches=graph.edges,
        match_probability=None if probability is None else np.full(count, probability),
        num_inliers=inliers,
        low_parallax=low,
    )
    if model == "homography":
        found = as_problem(found, "homography", np.eye(3))
    for sentence in words.estimate_sentences(found, graph):
        assert_sentence(sentence)
    for verdict in ("solved", "likely", "uncertain", "ambiguous", "degenerate", "failed"):
        judged = dataclasses.replace(confidence, verdict=verdict)
        first_said, others = words.headline(found, judged)
        for sentence in (first_said, *others):
            assert_sentence(sentence)
        # A pose that is not to be relied on is never said first.
        assert ("turned" in first_said) == (model == "pose" and verdict in ("solved", "likely"))
    assert_reads_well(repr(graph))
    for row in words.comparison_rows([("ours", found)], [None]):
        for cell in row:
            assert_reads_well(cell)


@given(
    st.integers(6, 3000), st.integers(0, 3000), numbers, numbers, numbers, numbers, numbers,
    st.booleans(),
)  # fmt: skip
def test_every_reason_reads_well(
    estimate, number, places, geometry, rival, share, deviation, parallax, low
):
    found = dataclasses.replace(
        estimate,
        matches=np.zeros((number, 2), dtype=np.int64),
        parallax_deg=parallax if math.isfinite(parallax) else 0.0,
        low_parallax=low,
    )

    def known(value):
        return min(value, 1.0) if value >= 0 else 0.0

    other = Rival(known(rival), known(parallax), known(rival))
    seen = Evidence(
        *(min(places, number), Planarity(*([min(share, 1.0)] * 3))),
        Covariance(np.eye(5), np.eye(3)[:2], 1e-3, deviation, 2 * deviation),
        *(np.zeros(8), 20.0 * known(geometry) - 10.0, other, known(share)),
    )
    verdict, reason = confidence_module._judge(found, seen)
    assert verdict in get_args(Verdict)
    assert_sentence(reason)
    assert " unknown" not in reason


@given(numbers, numbers, numbers, numbers, numbers, st.sampled_from(["auto", 1.0]))
def test_every_row_of_a_confidence_reads_well(
    confidence, estimate, probability, noise, share, deviation, parallax, threshold
):
    changed = dataclasses.replace(
        confidence,
        pose_probability=min(probability, 1.0),
        parallax_deg=parallax,
        rotation_only=min(share, 1.0),
        planar=min(share, 1.0),
        rotation=PartConfidence(min(probability, 1.0), deviation),
        translation=PartConfidence(min(share, 1.0), 2 * deviation),
        noise_px=parallax,
    )
    found = dataclasses.replace(
        estimate,
        noise_px=noise,
        noise_sd_px=deviation,
        options=Options(threshold_px=threshold),
        threshold_px=share + 1e-3 if math.isfinite(share) else 1.0,
    )
    rows = words.confidence_rows(changed, found)
    assert len(words.confidence_rows(changed)) == 7
    assert len(rows) == 8 + (threshold == "auto")
    for row in rows:
        for cell in row:
            assert_reads_well(cell)


def test_numbers_have_no_exponent_and_no_false_digits():
    shares = (1.0, 0.99993, 0.9926, 0.5, 0.031, 0.001, 0.0, math.nan)
    said = [words.probability_text(p) for p in shares]
    most, least = "more than 99.9999 %", "less than 1 %"
    assert said == [most, "99.993 %", "99.2 %", "50 %", "3 %", least, least, "unknown"]
    said = [words.probability_digits(p) for p in (1.0, 0.99993, 0.9926, 0.5, 0.0)]
    assert said == ["1.00", "0.99993", "0.992", "0.50", "0.00"]
    said = [words.angle(a) for a in (0.0, 1e-9, 1e-6, 0.0312, 1.26, 43.6, 123.4, math.nan)]
    assert said == ["0°", "0°", "0.000001°", "0.031°", "1.3°", "44°", "123°", "unknown"]


def failures():
    """Yield estimates of graphs that have no answer."""
    camera = [[500.0, 0, 320], [0, 500, 240], [0, 0, 1]]
    rng = np.random.default_rng(0)
    points = rng.uniform(0, 480, (40, 2))
    graphs = [AssociationGraph(points, points, [(i, i) for i in range(n)]) for n in range(6)]
    graphs += [AssociationGraph(points, points, [(0, i) for i in range(9)])]
    for graph in graphs:
        for method in ("auto", "cm"):
            yield estimate_relative_pose(graph, camera, camera, method)
        yield estimate_homography(graph)
    for kept in range(5):
        yield estimate_relative_pose(graphs[5], camera, camera, proposals=np.arange(5) < kept)
    # A single sample, of points that no pose fits.
    graph = AssociationGraph(points[:5], rng.uniform(0, 480, (5, 2)), graphs[5].edges)
    once = Options(min_iterations=1, max_iterations=1)
    for seed in range(20):
        yield estimate_relative_pose(graph, camera, camera, "hcm-mcm", once.replace(seed=seed))


def test_every_failure_reads_well():
    said = {estimate.failure for estimate in failures() if not estimate.success}
    for failure in said:
        assert_reads_well(failure)
        assert_sentence(f"No pose was found: {failure}.")
    for beginning in ("the graph has 1 edge,", "proposals leave 1 edge ", "at most 1 edge can"):
        assert any(text.startswith(beginning) for text in said), said


# --------------------------------------------------------------------------- every problem
TURNED = np.array([[0.0, -2.0, 0.0, 1.0], [2.0, 0.0, 0.0, 2.0], [0.0, 0.0, 2.0, 3.0], [0, 0, 0, 1]])
# Model, its sentence, and what an alternative is called if that is something else.
MODELS = {
    "homography": (np.eye(3), "a homography maps image 0 to image 1", "another homography"),
    "fundamental": (
        *(np.eye(3), "a fundamental matrix relates image 0 and image 1"),
        "another fundamental matrix",
    ),
    "absolute": (
        AbsolutePose(np.eye(3), [-1.0, 0.0, 2.5]),
        *("the camera is at (1, 0, -2.5) and looks along (0, 0, 1)", None),
    ),
    "rigid": (np.eye(4), "points 0 are not turned and moved by (0, 0, 0) onto points 1", None),
    "similarity": (
        TURNED,
        "points 0 are scaled by 2, turned 90.00° about (0, 0, 1) and moved by (1, 2, 3) onto "
        "points 1",
        None,
    ),
}


@pytest.mark.parametrize("problem", MODELS)
def test_sentences_of_every_problem(estimate, confidence, problem):
    model, sentence, another = MODELS[problem]
    alternative = Alternative(model, 0.25, 2, np.array([[0, 0], [1, 1]]), 3.0)
    dimensions = {"absolute": (2, 3), "rigid": (3, 3), "similarity": (3, 3)}.get(problem, (2, 2))
    graph = AssociationGraph(*(np.zeros((2, size)) for size in dimensions), [[0, 0], [1, 1]])
    found = as_problem(estimate, problem, model, alternatives=(alternative,))
    judged = dataclasses.replace(
        confidence, verdict="ambiguous", problem=problem, alternative_probabilities=(0.25,)
    )
    _, said, also, numbers = words.estimate_sentences(found, graph, judged)
    assert said == f"{sentence[0].upper()}{sentence[1:]}."
    assert also == f"Or {another or sentence} (25 %, 2 matches)."
    for text in (said, also, numbers):
        assert_sentence(text)
    in_space = problem in ("rigid", "similarity")
    assert ("noise 0.25 ± 0.01 px" in numbers) != in_space
    assert ("in cloud 1" in numbers) == in_space
    assert ("in the map" in numbers) == (problem == "absolute")
