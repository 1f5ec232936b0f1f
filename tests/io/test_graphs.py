"""Graphs from files of every kind: association CSV, plain matches, SuperGlue, `load_graph`."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from manymatch import AssociationGraph
from manymatch.io import (
    graph_from_matches,
    load_graph,
    read_associations_csv,
    read_superglue,
    write_associations_csv,
)

P0 = np.arange(8.0).reshape(4, 2)
P1 = 10 + np.arange(6.0).reshape(3, 2)
PARTNER, SCORE = np.array([2, -1, 0, 1]), np.array([0.25, 0.0, 0.75, 0.5], dtype=np.float32)
EDGES = [[2, 0], [3, 1], [0, 2]]
HEADER = "left_idx,right_idx,x1,y1,x2,y2,similarity,k\n"
reals = st.floats(-1e6, 1e6)


@st.composite
def graphs(draw):
    """Draw graphs in edge order, without isolated keypoints."""
    count0, count1 = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    pair = st.tuples(st.integers(0, count0 - 1), st.integers(0, count1 - 1))
    edges = draw(st.lists(pair, max_size=15, unique=True))
    rows = [(draw(st.integers(1, 4)), -draw(st.floats(-1, 1, width=32)), *edge) for edge in edges]
    rows.sort()
    points = [[[draw(reals), draw(reals)] for _ in range(n)] for n in (count0, count1)]
    graph = AssociationGraph(
        *points, [row[2:] for row in rows], [-row[1] for row in rows], [row[0] for row in rows]
    )
    return graph.compact()[0]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(graphs())
def test_round_trip_is_exact(tmp_path, graph):
    path = tmp_path / "graph.csv"
    write_associations_csv(graph, path)
    assert read_associations_csv(path) == graph
    assert load_graph(path) == graph
    assert [file.name for file in tmp_path.iterdir()] == ["graph.csv"]


def test_text_of_the_file(tmp_path):
    graph = AssociationGraph([[0, 0], [1.5, 2]], [[3, 0.1]], [[1, 0]], [0.1], [2])
    write_associations_csv(graph, tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == HEADER + "1,0,1.5,2.0,3.0,0.1,0.1,2\n"


def test_holes_and_order(tmp_path):
    path = tmp_path / "a.csv"
    rows = ["40,7,1,2,3,4,0.5,2", "3,900,5,6,7,8,0.25,1", "3,7,5,6,3,4,0.75,1"]
    path.write_text(HEADER + "\r\n".join(rows) + "\r\n")
    graph = read_associations_csv(path)
    assert graph.points0.tolist() == [[5, 6], [1, 2]]
    assert graph.points1.tolist() == [[3, 4], [7, 8]]
    assert graph.edges.tolist() == [[0, 0], [0, 1], [1, 0]]
    assert graph.rank.tolist() == [1, 1, 2]
    assert read_associations_csv(path) == graph


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("0,0,1,2,3,4,0.5", "line 2"),
        ("0,0,1,2,3,4,0.5,1,9", "line 2"),
        ("x,0,1,2,3,4,0.5,1", "line 2"),
        ("0.5,0,1,2,3,4,0.5,1", "line 2"),
        ("-1,0,1,2,3,4,0.5,1", "line 2: an id is negative"),
        ("0,0,1,2,3,4,0.5,0", "rank must hold"),
        ("0,0,nan,2,3,4,0.5,1", "has two positions|finite"),
        ("0,0,1,2,3,inf,0.5,1", "finite"),
        ("0,0,1,2,3,4,nan,1", "finite"),
        ("0,0,1,2,3,4,0.5,99999999999999", "rank must hold"),
        ("99999999999999999999,0,1,2,3,4,0.5,1", "too large|too big"),
        ("0,0,1,2,3,4,0.5,1\n0,1,1,9,3,4,0.5,1", "keypoint 0 has two positions"),
        ("", "line 2"),
    ],
)
def test_bad_lines(tmp_path, line, reason):
    path = tmp_path / "a.csv"
    path.write_text(HEADER + line + "\n")
    with pytest.raises(ValueError, match=f"path must be an association CSV.*({reason})"):
        read_associations_csv(path)


def test_other_files(tmp_path):
    path = tmp_path / "a.csv"
    for content, reason in [
        (b"", "it is empty"),
        (b"left,right\n1,2\n", "another header"),
        (b"\xff\xfe\x00junk", "it is not UTF-8 text"),
        (HEADER.encode() + b"0,0,1,2,3,4,0.5,1", "cut off"),
    ]:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=reason):
            read_associations_csv(path)
    with pytest.raises(ValueError, match="there is no such file"):
        read_associations_csv(tmp_path / "missing.csv")
    with pytest.raises(ValueError, match="path must be the name of a file"):
        read_associations_csv(3)


@pytest.mark.parametrize("lacking", ["similarity", "rank"])
def test_a_graph_without_values_is_not_written(tmp_path, lacking):
    values = {"similarity": [0.5], "rank": [1], lacking: None}
    graph = AssociationGraph([[0, 0]], [[0, 0]], [[0, 0]], **values)
    with pytest.raises(ValueError, match=f"graph must have.*{lacking}=None"):
        write_associations_csv(graph, tmp_path / "a.csv")
    with pytest.raises(ValueError, match="graph must be an AssociationGraph"):
        write_associations_csv(None, tmp_path / "a.csv")


def test_plain_matches_keep_their_order():
    graph = graph_from_matches(P0, P1, [[3, 1], [0, 2], [3, 0]])
    assert graph.edges.tolist() == [[3, 1], [0, 2], [3, 0]]
    assert graph.similarity is None
    assert graph.rank is None
    assert graph_from_matches(P0, P1, []).num_edges == 0


def test_scored_matches_go_by_score():
    graph = graph_from_matches(P0, P1, [[3, 1, 0.5], [0, 2, 0.75], [1, 0, 0.5]])
    assert graph.edges.tolist() == [[0, 2], [1, 0], [3, 1]]
    assert graph.similarity.tolist() == [0.75, 0.5, 0.5]


def test_keypoints_and_matches_of_opencv():
    cv2 = pytest.importorskip("cv2")
    keypoints = [[cv2.KeyPoint(*map(float, point), 3.0) for point in P] for P in (P0, P1)]
    matches = [cv2.DMatch(3, 1, 0.5), cv2.DMatch(0, 2, 0.25), cv2.DMatch(1, 0, 0.5)]
    graph = graph_from_matches(*keypoints, matches)
    assert graph == graph_from_matches(P0, P1, [[3, 1, -0.5], [0, 2, -0.25], [1, 0, -0.5]])
    assert AssociationGraph(*keypoints, EDGES) == AssociationGraph(P0, P1, EDGES)
    with pytest.raises(ValueError, match="points0 must be"):
        graph_from_matches([keypoints[0][0], 3], P1, matches)


def test_candidates_of_opencv_have_ranks():
    """`knnMatch` gives several candidates per keypoint, the nearest first."""
    cv2 = pytest.importorskip("cv2")
    rng = np.random.default_rng(0)
    desc = [rng.uniform(0, 1, (len(P), 8)).astype(np.float32) for P in (P0, P1)]
    graph = graph_from_matches(P0, P1, cv2.BFMatcher().knnMatch(*desc, 2))
    nearest = np.argsort(np.linalg.norm(desc[0][:, None] - desc[1], axis=2), axis=1)[:, :2]
    expected = {(i, int(j)): rank for i in range(4) for rank, j in enumerate(nearest[i], 1)}
    assert dict(zip(map(tuple, graph.edges.tolist()), graph.rank.tolist(), strict=True)) == expected
    assert graph.rank.tolist() == sorted(graph.rank.tolist())
    assert (np.diff(graph.similarity[:4]) <= 0).all()
    assert graph_from_matches(P0, P1, [[], [cv2.DMatch(1, 0, 1.0)]]).rank.tolist() == [1]


@pytest.mark.parametrize(
    ("matches", "text"),
    [
        (np.zeros((2, 4)), "matches must be"),
        (np.zeros(3), "matches must be"),
        ([[0.5, 0]], "matches must hold whole numbers"),
        ([[0, 3]], "edges must hold indices into points1"),
        ([[0, 0, np.nan]], "matches must hold finite"),
        (None, "matches must be"),
    ],
)
def test_bad_matches(matches, text):
    with pytest.raises(ValueError, match=text):
        graph_from_matches(P0, P1, matches)


def superglue(path, **changes):
    arrays = {"keypoints0": P0, "keypoints1": P1, "matches": PARTNER, "match_confidence": SCORE}
    arrays |= changes
    np.savez(path, **{name: value for name, value in arrays.items() if value is not None})
    return path


def test_superglue(tmp_path):
    path = superglue(tmp_path / "a_b_matches.npz")
    graph = read_superglue(path)
    assert graph == AssociationGraph(P0, P1, EDGES, [0.75, 0.5, 0.25])
    assert load_graph(path) == graph


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"matches": None}, "lacks the array 'matches'"),
        ({"matches": PARTNER[:3]}, "matches must be an array of 4"),
        ({"matches": np.array([0, 1, 2, 3])}, "edges must hold"),
        ({"matches": np.array([0, 1, 2, -2])}, "matches must hold indices or -1, got -2"),
        ({"match_confidence": np.full(4, np.nan)}, "finite"),
        ({"keypoints0": np.zeros((4, 3))}, "points0 must be"),
        ({"keypoints0": np.array(3.0)}, "points0 must be"),
        ({"keypoints1": np.array([{}], dtype=object)}, "Object arrays"),
    ],
)
def test_bad_superglue(tmp_path, changes, reason):
    path = superglue(tmp_path / "a.npz", **changes)
    with pytest.raises(ValueError, match=f"path must be a SuperGlue .npz file.*{reason}"):
        read_superglue(path)


def test_load_graph_reads_our_own_files_and_arrays(tmp_path):
    graph = AssociationGraph(P0, P1, EDGES, [0.75, 0.5, 0.25], [1, 1, 2])
    graph.save(tmp_path / "graph.npz")
    assert load_graph(tmp_path / "graph.npz") == graph


def test_junk_is_refused(tmp_path):
    rng = np.random.default_rng(1)
    path = tmp_path / "junk"
    starts = [b"", b"PK\x03\x04", b"\x93NUMPY\x01\x00", b"left_idx,", b"\x89PNG\r\n", b"{}"]
    for start in starts:
        for length in (1, 10, 300):
            path.write_bytes(start + rng.bytes(length))
            with pytest.raises(ValueError, match=r"^(path|points0) must be"):
                load_graph(path)
    np.savez(path.with_suffix(".npz"), a=np.zeros(3))
    with pytest.raises(ValueError, match="npz file of something else"):
        load_graph(path.with_suffix(".npz"))
    path.with_suffix(".PNG").write_bytes(b"\x89PNG\r\n\x1a\n")
    with pytest.raises(ValueError, match=r"it is an image: manymatch match IMAGE0 IMAGE1 matches"):
        load_graph(path.with_suffix(".PNG"))
    with pytest.raises(ValueError, match="there is no such file"):
        load_graph(tmp_path / "missing")
    with pytest.raises(ValueError, match=r"^path must be"):
        load_graph(tmp_path)


def test_arrays_by_name(tmp_path):
    """An .npz without the mark of ours, of two images or of an image and a map."""
    rng = np.random.default_rng(0)
    points, world = rng.uniform(0, 9, (5, 2)).astype(np.float32), rng.uniform(0, 9, (4, 3))
    edges = np.array([[0, 1], [1, 0], [0, 2], [0, 1]], dtype=np.int16)
    similarity = np.array([0.5, 0.25, 0.75, 0.5], dtype=np.float16)
    for names in (("points0", "points1"), ("points2D", "points3D")):
        arrays = {**dict(zip(names, (points, world), strict=True)), "edges": edges}
        np.savez(tmp_path / "a.npz", **arrays, K=np.eye(3), scene=np.array("a"))
        assert load_graph(tmp_path / "a.npz") == AssociationGraph(points, world, edges)
        np.savez(tmp_path / "a.npz", **arrays, similarity=similarity, rank=np.array([2, 1, 1, 2]))
        graph = load_graph(tmp_path / "a.npz")
        assert graph.edges.tolist() == [[0, 2], [1, 0], [0, 1]]
        assert graph.rank.tolist() == [1, 1, 2]
        assert graph.similarity.tolist() == [0.75, 0.25, 0.5]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"edges": [[0, 9]]}, "edges must hold indices into points1"),
        ({"points1": np.zeros((4, 5))}, "points1 must be an .N, 2. array"),
        ({"rank": [1, 2]}, "rank must be an array of shape"),
        ({"points0": np.array([{}], dtype=object)}, "Object arrays"),
    ],
)
def test_bad_arrays_by_name(tmp_path, change, reason):
    arrays = {"points0": np.zeros((3, 2)), "points1": np.zeros((3, 2)), "edges": [[0, 0]]}
    np.savez(tmp_path / "a.npz", **{**arrays, **change})
    with pytest.raises(ValueError, match=f"path must be an .npz file with points0, .*{reason}"):
        load_graph(tmp_path / "a.npz")
