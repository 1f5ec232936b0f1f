"""hloc's files: read as hloc writes them, written whole or not at all."""

import contextlib
import os

import numpy as np
import pytest

from manymatch import AssociationGraph
from manymatch.io import HlocWriter, ImageRecord, PairMatches, files, load_graph, read_hloc
from tests.support.leftovers import no_leftovers

RNG = np.random.default_rng(3)
P0, P1 = RNG.uniform(0, 640, (5, 2)), RNG.uniform(0, 640, (4, 2))
MATCHES = np.array([[3, 1], [0, 2], [4, 0]])
SCORES = np.array([0.5, 0.25, 0.75])
# As hloc itself writes them: other types of numbers, one partner per keypoint.
Q0 = np.arange(8.0).reshape(4, 2)
Q1 = 10 + np.arange(6.0).reshape(3, 2)
PARTNER, SCORE = np.array([2, -1, 0, 1]), np.array([0.25, 0.0, 0.75, 0.5], dtype=np.float32)
EDGES = [[2, 0], [3, 1], [0, 2]]


@pytest.fixture
def h5py():
    return pytest.importorskip("h5py", reason="h5py, which writes hloc files, is not installed")


def write_pair(folder, name0="a.jpg", name1="b.jpg", matches=MATCHES, confidence=None):
    files = folder / "features.h5", folder / "matches.h5"
    with HlocWriter(*files) as writer:
        assert writer.add(name0, name1, PairMatches(P0, P1, matches, confidence))
    return files


def test_hloc_comes_back(h5py, tmp_path):
    images = ImageRecord("db/a.jpg", (640, 480)), ImageRecord("query/b.jpg", (320, 240))
    features, matches = write_pair(tmp_path, *images, confidence=SCORES)
    graph = read_hloc(matches, features, "db/a.jpg", "query/b.jpg")
    assert graph.edges.tolist() == [[4, 0], [3, 1], [0, 2]]
    assert graph.similarity.tolist() == [0.75, 0.5, 0.25]
    assert np.array_equal(graph.points0, P0.astype(np.float32))
    assert np.array_equal(graph.points1, P1.astype(np.float32))
    swapped = read_hloc(matches, features, "query/b.jpg", "db/a.jpg")
    assert swapped.edges.tolist() == [[0, 4], [1, 3], [2, 0]]
    with h5py.File(features) as file:
        group = file["db/a.jpg"]
        assert group["keypoints"].dtype == np.float32
        assert group["image_size"][()].tolist() == [640, 480]
        assert set(file["query/b.jpg"]) == {"keypoints", "image_size"}
    with h5py.File(matches) as file:
        group = file["db-a.jpg/query-b.jpg"]
        assert group["matches0"][()].tolist() == [2, -1, -1, 1, 0]
        assert group["matches0"].dtype.kind == "i"
        assert group["matching_scores0"][()].tolist() == [0.25, 0, 0, 0.5, 0.75]
    assert no_leftovers(tmp_path)


def test_hloc_scores_are_always_there(h5py, tmp_path):
    """hloc always reads the scores, even where it ignores them."""
    from tests.support.importers import hloc_keypoints, hloc_matches

    features, matches = write_pair(tmp_path, "in/a.jpg", "b-c/d_e.jpg")
    found, scores = hloc_matches(matches, "in/a.jpg", "b-c/d_e.jpg")
    assert found.tolist() == sorted(MATCHES.tolist())
    assert scores.tolist() == [1.0] * len(MATCHES)
    assert np.array_equal(hloc_keypoints(features, "in/a.jpg"), P0.astype(np.float32))
    other, _ = hloc_matches(matches, "b-c/d_e.jpg", "in/a.jpg")
    assert other.tolist() == [[j, i] for i, j in sorted(MATCHES.tolist())]
    with h5py.File(matches) as file:
        assert file["in-a.jpg/b-c-d_e.jpg/matching_scores0"][()].tolist() == [1, 0, 0, 1, 1]
    features, matches = write_pair(tmp_path, matches=np.zeros((0, 2), int), confidence=[])
    assert hloc_matches(matches, "a.jpg", "b.jpg")[1].tolist() == []


def test_hloc_many_pairs_in_one_go(h5py, tmp_path):
    files = write_pair(tmp_path)
    with HlocWriter(*files) as writer:
        writer.add("b.jpg", "c.jpg", PairMatches(P1, P0, [[0, 0]]))
        writer.add("b.jpg", "d.jpg", PairMatches(P1, P1, [[1, 1]]))
        # Nothing has changed yet.
        assert read_hloc(files[1], files[0], "a.jpg", "b.jpg").num_edges == len(MATCHES)
    with h5py.File(files[0]) as file:
        assert sorted(file) == ["b.jpg", "c.jpg", "d.jpg"]
    assert read_hloc(files[1], files[0], "b.jpg", "d.jpg").edges.tolist() == [[1, 1]]
    assert no_leftovers(tmp_path)


@pytest.mark.usefixtures("h5py")
@pytest.mark.parametrize(
    ("name", "points", "message"),
    [
        ("b.jpg", P1 + 1, r"^pair must have the same keypoints of 'b\.jpg' as the pairs before"),
        ("in-a.jpg", P0, r"^pairs must have names that differ where hloc has - for /"),
    ],
)
def test_hloc_keeps_both_files_where_pairs_do_not_fit(tmp_path, name, points, message):
    files = write_pair(tmp_path)
    before = [path.read_bytes() for path in files]

    def add():
        with HlocWriter(*files) as writer:
            writer.add("in/a.jpg", "b.jpg", PairMatches(P0, P1, []))
            writer.add(name, "c.jpg", PairMatches(points, P0, []))

    with pytest.raises(ValueError, match=message):
        add()
    assert [path.read_bytes() for path in files] == before
    assert no_leftovers(tmp_path)


@pytest.mark.usefixtures("h5py")
@pytest.mark.parametrize("full", ["features.h5", "matches.h5"])
def test_hloc_changes_no_name_before_both_files_are_complete(tmp_path, monkeypatch, full):
    """The disk is full at any write of the one file; HDF5 itself would crash at some."""
    pair = write_pair(tmp_path)
    before = [path.read_bytes() for path in pair]
    room = [0]

    def write(number, data, real=os.write):
        target = os.fstat(number).st_ino
        if target == beside[full].stat().st_ino:
            room[0] -= 1
            if room[0] < 0:
                raise OSError(28, "No space left on device")
        return real(number, data)

    beside = {}

    def whole_file(path, real=files.whole_file):
        @contextlib.contextmanager
        def noted():
            with real(path) as place:
                beside[path.name] = place
                yield place

        return noted()

    monkeypatch.setattr("manymatch.io.files.whole_file", whole_file)
    monkeypatch.setattr(os, "write", write)
    tried = 0
    while True:
        room[0] = tried
        try:
            write_pair(tmp_path, "a.jpg", "c.jpg")
            break
        except OSError as error:
            assert str(error) == f"[Errno 28] No space left on device: '{tmp_path / full}'"  # noqa: PT017
        assert [path.read_bytes() for path in pair] == before
        assert no_leftovers(tmp_path)
        tried += 1
    assert tried > 2


@pytest.mark.usefixtures("h5py")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name0": ""}, r"^image0 must be the name of an image"),
        ({"name1": "../b.jpg"}, r"^image1 must be the path of an image below"),
        ({"name1": "/b.jpg"}, r"^image1 must be the path"),
        ({"name0": 5}, r"^image0 must be the name of an image or an ImageRecord"),
        ({"name1": "\udcff"}, r"^image1 must be a name that is text, got '\\udcff'"),
    ],
)
def test_hloc_refuses(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        write_pair(tmp_path, **change)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("h5py")
def test_hloc_needs_two_files_and_a_folder(tmp_path):
    one = tmp_path / "one.h5"
    with pytest.raises(ValueError, match=r"^matches_path must be another file"):
        HlocWriter(one, one)
    with (
        pytest.raises(ValueError, match=r"^path must be a file in an existing folder"),
        HlocWriter(one, tmp_path / "absent" / "m.h5"),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def hloc(tmp_path):
    h5py = pytest.importorskip("h5py", reason="h5py, which reads hloc files, is not installed")

    def make(pair, *, score=True):
        with h5py.File(tmp_path / "features.h5", "w") as file:
            file["db/1.jpg/keypoints"] = Q0.astype(np.float32)
            file["q/2.jpg/keypoints"] = Q1.astype(np.float16)
        with h5py.File(tmp_path / "matches.h5", "w") as file:
            file[f"{pair}/matches0"] = PARTNER.astype(np.int16)
            if score:
                file[f"{pair}/matching_scores0"] = SCORE.astype(np.float16)
        return tmp_path / "matches.h5", tmp_path / "features.h5"

    return make


def test_hloc(hloc):
    matches, features = hloc("db-1.jpg/q-2.jpg")
    graph = AssociationGraph(Q0, Q1, EDGES, [0.75, 0.5, 0.25])
    names = {"name0": "db/1.jpg", "name1": "q/2.jpg"}
    assert read_hloc(matches, features, **names) == graph


@pytest.mark.parametrize("score", [True, False])
def test_hloc_pair_asked_for_the_other_way_round(hloc, score):
    matches, features = hloc("db-1.jpg/q-2.jpg", score=score)
    graph = read_hloc(matches, features, "q/2.jpg", "db/1.jpg")
    if score:
        assert graph == AssociationGraph(Q1, Q0, [[0, 2], [1, 3], [2, 0]], [0.75, 0.5, 0.25])
    else:
        assert graph == AssociationGraph(Q1, Q0, [[0, 2], [1, 3], [2, 0]])


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
    other = tmp_path / "other.npz"
    np.savez(other, a=Q0)
    with pytest.raises(ValueError, match=r"hloc .h5 file of matches"):
        read_hloc(other, features, "db/1.jpg", "q/2.jpg")
    with pytest.raises(ValueError, match="name0 must be the name of an image"):
        read_hloc(matches, features, "", "q/2.jpg")
    with pytest.raises(ValueError, match=r"it is an .h5 file, see read_hloc"):
        load_graph(matches)


def test_hloc_without_h5py(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(ImportError, match=r"needs h5py.*manymatch.io"):
        read_hloc(tmp_path / "m.h5", tmp_path / "f.h5", "a", "b")
