"""The association CSV: exact round trips, holes in ids, refusals."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from manymatch import AssociationGraph
from manymatch.io import load_graph, read_associations_csv, write_associations_csv

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


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
    graph, ids0, ids1 = read_associations_csv(path, with_ids=True)
    assert (ids0.tolist(), ids1.tolist()) == ([3, 40], [7, 900])
    assert graph.points0.tolist() == [[5, 6], [1, 2]]
    assert graph.points1.tolist() == [[3, 4], [7, 8]]
    assert graph.edges.tolist() == [[0, 0], [0, 1], [1, 0]]
    assert graph.rank.tolist() == [1, 1, 2]
    assert read_associations_csv(path) == graph


def test_no_edges(tmp_path):
    (tmp_path / "a.csv").write_text(HEADER)
    assert read_associations_csv(tmp_path / "a.csv") == AssociationGraph([], [], [], [], [])


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
        (b"\xff\xfe\x00junk", "it is no text"),
        (HEADER.encode() + b"0,0,1,2,3,4,0.5,1", "cut off"),
    ]:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=reason):
            read_associations_csv(path)
    with pytest.raises(ValueError, match="there is no such file"):
        read_associations_csv(tmp_path / "missing.csv")
    with pytest.raises(ValueError, match="path must be the name of a file"):
        read_associations_csv(3)


def test_every_truncation_inside_the_rows_is_refused_or_shorter(tmp_path):
    graph = AssociationGraph([[0, 0], [1, 1]], [[0, 0]], [[0, 0], [1, 0]], [0.5, 0.25], [1, 2])
    path, cut = tmp_path / "a.csv", tmp_path / "cut.csv"
    write_associations_csv(graph, path)
    data = path.read_bytes()
    whole = 0
    for length in range(len(data)):
        cut.write_bytes(data[:length])
        try:
            part = read_associations_csv(cut)
        except ValueError as error:
            assert str(error).startswith("path must be an association CSV")  # noqa: PT017
        else:
            whole += 1
            assert part.rank.tolist() == graph.rank.tolist()[: part.num_edges]
    # After the header, with and without its line end, and after the first row.
    assert whole == 3


@pytest.mark.parametrize("lacking", ["similarity", "rank"])
def test_a_graph_without_values_is_not_written(tmp_path, lacking):
    values = {"similarity": [0.5], "rank": [1], lacking: None}
    graph = AssociationGraph([[0, 0]], [[0, 0]], [[0, 0]], **values)
    with pytest.raises(ValueError, match=f"graph must have.*{lacking}=None"):
        write_associations_csv(graph, tmp_path / "a.csv")
    with pytest.raises(ValueError, match="graph must be an AssociationGraph"):
        write_associations_csv(None, tmp_path / "a.csv")


def test_an_older_file_survives_a_failed_write(tmp_path):
    graph = AssociationGraph([], [], [], [], [])
    with pytest.raises(ValueError, match="a file in an existing folder"):
        write_associations_csv(graph, tmp_path / "nowhere" / "a.csv")
    with pytest.raises(ValueError, match="a file in an existing folder"):
        write_associations_csv(graph, tmp_path)
    assert not np.any(list(tmp_path.iterdir()))
