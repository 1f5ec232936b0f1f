"""Graph files: round trip, atomic writing, and every way in which a file can be wrong."""

import stat
import zipfile

import numpy as np
import pytest

from manymatch.graph import AssociationGraph


@pytest.fixture
def graph():
    rng = np.random.default_rng(3)
    edges = np.stack(np.meshgrid(np.arange(8), np.arange(5)), axis=-1).reshape(-1, 2)
    return AssociationGraph(
        rng.normal(size=(9, 2)),
        rng.normal(size=(6, 2)),
        np.vstack([edges, edges[:3]]),
        rng.uniform(size=43),
        rng.integers(1, 6, 43),
    )


@pytest.fixture
def path(tmp_path, graph):
    path = tmp_path / "graph.npz"
    graph.save(path)
    return path


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


def test_round_trip(path, graph):
    loaded = AssociationGraph.load(path)
    assert loaded == graph
    assert loaded.num_duplicates == graph.num_duplicates == 3
    assert AssociationGraph.load(str(path)) == graph


@pytest.mark.parametrize("names", [(), ("similarity",), ("rank",)])
def test_optional_fields(tmp_path, graph, names):
    given = {name: getattr(graph, name) for name in names}
    part = AssociationGraph(graph.points0, graph.points1, graph.edges, **given)
    part.save(tmp_path / "part.npz")
    assert AssociationGraph.load(tmp_path / "part.npz") == part


def test_empty_graph(tmp_path):
    empty = AssociationGraph([], [], [])
    empty.save(tmp_path / "empty.npz")
    assert AssociationGraph.load(tmp_path / "empty.npz") == empty


def test_name_is_taken_as_it_is_and_nothing_else_is_left(tmp_path, graph):
    graph.save(tmp_path / "no_suffix")
    graph.save(tmp_path / "no_suffix")
    assert [p.name for p in tmp_path.iterdir()] == ["no_suffix"]
    assert AssociationGraph.load(tmp_path / "no_suffix") == graph


def test_same_graph_same_bytes(tmp_path, path, graph):
    graph.save(tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == path.read_bytes()


def test_file_has_ordinary_permissions(tmp_path, path):
    (tmp_path / "plain").write_bytes(b"")
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


def test_no_pickle_inside(path):
    with np.load(path, allow_pickle=False) as content:
        assert all(content[name].dtype.kind in "fiU" for name in content)


def test_failed_write_keeps_the_old_file_and_leaves_nothing(path, graph, monkeypatch):
    def fail(file, **_):
        file.write(b"half a file")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez_compressed", fail)
    with pytest.raises(OSError, match="disk full"):
        graph.head(1).save(path)
    assert AssociationGraph.load(path) == graph
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("name", ["missing_folder/graph.npz", "."])
def test_save_where_no_file_can_be(tmp_path, graph, name):
    with pytest.raises(ValueError, match=r"^path must be a file in an existing folder, got "):
        graph.save(tmp_path / name)


@pytest.mark.parametrize("bad", [None, 3, "", b"graph.npz", ["graph.npz"]])
def test_path_that_is_none(graph, bad):
    with pytest.raises(ValueError, match=r"^path must be the name of a file, got "):
        graph.save(bad)
    with pytest.raises(ValueError, match=r"^path must be the name of a file, got "):
        AssociationGraph.load(bad)


def test_missing_file(tmp_path):
    check_unreadable(tmp_path / "nothing.npz", "no such file")


def test_folder(tmp_path):
    check_unreadable(tmp_path, "directory")


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"PK", b"PK\x03\x04 and so on", b"\x80\x04K\x01."]
)
def test_other_content(tmp_path, content):
    (tmp_path / "other.npz").write_bytes(content)
    check_unreadable(tmp_path / "other.npz", "")


def test_single_array(tmp_path):
    np.save(tmp_path / "array.npy", np.zeros(3))
    check_unreadable(tmp_path / "array.npy", "")


def test_npz_of_something_else(tmp_path):
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    check_unreadable(tmp_path / "other.npz", "something else")


def test_npz_of_another_format(path):
    rewrite(path, format=np.array("other"))
    check_unreadable(path, "something else")


def test_zip_of_plain_files(tmp_path):
    with zipfile.ZipFile(tmp_path / "plain.npz", "w") as archive:
        archive.writestr("format", "manymatch.AssociationGraph")
    check_unreadable(tmp_path / "plain.npz", "")


def test_member_that_is_no_array(path):
    rewrite(path, edges=None)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("edges", "plain text")
    check_unreadable(path, "edges")


@pytest.mark.parametrize("name", ["version", "points0", "points1", "edges", "num_duplicates"])
def test_missing_field(path, name):
    rewrite(path, **{name: None})
    check_unreadable(path, f"lacks the array '{name}'")


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("version", np.array(2), "version 2"),
        ("version", np.array("x"), "version must be an integer"),
        ("points0", np.zeros((3, 3)), "points0 must be"),
        ("points1", np.full((6, 2), np.nan), "points1 must hold finite numbers"),
        ("edges", np.full((40, 2), 99), "edges must hold indices"),
        ("similarity", np.zeros(3), "similarity must be"),
        ("rank", np.zeros(40), "rank must hold"),
        ("num_duplicates", np.array(-1), "num_duplicates must be"),
        ("num_duplicates", np.zeros(2), "num_duplicates must be"),
    ],
)
def test_bad_field(path, name, value, reason):
    rewrite(path, **{name: value})
    check_unreadable(path, reason)


def test_pickled_field_is_not_loaded(path):
    rewrite(path, points0=np.array([{"a": 1}], dtype=object))
    check_unreadable(path, "allow_pickle")


def test_every_truncation_is_refused(path, tmp_path):
    data = path.read_bytes()
    cut = tmp_path / "cut.npz"
    for length in range(0, len(data), 7):
        cut.write_bytes(data[:length])
        check_unreadable(cut, "")


def test_damage_is_refused_or_harmless(path, tmp_path, graph):
    # Some bytes, such as dates inside the archive, carry no content.
    data = path.read_bytes()
    damaged = tmp_path / "damaged.npz"
    rng = np.random.default_rng(0)
    positions = range(0, len(data), 3)
    refusals = []
    for position in positions:
        content = bytearray(data)
        content[position] ^= int(rng.integers(1, 256))
        damaged.write_bytes(bytes(content))
        try:
            loaded = AssociationGraph.load(damaged)
        except ValueError as error:
            refusals.append(str(error))
        else:
            assert loaded.edges.tolist() == graph.edges.tolist()
    assert all(text.startswith("path must be a graph file") for text in refusals)
    assert len(refusals) > 0.5 * len(positions)
