"""Matches and poses come back from their files, and no file is half written."""

import json
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manymatch import Options, RelativePose
from manymatch.io import (
    AlternativePose,
    load_graph,
    read_matches_npz,
    write_matches_npz,
)
from manymatch.io.matches import to_json
from tests.support.leftovers import no_leftovers

RNG = np.random.default_rng(3)
P0, P1 = RNG.uniform(0, 640, (5, 2)), RNG.uniform(0, 640, (4, 2))
MATCHES = np.array([[3, 1], [0, 2], [4, 0]])
SCORES = np.array([0.5, 0.25, 0.75])
POSE = RelativePose([[0, -1, 0], [1, 0, 0], [0, 0, 1]], [1, 2, 3])


def edges(graph):
    return sorted(map(tuple, graph.edges.tolist()))


def test_npz_holds_what_it_promises(tmp_path):
    path = tmp_path / "m.npz"
    config = {"preset": "classic", "k": np.int64(5), "options": Options(seed=3)}
    write_matches_npz(path, P0, P1, MATCHES, confidence=SCORES, pose=POSE, config=config)
    with np.load(path, allow_pickle=False) as content:
        assert np.array_equal(content["keypoints0"], P0)
        assert np.array_equal(content["keypoints1"], P1)
        assert np.array_equal(content["matches"], MATCHES)
        assert content["matches0"].tolist() == [2, -1, -1, 1, 0]
        assert content["match_confidence"].tolist() == [0.25, 0, 0, 0.5, 0.75]
        assert np.array_equal(content["pose"], POSE.matrix())
        stored = json.loads(str(content["config"]))
    assert (stored["preset"], stored["k"], stored["options"]["seed"]) == ("classic", 5, 3)
    assert no_leftovers(tmp_path)


def test_npz_comes_back_as_a_graph(tmp_path):
    path = tmp_path / "m.npz"
    write_matches_npz(path, P0, P1, MATCHES, confidence=SCORES)
    graph = read_matches_npz(path).graph()
    # By decreasing confidence.
    assert graph.edges.tolist() == [[4, 0], [3, 1], [0, 2]]
    assert graph.similarity.tolist() == [0.75, 0.5, 0.25]
    assert np.array_equal(graph.points0, P0)
    assert load_graph(path) == graph
    write_matches_npz(path, P0, P1, MATCHES)
    with np.load(path) as content:
        assert set(content.files) == {"keypoints0", "keypoints1", "matches", "matches0"}
    assert edges(load_graph(path)) == sorted(map(tuple, MATCHES.tolist()))
    assert load_graph(path).similarity is None


@st.composite
def problems(draw):
    n0, n1 = draw(st.integers(0, 6)), draw(st.integers(1, 6))
    left = draw(st.permutations(range(n0)))[: draw(st.integers(0, n0))]
    right = draw(st.lists(st.integers(0, n1 - 1), min_size=len(left), max_size=len(left)))
    pixel = st.floats(-1e6, 1e6)
    points = [draw(st.lists(st.tuples(pixel, pixel), min_size=n, max_size=n)) for n in (n0, n1)]
    return (*points, np.array(list(zip(left, right, strict=True)), dtype=int).reshape(-1, 2))


@given(problem=problems())
def test_any_matches_come_back_from_npz(tmp_path_factory, problem):
    path = tmp_path_factory.getbasetemp() / "any.npz"
    write_matches_npz(path, *problem)
    pair = read_matches_npz(path)
    assert np.array_equal(pair.keypoints0, np.reshape(problem[0], (-1, 2)))
    assert np.array_equal(pair.keypoints1, np.reshape(problem[1], (-1, 2)))
    assert np.array_equal(pair.matches, problem[2])
    assert edges(pair.graph()) == sorted(map(tuple, problem[2].tolist()))


@pytest.mark.parametrize("rotated", [False, True])
def test_npz_comes_back_whole(tmp_path, rotated):
    path = tmp_path / "m.npz"
    pose = POSE if rotated else None
    more = {"confidence": SCORES, "inliers": [[3, 1], [3, 2], [0, 2]], "config": {"k": [5, "x"]}}
    write_matches_npz(path, P0, P1, MATCHES, pose=pose, **more)
    pair = read_matches_npz(path)
    assert np.array_equal(pair.keypoints0, P0)
    assert np.array_equal(pair.matches, MATCHES)
    assert np.array_equal(pair.confidence, SCORES)
    assert np.array_equal(pair.inliers, more["inliers"])
    assert pair.pose == pose
    assert pair.config == more["config"]
    write_matches_npz(path, P0, P1, MATCHES)
    pair = read_matches_npz(path)
    assert [pair.confidence, pair.pose, pair.inliers, pair.config] == [None] * 4


SOURCES = {"source": [1, 0, 1], "source_names": ("sift", "a net")}


def test_sources_come_back(tmp_path):
    path = tmp_path / "m.npz"
    inliers = {"inliers": [[3, 1], [3, 2]], "inlier_source": [1, 0]}
    write_matches_npz(path, P0, P1, MATCHES, confidence=SCORES, **SOURCES, **inliers)
    with np.load(path, allow_pickle=False) as content:
        assert content["match_source"].tolist() == SOURCES["source"]
        assert content["inlier_source"].tolist() == [1, 0]
        assert content["source_names"].tolist() == ["sift", "a net"]
    pair = read_matches_npz(path)
    assert pair.source.tolist() == SOURCES["source"]
    assert (pair.inlier_source.tolist(), pair.source_names) == ([1, 0], ("sift", "a net"))
    graph = load_graph(path)
    assert graph.edges.tolist() == [[4, 0], [3, 1], [0, 2]]
    assert (graph.source.tolist(), graph.source_names) == ([1, 1, 0], ("sift", "a net"))
    write_matches_npz(path, P0, P1, MATCHES, source=[0, 2, 0])
    assert read_matches_npz(path).source_names == ("0", "1", "2")
    write_matches_npz(path, P0, P1, MATCHES)
    pair = read_matches_npz(path)
    assert (pair.source, pair.inlier_source, pair.source_names) == (None, None, ())


OTHER = RelativePose(POSE.R.T, -POSE.t)


def test_alternatives_come_back(tmp_path):
    path = tmp_path / "m.npz"
    others = [
        AlternativePose(OTHER, 0.3, np.array([[1, 1], [2, 3]])),
        AlternativePose(POSE, 0.125, np.zeros((0, 2), dtype=int)),
        AlternativePose(OTHER, 0.0625, MATCHES),
    ]
    write_matches_npz(path, P0, P1, MATCHES, pose=POSE, alternatives=iter(others))
    with np.load(path) as content:
        assert content["alternative_poses"].shape == (3, 4, 4)
        assert content["alternative_probability"].tolist() == [0.3, 0.125, 0.0625]
        assert content["alternative_matches"][:2].tolist() == [[0, 1, 1], [0, 2, 3]]
        assert content["alternative_matches"].shape == (2 + len(MATCHES), 3)
    back = read_matches_npz(path).alternatives
    assert [(pose, p, pairs.tolist()) for pose, p, pairs in back] == [
        (pose, p, pairs.tolist()) for pose, p, pairs in others
    ]
    assert edges(load_graph(path)) == sorted(map(tuple, MATCHES.tolist()))
    write_matches_npz(path, P0, P1, MATCHES)
    assert read_matches_npz(path).alternatives == ()


GOOD = AlternativePose(OTHER, 0.3, MATCHES)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"matches": [[0, 1], [0, 2]]}, r"^matches must hold every keypoint .* 0 in column 0 2 t"),
        (
            {"matches": [[0, 4]]},
            r"^matches must hold indices into keypoints1 .4 rows.* got 4",
        ),
        ({"matches": [[5, 0]]}, r"^matches must hold indices into keypoints0 .5 rows"),
        ({"matches": [[-1, 0]]}, r"^matches must hold indices into .* got -1 in row 0"),
        ({"matches": [0, 1]}, r"^matches must be an \(M, 2\) array"),
        ({"keypoints0": [[np.nan, 0]] * 5}, r"^keypoints0 must hold finite"),
        ({"confidence": [1, 2]}, r"^confidence must be an array of 3 numbers"),
        ({"confidence": [1, 2, np.inf]}, r"^confidence must hold finite"),
        ({"pose": np.eye(4)}, r"^pose must be a RelativePose or None"),
        ({"config": {"a": np.nan}}, r"^config must be writable as JSON"),
        ({"config": {"a": object()}}, r"^config must be writable as JSON"),
        (SOURCES | {"source": [0, 1]}, r"^source must be an array of shape \(3,\)"),
        (SOURCES | {"source": [0, 1, 64]}, r"^source must hold numbers from 0 to 63"),
        (SOURCES | {"source": None}, r"^source must be given with source_names"),
        (SOURCES | {"source_names": ["a"]}, r"^source_names must be from 2 to 64 different names"),
        (SOURCES | {"source_names": "ab"}, r"^source_names must be from 2 to 64 different names"),
        (SOURCES | {"inlier_source": [0]}, r"^inlier_source must be an array of shape \(0,\)"),
        ({"alternatives": 3}, r"^alternatives must be an iterable of AlternativePose"),
        *(
            ({"alternatives": [GOOD, other]}, rf"^alternatives\[1\]{words}")
            for other, words in (
                ((POSE, 0.5), " must be an AlternativePose, got a tuple of length 2"),
                (POSE, " must be an AlternativePose"),
                ((np.eye(4), 0.5, MATCHES), ".pose must be a RelativePose"),
                ((POSE, 1.5, MATCHES), r".probability must be a number in \[0, 1\]"),
                ((POSE, 0.5, MATCHES + 9), ".matches must hold indices into"),
            )
        ),
    ],
)
def test_npz_refuses(tmp_path, change, message):
    arguments = {"keypoints0": P0, "keypoints1": P1, "matches": MATCHES} | change
    with pytest.raises(ValueError, match=message):
        write_matches_npz(tmp_path / "m.npz", **arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("array", "value", "reason"),
    [
        ("matches", MATCHES[:2], "its matches and matches0 differ"),
        ("matches", MATCHES + 9, "matches must hold indices into"),
        ("keypoints0", P0[1:], "matches must hold indices into keypoints0 .4 rows"),
        ("matches0", [2, -1, -1, 1], "its matches and matches0 differ"),
        ("match_confidence", SCORES, "match_confidence must be an array of 5 numbers"),
        ("inliers", [[0, 9]], "inliers must hold indices into keypoints1 .4 rows"),
        ("pose", np.eye(3), "pose must be a 4x4 matrix"),
        ("pose", np.eye(4), "t must be a direction"),
        ("config", "{", "Expecting property name"),
        ("config", 3, "JSON object must be str"),
        ("match_source", [0.5, 1, 2], "source must hold whole numbers"),
        ("match_source", [7, 0, 0], "source_names must be from 8"),
        ("source_names", 3, "source_names must be from 2"),
        ("alternative_poses", [np.eye(4)], "t must be a direction"),
        ("alternative_poses", None, "it lacks the array 'alternative_poses'"),
        ("alternative_probability", [0.1, 0.2], "that do not fit together"),
        ("alternative_probability", [2.0], "probability must be a number in"),
        ("alternative_matches", [[1, 0, 0]], "that do not fit together"),
        ("alternative_matches", [[-1, 0, 0]], "that do not fit together"),
        ("alternative_matches", [[0, 0, 99]], "matches must hold indices into .*4 rows"),
    ],
)
def test_npz_of_other_content_is_refused(tmp_path, array, value, reason):
    path = tmp_path / "m.npz"
    write_matches_npz(path, P0, P1, MATCHES, alternatives=[GOOD], **SOURCES)
    with np.load(path) as content:
        arrays = dict(content) | {array: value}
    np.savez(path, **{name: a for name, a in arrays.items() if a is not None})
    for read in (read_matches_npz, load_graph):
        with pytest.raises(ValueError, match=rf"^path must be .*m\.npz.*{reason}"):
            read(path)


def test_values_become_json_and_come_back_bit_for_bit(tmp_path):
    a = 0.3
    R = np.array([[np.cos(a), -np.sin(a), 0], [np.sin(a), np.cos(a), 0], [0, 0, 1]])
    pose = RelativePose(R, [0.1, 0.7, -0.2])
    extra = {"inliers": np.int64(7), "array": np.eye(2), "options": Options(), "path": tmp_path}
    record = json.loads(to_json({"pose": pose, **extra}, "extra"))
    assert RelativePose(**record["pose"]) == pose
    assert (record["inliers"], record["array"]) == (7, [[1, 0], [0, 1]])
    assert record["options"]["threshold_px"] == 1.0
    assert record["path"] == str(tmp_path)
    for value in (float("inf"), object()):
        with pytest.raises(ValueError, match=r"^extra must be writable as JSON"):
            to_json({"a": value}, "extra")


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "matches.npz"
    write_matches_npz(path, P0, P1, MATCHES)

    def full_disk(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_matches_npz(path, P0, P1, MATCHES[:1])
    assert len(read_matches_npz(path).matches) == len(MATCHES)
    assert no_leftovers(tmp_path)
