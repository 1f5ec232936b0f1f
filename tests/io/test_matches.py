"""Matches of other tools as graphs: plain arrays, SuperGlue, hloc, and the one door."""

import numpy as np
import pytest

from manymatch import AssociationGraph
from manymatch.io import graph_from_matches, load_graph, read_hloc, read_superglue
from manymatch.io.hloc import pair_names

P0 = np.arange(8.0).reshape(4, 2)
P1 = 10 + np.arange(6.0).reshape(3, 2)
PARTNER, SCORE = np.array([2, -1, 0, 1]), np.array([0.25, 0.0, 0.75, 0.5], dtype=np.float32)
EDGES = [[2, 0], [3, 1], [0, 2]]


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
        ({"keypoints1": np.array([{}], dtype=object)}, "allow_pickle"),
    ],
)
def test_bad_superglue(tmp_path, changes, reason):
    path = superglue(tmp_path / "a.npz", **changes)
    with pytest.raises(ValueError, match=f"path must be a SuperGlue .npz file.*{reason}"):
        read_superglue(path)


def test_names_as_hloc_writes_them():
    assert pair_names("db/1.jpg", "q/a/2.jpg") == ("db-1.jpg/q-a-2.jpg", "db-1.jpg_q-a-2.jpg")


@pytest.fixture
def hloc(tmp_path):
    h5py = pytest.importorskip("h5py", reason="h5py, which reads hloc files, is not installed")

    def make(pair, *, score=True):
        with h5py.File(tmp_path / "features.h5", "w") as file:
            file["db/1.jpg/keypoints"] = P0.astype(np.float32)
            file["q/2.jpg/keypoints"] = P1.astype(np.float16)
        with h5py.File(tmp_path / "matches.h5", "w") as file:
            file[f"{pair}/matches0"] = PARTNER.astype(np.int16)
            if score:
                file[f"{pair}/matching_scores0"] = SCORE.astype(np.float16)
        return tmp_path / "matches.h5", tmp_path / "features.h5"

    return make


@pytest.mark.parametrize("pair", ["db-1.jpg/q-2.jpg", "db-1.jpg_q-2.jpg"])
def test_hloc(hloc, pair):
    matches, features = hloc(pair)
    graph = AssociationGraph(P0, P1, EDGES, [0.75, 0.5, 0.25])
    names = {"name0": "db/1.jpg", "name1": "q/2.jpg"}
    assert read_hloc(matches, features, **names) == graph
    assert read_hloc(matches, features, **names, features1=features) == graph
    assert load_graph(matches, features=features, **names) == graph


@pytest.mark.parametrize("score", [True, False])
@pytest.mark.parametrize("pair", ["db-1.jpg/q-2.jpg", "db-1.jpg_q-2.jpg"])
def test_hloc_pair_asked_for_the_other_way_round(hloc, pair, score):
    matches, features = hloc(pair, score=score)
    graph = read_hloc(matches, features, "q/2.jpg", "db/1.jpg")
    if score:
        assert graph == AssociationGraph(P1, P0, [[0, 2], [1, 3], [2, 0]], [0.75, 0.5, 0.25])
    else:
        assert graph == AssociationGraph(P1, P0, [[0, 2], [1, 3], [2, 0]])


def test_bad_hloc(hloc, tmp_path):
    matches, features = hloc("db-1.jpg/q-2.jpg")
    with pytest.raises(ValueError, match=r"has no image 'q/3.jpg'"):
        read_hloc(matches, features, "db/1.jpg", "q/3.jpg")
    with pytest.raises(ValueError, match=r"has no pair 'db/1.jpg', 'db/1.jpg'"):
        read_hloc(matches, features, "db/1.jpg", "db/1.jpg")
    with pytest.raises(ValueError, match=r"has no image 'db' with keypoints"):
        read_hloc(matches, features, "db", "q/2.jpg")
    with pytest.raises(ValueError, match=r"hloc .h5 file of features.*no such file"):
        read_hloc(matches, tmp_path / "none.h5", "db/1.jpg", "q/2.jpg")
    with pytest.raises(ValueError, match=r"hloc .h5 file of matches"):
        read_hloc(superglue(tmp_path / "a.npz"), features, "db/1.jpg", "q/2.jpg")
    with pytest.raises(ValueError, match="name0 must be the name of an image"):
        read_hloc(matches, features, "", "q/2.jpg")
    with pytest.raises(ValueError, match="features must be given for hloc"):
        load_graph(matches, name0="db/1.jpg", name1="q/2.jpg")


def test_hloc_without_h5py(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(ImportError, match=r"needs h5py.*manymatch.io"):
        read_hloc(tmp_path / "m.h5", tmp_path / "f.h5", "a", "b")


def test_truncated_h5(hloc):
    matches, features = hloc("db-1.jpg/q-2.jpg")
    data = matches.read_bytes()
    for length in range(8, len(data), 97):
        matches.write_bytes(data[:length])
        with pytest.raises(ValueError, match="path must be"):
            load_graph(matches, features=features, name0="db/1.jpg", name1="q/2.jpg")


def test_the_door_opens_our_own_files_and_arrays(tmp_path):
    graph = AssociationGraph(P0, P1, EDGES, [0.75, 0.5, 0.25], [1, 1, 2])
    graph.save(tmp_path / "graph.npz")
    assert load_graph(tmp_path / "graph.npz") == graph
    np.save(tmp_path / "matches.npy", np.array(EDGES))
    plain = load_graph(tmp_path / "matches.npy", points0=P0, points1=P1)
    assert plain == AssociationGraph(P0, P1, EDGES)


def test_arguments_that_do_not_fit_the_kind(tmp_path):
    np.save(tmp_path / "matches.npy", np.array(EDGES))
    with pytest.raises(ValueError, match=r"points0 must be given for .npy files"):
        load_graph(tmp_path / "matches.npy")
    with pytest.raises(ValueError, match="points0 must be left out for SuperGlue"):
        load_graph(superglue(tmp_path / "a.npz"), points0=P0)
    with pytest.raises(ValueError, match=r"points1 must be an \(N, 2\) array"):
        load_graph(tmp_path / "matches.npy", points0=P0, points1=[1.0])


def sample_files(tmp_path):
    graph = AssociationGraph(P0, P1, EDGES, [0.75, 0.5, 0.25], [1, 1, 2])
    graph.save(tmp_path / "graph.npz")
    superglue(tmp_path / "superglue.npz")
    np.save(tmp_path / "matches.npy", np.array(EDGES))
    return [tmp_path / name for name in ("graph.npz", "superglue.npz", "matches.npy")]


def arguments_for(path):
    return {"points0": P0, "points1": P1} if path.suffix == ".npy" else {}


def test_truncations_are_refused(tmp_path):
    cut = tmp_path / "cut"
    for path in sample_files(tmp_path):
        data = path.read_bytes()
        for length in range(0, len(data), 5):
            cut.write_bytes(data[:length])
            with pytest.raises(ValueError, match=r"^path must be"):
                load_graph(cut, **arguments_for(path))


def test_damage_gives_a_graph_or_a_value_error(tmp_path):
    rng = np.random.default_rng(0)
    damaged = tmp_path / "damaged"
    refused = 0
    for path in sample_files(tmp_path):
        data = path.read_bytes()
        for position in range(0, len(data), 4):
            content = bytearray(data)
            content[position] ^= int(rng.integers(1, 256))
            damaged.write_bytes(bytes(content))
            try:
                load_graph(damaged, **arguments_for(path))
            except ValueError as error:
                refused += 1
                assert "must be" in str(error)  # noqa: PT017
    assert refused > 100


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
    with pytest.raises(ValueError, match="there is no such file"):
        load_graph(tmp_path / "missing")
    with pytest.raises(ValueError, match=r"^path must be"):
        load_graph(tmp_path)
