"""Matching along the epipolar lines of a model."""

import dataclasses

import numpy as np
import pytest

from manymatch import AbsolutePose, RelativePose
from manymatch.features.extractor import Features
from manymatch.reconstruct.guided import add_guided, match_in_band, united
from manymatch.reconstruct.mapping import Model
from tests.support.scenes import CAMERA, arc


def features(points, rng, descriptors):
    noisy = descriptors + rng.normal(0.0, 0.05, descriptors.shape)
    noisy /= np.linalg.norm(noisy, axis=1, keepdims=True)
    ones = np.ones(len(points), np.float32)
    return Features(points, ones, noisy.astype(np.float32), (640, 480))


@pytest.fixture
def scene():
    return arc(number=4, points=200, noise=0.1)


def described(scene, alike=1):
    """Features of all photographs; groups of `alike` points have the same descriptor."""
    rng = np.random.default_rng(1)
    own = np.repeat(rng.normal(size=(200 // alike, 32)), alike, axis=0)
    own /= np.linalg.norm(own, axis=1, keepdims=True)
    return {photo.name: features(photo.points, rng, own) for photo in scene.graph.photos}


def model_of(scene, tmp_path):
    poses = {
        photo.name: AbsolutePose(*pose)
        for photo, pose in zip(scene.graph.photos, scene.poses, strict=True)
    }
    return Model(tmp_path, poses, 200, 0.1, 4.0)


def test_points_that_look_alike_are_told_apart_by_their_lines(scene):
    own, (one, two) = described(scene, alike=4), scene.graph.photos[:2]
    pose = RelativePose(*scene.relative(0, 1))
    found = match_in_band(one, two, own[one.name], own[two.name], pose)
    assert len(found) > 60
    assert (found[:, 0] == found[:, 1]).mean() > 0.9
    # Without the line, three of four are wrong.
    similarity = own[one.name].descriptors @ own[two.name].descriptors.T
    assert (similarity.argmax(axis=1) == np.arange(200)).mean() < 0.5


def test_matches_are_near_their_lines_and_one_to_one(scene):
    own, (one, two) = described(scene, alike=2), scene.graph.photos[:2]
    pose = RelativePose(*scene.relative(0, 1))
    found = match_in_band(one, two, own[one.name], own[two.name], pose)
    for side in (0, 1):
        assert len(np.unique(found[:, side])) == len(found)
    lines = one.rays(found[:, 0]) @ pose.essential().T
    distance = np.abs((two.rays(found[:, 1]) * lines).sum(axis=1)) / np.hypot(*lines[:, :2].T)
    assert distance.max() * CAMERA.focal < 1.5


def test_points_behind_a_camera_are_no_matches(scene):
    own, (one, two) = described(scene), scene.graph.photos[:2]
    R, t = scene.relative(0, 1)
    assert len(match_in_band(one, two, own[one.name], own[two.name], RelativePose(R, -t))) == 0


def test_kept_matches_stay_and_new_ones_are_added(scene, tmp_path):
    extra = np.random.default_rng(2).uniform(0, 470, (5, 2))
    own = described(scene)
    half = [dataclasses.replace(pair, matches=pair.matches[:20]) for pair in scene.graph.pairs]
    graph = dataclasses.replace(scene.graph, pairs=tuple(half))
    name = graph.photos[0].name
    rng = np.random.default_rng(3)
    more = rng.normal(size=(5, 32))
    joined = np.concatenate([own[name].descriptors, more / np.linalg.norm(more, axis=1)[:, None]])
    points = np.concatenate([own[name].points, extra])
    own[name] = Features(points, np.ones(205, np.float32), joined.astype(np.float32), (640, 480))
    keep = [pair.second - pair.first == 1 for pair in graph.pairs]
    names = [photo.name for photo in graph.photos]
    wanted = [(names[0], names[1]), (names[0], names[3])]
    found = add_guided(graph, keep, model_of(scene, tmp_path), wanted, own)
    pairs = {(pair.first, pair.second): pair for pair in found.pairs}
    assert sorted(pairs) == [(0, 1), (0, 3), (1, 2), (2, 3)]
    assert np.array_equal(pairs[0, 1].matches[:20], graph.pairs[0].matches)
    assert len(pairs[0, 1].matches) > 150
    assert len(pairs[1, 2].matches) == 20
    assert len(found.photos[0].points) == 205
    assert np.array_equal(found.photos[0].points[:200], graph.photos[0].points)
    for both, pair in pairs.items():
        assert np.allclose(pair.pose.R, scene.relative(*both)[0])
        assert (pair.matches[:, 0] == pair.matches[:, 1]).mean() > 0.95


@pytest.mark.parametrize("workers", [1, 3])
def test_result_does_not_depend_on_the_workers(scene, tmp_path, workers):
    names = [photo.name for photo in scene.graph.photos]
    wanted = [(names[0], names[1]), (names[1], names[3]), (names[2], names[3])]
    arguments = (scene.graph, [False] * 6, model_of(scene, tmp_path), wanted, described(scene))
    found = add_guided(*arguments, workers=workers)
    again = add_guided(*arguments)
    for one, two in zip(found.pairs, again.pairs, strict=True):
        assert np.array_equal(one.matches, two.matches)


def test_coincident_keypoints_are_one():
    old = np.array([[10.0, 10.0], [20.0, 20.0]])
    new = np.array([[30.0, 30.0], [20.1, 19.9], [30.1, 30.0]])
    points, places = united(old, new)
    assert points.tolist() == [[10.0, 10.0], [20.0, 20.0], [30.0, 30.0]]
    assert places.tolist() == [2, 1, 2]
