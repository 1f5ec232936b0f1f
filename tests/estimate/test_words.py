"""Words and rows: plurals, numbers that agree with the objects, sentences without gaps."""

import dataclasses
import math
import re

import pytest

from manymatch import assess, estimate_relative_pose
from manymatch.datasets.synthetic import EASY, LOW_PARALLAX, make_scene
from manymatch.estimate import words


@pytest.fixture(scope="module")
def scene():
    return make_scene(EASY, 0)


@pytest.fixture(scope="module")
def estimate(scene):
    return estimate_relative_pose(scene.graph, scene.camera0, scene.camera1)


@pytest.fixture(scope="module")
def confidence(estimate):
    return assess(estimate)


def is_sentence(text):
    return bool(re.fullmatch(r"[A-Z0-9][^\s]*( [^\s]+)*\.", text))


def test_a_solved_pair(scene, estimate, confidence):
    verdict, pose, numbers = words.estimate_sentences(estimate, scene.graph, confidence)
    assert verdict == f"Solved: {confidence.reason}"
    assert pose.startswith("Camera 1 is turned ")
    expected = round(float(estimate.match_probability.sum()))
    assert f"{len(estimate.matches)} one-to-one matches ({expected} expected" in numbers
    assert f"{scene.graph.num_edges} candidates, {estimate.num_inliers} inliers" in numbers
    assert all(map(is_sentence, (verdict, pose, numbers)))
    assert words.estimate_sentences(estimate, scene.graph) == [pose, numbers]


def test_a_failure_is_said_once(scene):
    graph = scene.graph.head(1)
    failed = estimate_relative_pose(graph, scene.camera0, scene.camera1)
    confidence = assess(failed)
    said = words.estimate_sentences(failed, graph, confidence)
    assert " ".join(said).count(failed.failure) == 1
    assert "1 candidate, 0 inliers, 0 one-to-one matches." in said[-1]
    assert all(map(is_sentence, said))
    assert words.model_sentence(failed).startswith("No solution was found: ")
    assert words.confidence_rows(confidence, failed) == []


def test_low_parallax_has_no_direction():
    scene = make_scene(LOW_PARALLAX, 0)
    estimate = estimate_relative_pose(scene.graph, scene.camera0, scene.camera1)
    said = words.model_sentence(estimate)
    assert "moved cannot be determined" in said
    assert is_sentence(said)


def test_rows_have_the_numbers(estimate, confidence):
    rows = {name: value for name, value, _ in words.confidence_rows(confidence, estimate)}
    assert rows["A match"] == f"{100 * estimate.match_probability.mean():.0f} %"
    assert rows["Parallax"] == f"{confidence.parallax_deg:.2f}°"
    assert rows["One plane"] == f"{100 * confidence.planar:.0f} %"
    assert "A match" not in {name for name, _, _ in words.confidence_rows(confidence)}
    unknown = dataclasses.replace(
        confidence, chance=3e-8, translation_sd_deg=math.inf, rotation_sd_deg=0.0312
    )
    rows = {name: value for name, value, _ in words.confidence_rows(unknown)}
    assert (rows["Chance"], rows["Rotation"]) == ("1 in 10⁷", "±0.031°")
    assert rows["Direction of motion"] == "unknown"


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
