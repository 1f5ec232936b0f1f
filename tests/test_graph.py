"""AssociationGraph: bad input, duplicates, subgraphs, compaction, files."""

import copy
import dataclasses
import pickle
import stat
import zipfile

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from manymatch.associate.gms import gms_filter
from manymatch.estimate.homography import estimate_homography
from manymatch.graph import AssociationGraph

P0 = np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0]])
P1 = np.array([[10.0, 11.0], [12.0, 13.0], [14.0, 15.0]])
EDGES = np.array([[0, 0], [3, 2], [0, 2], [3, 0]])
SIMILARITY = np.array([0.9, 0.8, 0.7, 0.6])
RANK = np.array([1, 1, 2, 3])
ARRAYS = ("points0", "points1", "edges", "similarity", "rank")


def make(**changes):
    arguments = {"points0": P0, "points1": P1, "edges": EDGES}
    arguments |= {"similarity": SIMILARITY, "rank": RANK}
    return AssociationGraph(**(arguments | changes))


def changed(array, index, value):
    result = np.array(array, dtype=np.float64)
    result[index] = value
    return result


BAD_POINTS = [
    None, "abc", 1.0, [1.0, 2.0], np.zeros((4, 1)), np.zeros((2, 4)), np.zeros((0, 4)),
    np.zeros((4, 2, 1)), np.zeros((4, 2), bool), np.zeros((4, 2), complex), P0.astype(object),
    P0.astype(str), [[1.0, 2.0], [3.0]], [[1.0, 2.0], [3.0, None]], {"x": 1},
    changed(P0, (2, 1), np.nan), changed(P0, (2, 1), np.inf), changed(P0, (2, 1), -np.inf),
    np.ma.masked_equal(P0, 3.0),
]  # fmt: skip
BAD_EDGES = [
    None, "abc", 1, [0, 1], np.zeros((4, 3), int), np.zeros((2, 4), int), np.zeros((4, 2), bool),
    np.zeros((4, 2), complex), EDGES.astype(object), [[0, 0], [1]], [[0, 0], [1, None]],
    changed(EDGES, (1, 0), 0.5), changed(EDGES, (1, 0), np.nan), changed(EDGES, (1, 0), np.inf),
    changed(EDGES, (1, 0), 1e300), changed(EDGES, (1, 0), 4), changed(EDGES, (1, 1), 3),
    changed(EDGES, (1, 0), -1).astype(int), changed(EDGES, (1, 1), -1).astype(int),
    np.full((4, 2), 2**63, np.uint64), [[2**70, 0]] * 4, np.ma.masked_equal(EDGES, 3),
]  # fmt: skip
BAD_SIMILARITY = [
    "abc", 0.5, SIMILARITY[:3], [], SIMILARITY[:, None], SIMILARITY > 0,
    SIMILARITY.astype(complex), SIMILARITY.astype(object), [0.1, 0.2, 0.3, [0.4]],
    [0.1, 0.2, 0.3, None], changed(SIMILARITY, 1, np.nan), changed(SIMILARITY, 1, np.inf),
    changed(SIMILARITY, 1, 1e39),
]  # fmt: skip
BAD_RANK = [
    "abc", 1, RANK[:3], [], RANK[:, None], RANK > 0, RANK.astype(complex), RANK.astype(object),
    [1, 2, 3, [4]], changed(RANK, 1, 0), changed(RANK, 1, -3), changed(RANK, 1, 1.5),
    changed(RANK, 1, np.nan), changed(RANK, 1, 2**31),
]  # fmt: skip
BAD_SOURCE = [
    "abc", 1, [0, 1, 0], [], [[0]] * 4, [True] * 4, [0, 1, 0, -1], [0, 1, 0, 64], [0, 1, 0, 0.5],
    [0, 1, 0, np.nan], [0, 1, 0, None],
]  # fmt: skip
BAD_PRIOR = [
    "abc", 0.5, [0.5] * 3, [], [[0.5]] * 4, [True] * 4, [0.5, 0.5, 0.5, 0.0],
    [0.5, 0.5, 0.5, 1.001], [0.5, 0.5, 0.5, -0.5], [0.5, 0.5, 0.5, np.nan], [0.5, 0.5, 0.5, None],
]  # fmt: skip
BAD = {
    "source": BAD_SOURCE,
    "prior": BAD_PRIOR,
    "points0": BAD_POINTS,
    "points1": BAD_POINTS,
    "edges": BAD_EDGES,
    "similarity": BAD_SIMILARITY,
    "rank": BAD_RANK,
}


@pytest.mark.parametrize(
    ("name", "index"), [(name, i) for name, values in BAD.items() for i in range(len(values))]
)
def test_bad_argument_is_named(name, index):
    with pytest.raises(ValueError, match=rf"^{name} must .*, got "):
        make(**{name: BAD[name][index]})


@pytest.mark.parametrize("dtype", ["i1", "u2", "i4", "u8", ">i4", "f2", "f4", "f8", "g", ">f8"])
def test_every_number_type_is_accepted(dtype):
    graph = make(points0=P0.astype(dtype), edges=EDGES.astype(dtype), rank=RANK.astype(dtype))
    assert graph == make()
    kinds = [getattr(graph, name).dtype for name in ARRAYS]
    assert kinds == [np.float64, np.float64, np.int64, np.float32, np.int32]


def test_input_may_be_lists_or_any_layout_and_is_copied():
    arrays = [np.array(array) for array in (P0, P1, EDGES, SIMILARITY, RANK)]
    assert AssociationGraph(*(array.tolist() for array in arrays)) == make()
    strided = make(points0=np.asfortranarray(P0), edges=np.repeat(EDGES, 2, axis=0)[::2])
    assert strided == make()
    graph = AssociationGraph(*arrays)
    for array in arrays:
        array[:] = 1  # still writeable
    assert graph == make()


@pytest.mark.parametrize("empty", [[], np.zeros((0, 2)), np.zeros((0, 2), np.int32)])
def test_empty_graphs_are_legal(empty):
    graph = AssociationGraph(empty, empty, empty, similarity=[], rank=[])
    assert len(graph) == graph.num_edges == 0
    assert graph.edges.shape == graph.points0.shape == (0, 2)
    assert [len(d) for d in graph.degrees()] == [0, 0]
    assert graph.compact()[0] == graph.head(3) == graph.up_to_rank(2) == graph.filter([]) == graph
    assert "0 edges" in repr(graph)
    lonely = AssociationGraph(P0, P1, empty)
    assert lonely.degrees()[0].tolist() == [0, 0, 0, 0]
    assert [len(part) for part in lonely.compact()[1:]] == [0, 0]


def test_plain_matches_are_edges_of_rank_one():
    graph = AssociationGraph.from_matches(P0[:3], P1)
    assert graph == AssociationGraph(P0[:3], P1, [[0, 0], [1, 1], [2, 2]], rank=[1, 1, 1])
    assert graph.edges.dtype == np.int64
    assert graph.rank.dtype == np.int32
    assert graph.num_duplicates == 0
    assert AssociationGraph.from_matches([], []) == AssociationGraph([], [], [], rank=[])


BAD_CALLS = [
    *((lambda n=n: make().head(n), r"^n must be an integer") for n in (-1, 1.0, None, "1", True)),
    *(
        (lambda k=k: make().up_to_rank(k), r"^k must be an integer")
        for k in (0, -1, 1.0, None, [1])
    ),
    *(
        (lambda m=m: make().filter(m), r"^mask must be a boolean array of shape \(4,\), got ")
        for m in (None, "abc", True, [0, 1, 1, 0], [True] * 3, [[True] * 4], [True, [True]], [])
    ),
    *(
        (lambda o=o: make().reordered(o), r"^order must .*, got ")
        for o in ([0, 0], [4], [-1], "ab", [0.5], [[0]])
    ),
    (lambda: make(rank=None).up_to_rank(1), r"has ranks, got .* rank=None"),
    (lambda: AssociationGraph(P0, [], [[0, 0]]), r"^edges must hold indices into points1 .0 rows"),
    (lambda: AssociationGraph.from_matches(P0, P1), "^points1 must hold 4 points, one for each of"),
    (
        lambda: AssociationGraph.from_matches(P0[:, :1], P1),
        r"^points0 must be an \(N, 2\) array of",
    ),
    (lambda: AssociationGraph.from_matches(P0[:3] * np.nan, P1), "^points0 must hold finite"),
]


@pytest.mark.parametrize(("call", "message"), BAD_CALLS, ids=range(len(BAD_CALLS)))
def test_bad_call_is_one_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_parts_keep_the_order_and_say_that_they_removed_no_duplicates():
    for k, kept in ((1, [0, 1]), (2, [0, 1, 2]), (3, [0, 1, 2, 3]), (2**40, [0, 1, 2, 3])):
        assert make().up_to_rank(k).edges.tolist() == EDGES[kept].tolist()
    assert make(rank=[3, 1, 2, 1]).up_to_rank(2).edges.tolist() == EDGES[[1, 2, 3]].tolist()
    graph = make(edges=np.zeros((4, 2), int))
    assert graph.num_duplicates == 3
    assert graph.head(1).num_duplicates == 0


def through_pickle(graph):
    return pickle.loads(pickle.dumps(graph))  # noqa: S301


COPIES = (copy.copy, copy.deepcopy, through_pickle)


@pytest.mark.parametrize(
    "derive",
    [
        *(lambda g: g, lambda g: g.head(2), lambda g: g.up_to_rank(2)),
        *(lambda g: g.filter([True] * 4), lambda g: g.compact()[0], *COPIES),
    ],
)
def test_graphs_are_immutable(derive):
    graph = derive(make())
    for name in ARRAYS:
        array = getattr(graph, name)
        assert array.flags.c_contiguous
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(graph, name, None)
    if derive in COPIES:
        twice = make(edges=[[0, 0], [0, 0], [1, 1], [2, 2]])
        assert derive(twice) == twice
        assert derive(twice).num_duplicates == 1


@pytest.mark.parametrize(
    "change",
    [
        {"points0": changed(P0, (0, 0), 9)},
        {"points1": P1[:, ::-1]},
        {"points0": np.vstack([P0, P0])},
        {"edges": EDGES[::-1]},
        *({"similarity": value} for value in (None, SIMILARITY / 2)),
        *({"rank": value} for value in (None, RANK + 1)),
    ],
)
def test_equality_is_by_content(change):
    assert make(**change) != make()
    assert make() == make()
    assert make() != 3
    with pytest.raises(TypeError, match="unhashable"):
        hash(make())


@st.composite
def inputs(draw):
    """Draw points, edges with repetitions, similarities and ranks."""
    n0, n1 = draw(st.integers(1, 8)), draw(st.integers(1, 8))
    pairs = st.tuples(st.integers(0, n0 - 1), st.integers(0, n1 - 1))
    edges = draw(st.lists(pairs, max_size=30))
    count = len(edges)
    similarity = draw(st.lists(st.floats(-1, 1, width=32), min_size=count, max_size=count))
    rank = draw(st.lists(st.integers(1, 5), min_size=count, max_size=count))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    return rng.normal(size=(n0, 2)), rng.normal(size=(n1, 2)), edges, similarity, rank


@given(inputs())
def test_duplicates_and_degrees(case):
    points0, points1, edges, similarity, rank = case
    graph = AssociationGraph(points0, points1, edges, similarity, rank)
    kept = [i for i, edge in enumerate(edges) if edge not in edges[:i]]
    assert [tuple(e) for e in graph.edges.tolist()] == [edges[i] for i in kept]
    assert graph.similarity.tolist() == [similarity[i] for i in kept]
    assert graph.rank.tolist() == [rank[i] for i in kept]
    assert graph.num_duplicates == len(edges) - len(kept)
    for side, degree in enumerate(graph.degrees()):
        ends = graph.edges[:, side].tolist()
        assert degree.tolist() == [ends.count(i) for i in range(len(degree))]


@given(inputs(), st.data())
def test_filter_equals_the_graph_of_the_kept_edges(case, data):
    graph = AssociationGraph(*case)
    mask = data.draw(st.lists(st.booleans(), min_size=len(graph), max_size=len(graph)))
    kept = [i for i, keep in enumerate(mask) if keep]
    part = graph.filter(mask)
    assert part == AssociationGraph(
        case[0], case[1], graph.edges[kept], graph.similarity[kept], graph.rank[kept]
    )


@given(inputs(), st.integers(1, 40))
def test_head_and_graphs_nested_by_rank(case, k):
    graph = AssociationGraph(*case)
    assert graph.head(k) == graph.filter(np.arange(len(graph)) < k)
    smaller, larger = graph.up_to_rank(k), graph.up_to_rank(k + 1)
    assert larger.up_to_rank(k) == smaller
    assert all(r <= k for r in smaller.rank)
    assert len(larger) - len(smaller) == graph.rank.tolist().count(k + 1)


@given(inputs())
def test_compact_maps_any_graph_back(case):
    graph = AssociationGraph(*case)
    small, index0, index1 = graph.compact()
    np.testing.assert_array_equal(small.points0, graph.points0[index0])
    np.testing.assert_array_equal(small.points1, graph.points1[index1])
    back = np.stack([index0[small.edges[:, 0]], index1[small.edges[:, 1]]], axis=1)
    np.testing.assert_array_equal(back, graph.edges)
    assert all((degree > 0).all() for degree in small.degrees())
    assert small.compact()[0] == small


@pytest.fixture
def graph():
    rng = np.random.default_rng(3)
    edges = np.stack(np.meshgrid(np.arange(8), np.arange(5)), axis=-1).reshape(-1, 2)
    points = rng.normal(size=(9, 2)), rng.normal(size=(6, 2))
    rank = rng.integers(1, 6, 43)
    return AssociationGraph(*points, np.vstack([edges, edges[:3]]), rng.uniform(size=43), rank)


@pytest.fixture
def path(tmp_path, graph):
    graph.save(tmp_path / "graph.npz")
    return tmp_path / "graph.npz"


def rewrite(path, **changes):
    """Write the file again with fields changed, or removed if None."""
    with np.load(path) as content:
        fields = dict(content) | changes
    np.savez(path, **{name: value for name, value in fields.items() if value is not None})


def check_unreadable(path, reason):
    with pytest.raises(ValueError, match=r"^path must be a graph file written by") as error:
        AssociationGraph.load(path)
    assert str(path) in str(error.value)
    assert reason in str(error.value)


@pytest.mark.parametrize(
    "change", [{}, {"similarity": None}, {"rank": None}, {"similarity": None, "rank": None}]
)
def test_files_come_back_equal(tmp_path, change):
    graph = make(edges=[[0, 0], [0, 0], [1, 1], [2, 2]], **change)
    # The name is taken as it is, with ordinary permissions, and nothing else is left.
    path, again = tmp_path / "no_suffix", tmp_path / "again.npz"
    graph.save(path)
    graph.save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["no_suffix"]
    loaded = AssociationGraph.load(str(path))
    assert loaded == graph
    assert loaded.num_duplicates == graph.num_duplicates == 1
    graph.save(again)
    assert again.read_bytes() == path.read_bytes()
    (tmp_path / "plain").write_bytes(b"")
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)
    with np.load(path, allow_pickle=False) as content:
        assert all(content[name].dtype.kind in "fiU" for name in content)
    empty = AssociationGraph([], [], [])
    empty.save(path)
    assert AssociationGraph.load(path) == empty


def test_failed_write_keeps_the_old_file_and_leaves_nothing(path, graph, monkeypatch):
    def fail(file, **_):
        file.write(b"half a file")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez_compressed", fail)
    with pytest.raises(OSError, match="disk full"):
        graph.head(1).save(path)
    assert AssociationGraph.load(path) == graph
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_bad_path_is_one_sentence(tmp_path, graph):
    for name in ("missing_folder/graph.npz", "."):
        with pytest.raises(ValueError, match=r"^path must be a file in an existing folder, got "):
            graph.save(tmp_path / name)
    for bad in (None, 3, "", b"graph.npz", ["graph.npz"]):
        for call in (graph.save, AssociationGraph.load):
            with pytest.raises(ValueError, match=r"^path must be the name of a file, got "):
                call(bad)
    check_unreadable(tmp_path / "nothing.npz", "no such file")
    check_unreadable(tmp_path, "folder")


def test_other_and_cut_files_are_refused(path):
    data = path.read_bytes()
    others = (b"hello", b"PK", b"PK\x03\x04 and so on", b"\x80\x04K\x01.", b"\x93NUMPY")
    for content in (*others, *(data[:length] for length in range(0, len(data), 7))):
        path.write_bytes(content)
        check_unreadable(path, "")
    np.savez(path, a=np.zeros(3))
    check_unreadable(path, "something else")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("format", "manymatch.AssociationGraph")
    check_unreadable(path, "")


def test_member_must_be_an_array(path):
    rewrite(path, edges=None)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("edges", "plain text")
    check_unreadable(path, "edges")


NAMES = "source_names must be from 2 to 64 different names"


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        *(
            (name, None, f"lacks the array '{name}'")
            for name in ("version", "points0", "points1", "edges", "num_duplicates")
        ),
        ("format", np.array("other"), "something else"),
        ("version", np.array(3), "version 3"),
        ("version", np.array("x"), "version must be an integer"),
        ("points0", np.zeros((3, 4)), "points0 must be"),
        ("points0", np.array([{"a": 1}], dtype=object), "Object arrays"),
        ("points1", np.full((6, 2), np.nan), "points1 must hold finite numbers"),
        ("edges", np.full((40, 2), 99), "edges must hold indices"),
        ("similarity", np.zeros(3), "similarity must be"),
        ("rank", np.zeros(40), "rank must hold"),
        ("num_duplicates", np.array(-1), "num_duplicates must be"),
        ("num_duplicates", np.zeros(2), "num_duplicates must be"),
        *(("source_names", np.array(names), NAMES) for names in ([1, 2], "ab", [["a", "b"]])),
    ],
)
def test_bad_field(path, name, value, reason):
    if name == "source_names":
        make(**SOURCES).save(path)
    rewrite(path, **{name: value})
    check_unreadable(path, reason)


def test_damage_is_refused_or_harmless(path, graph):
    # Some bytes, such as dates inside the archive, carry no content.
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    positions = range(0, len(data), 3)
    refusals = []
    for position in positions:
        content = bytearray(data)
        content[position] ^= int(rng.integers(1, 256))
        path.write_bytes(bytes(content))
        try:
            loaded = AssociationGraph.load(path)
        except ValueError as error:
            refusals.append(str(error))
        else:
            assert loaded.edges.tolist() == graph.edges.tolist()
    assert all(text.startswith("path must be a graph file") for text in refusals)
    assert len(refusals) > 0.5 * len(positions)


def test_points_in_space(tmp_path):
    """Either side may have three coordinates; functions of images refuse such a graph."""
    space = np.arange(12.0).reshape(4, 3)
    graph = AssociationGraph(P0, space, [[0, 3], [2, 1]])
    assert graph.points1.shape == (4, 3)
    graph.save(tmp_path / "graph.npz")
    assert AssociationGraph.load(tmp_path / "graph.npz") == graph
    assert AssociationGraph.from_matches(space, space).points0.shape == (4, 3)
    want = r"graph must have pixels \(N, 2\) as points1 here, got points1 of shape \(4, 3\)"
    with pytest.raises(ValueError, match=want):
        estimate_homography(graph)
    with pytest.raises(ValueError, match=want):
        gms_filter(graph, (10, 10), (10, 10))


SOURCES = {"source": [0, 1, 0, 1], "source_names": ["a", "b"], "prior": [0.1, 0.9, 0.5, 1.0]}


@pytest.mark.parametrize(
    "names", [[], ["a"], ["a", "a"], "ab", [1, 2], ["a", ""], ["a", "b\n"], {"a": 1, "b": 2}]
)
def test_bad_names_of_sources(names):
    with pytest.raises(ValueError, match=r"^source_names must be from 2 to 64 .*, got "):
        make(source=[0, 1, 0, 1], source_names=names)
    with pytest.raises(ValueError, match=r"^source must be given with source_names, got None"):
        make(source_names=names)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 2)), max_size=12),
    st.lists(st.tuples(st.integers(-1, 5), st.integers(-1, 4)), max_size=8),
)
def test_sources_of_pairs_of_keypoints(edges, pairs):
    rows = {(i, j): s for i, j, s in reversed(edges)}
    source = [s for _, _, s in edges]
    ends = np.array([edge[:2] for edge in edges], dtype=int).reshape(-1, 2)
    names = ["a", "b", "c"]
    graph = AssociationGraph(
        np.zeros((4, 2)), np.zeros((3, 2)), ends, source=source, source_names=names
    )
    wanted = [rows.get(pair, -1) for pair in pairs]
    given_pairs = np.array(pairs, dtype=int).reshape(-1, 2)
    assert graph.source_of(given_pairs).tolist() == wanted
    counts = {name: wanted.count(number) for number, name in enumerate(names)}
    assert graph.count_by_source(given_pairs) == counts


def test_sources_and_priors_stay_with_their_edges(tmp_path):
    plain = make()
    assert (plain.source_of(EDGES), plain.count_by_source(EDGES)) == (None, {})
    graph = make(**SOURCES)
    assert graph.source.dtype == np.int32
    assert graph.prior.dtype == np.float64
    assert graph.source_names == ("a", "b")
    assert graph != make()
    assert graph != make(**SOURCES | {"source_names": ["a", "c"]})
    assert graph != make(**SOURCES | {"prior": None})
    assert make(source=[0, 2, 0, 1]).source_names == ("0", "1", "2")
    chosen = graph.filter([False, True, True, True])
    assert (chosen.source.tolist(), chosen.prior.tolist()) == ([1, 0, 1], [0.9, 0.5, 1.0])
    assert chosen.head(1).source_names == ("a", "b")
    assert graph.reordered([3, 0]).source.tolist() == [1, 0]
    compact = graph.compact()[0]
    assert compact.source.tolist() == [0, 1, 0, 1]
    assert compact.prior.tolist() == SOURCES["prior"]
    twice = AssociationGraph(P0, P1, [[0, 0], [0, 0], [1, 1]], source=[1, 0, 0], prior=[1, 0.5, 1])
    assert twice.source.tolist() == [1, 0]
    assert twice.prior.tolist() == [1.0, 1.0]
    for copied in (copy.copy(graph), copy.deepcopy(graph)):
        assert copied == graph
    graph.save(tmp_path / "graph.npz")
    assert AssociationGraph.load(tmp_path / "graph.npz") == graph
    assert "from a, b" in repr(graph)
    assert AssociationGraph(P0, P1, EDGES, **graph.of_edges()) == graph
