"""Files at addresses: in memory and on a web server; errors of one sentence, without secrets."""

import functools
import http.server
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest

from manymatch.io import load_image, read_pairs, write_associations_csv
from manymatch.io.files import (
    as_folder,
    as_path,
    output_folder,
    read_bytes,
    whole_file,
    whole_files,
    write_text,
)
from manymatch.io.graphs import load_graph
from manymatch.io.remote import masked
from tests.support.synthetic_images import make_images

fsspec = pytest.importorskip("fsspec")
pytest.importorskip("upath")
pytest.importorskip("PIL")


@pytest.fixture
def memory():
    """The files in memory, none at first."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pseudo_dirs[:] = [""]
    yield system
    system.store.clear()


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    make_images(folder, 2)
    return folder


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ftp://me:secret@host/a.jpg", "ftp://***@host/a.jpg"),
        ("see 'https://host/b.jpg?key=secret'", "see 'https://host/b.jpg?***'"),
        ("s3://bucket/a?b.png", "s3://bucket/a?b.png"),
        ("me@host", "me@host"),
        ("ftp://me:p@ss@host/a@2x.jpg", "ftp://***@host/a@2x.jpg"),
        ("FTP://me:secret@host/a", "FTP://***@host/a"),
        ("ftp://me:a b'c\"d@host/a", "ftp://***@host/a"),
        ("open 'ftp://me:a b@host/a' failed", "open 'ftp://***@host/a' failed"),
        ("ftp://me:a/b@host/a", "ftp://***@host/a"),
        ("ftp:/me:secret@host/a", "ftp:/***@host/a"),
        ("HTTPS://host/b.jpg?key=secret", "HTTPS://host/b.jpg?***"),
        ("https://host/b.jpg?key=a'b c", "https://host/b.jpg?***"),
        ("see https://host/b.jpg?key=a'b for", "see https://host/b.jpg?*** for"),
        (
            "http://host:8080/a@2x.jpg and http://host:80 of me@host",
            "http://host:8080/a@2x.jpg and http://host:80 of me@host",
        ),
        ("s3://bucket/dir:1/a@2x.png", "s3://bucket/dir:1/a@2x.png"),
    ],
)
def test_secrets_are_masked(text, shown):
    assert masked(text) == shown


def test_a_remote_path_behaves_like_a_path():
    path = as_path("s3://key:Hunter2@bucket/a/b.png")
    copied = pickle.loads(pickle.dumps(path))  # noqa: S301
    assert copied == path
    assert {path: 1}[copied] == 1
    assert (path.name, path.stem, path.suffix) == ("b.png", "b", ".png")
    assert str(path.parent / "c") == "s3://***@bucket/a/c"
    assert as_path("file:///a/b") == Path("/a/b")
    web = as_path("https://host/photos?key=secret") / "a b#.png"
    assert (web.name, web.suffix, str(web)) == (
        "a b#.png",
        ".png",
        "https://host/photos/a%20b%23.png?***",
    )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: as_path(Path("s3://bucket/a")),
            r'must be an address as a string .* collapses "//"',
        ),
        (lambda: as_path("unknown://a/b"), "an address that fsspec knows, got 'unknown://a/b'"),
        (lambda: as_path("zip://a::memory://b"), "chain of addresses"),
        (lambda: as_path("memory://a") / "../b", "names must be of files below 'memory://a', got"),
        (lambda: as_path("https://h/a") / "%2e%2e/b", "names must be of files below"),
        (lambda: as_path("memory://a") / "s3://b/c", "names must be of files below"),
        (lambda: read_bytes("memory://none", "a file"), r"got 'memory://none' \(there is no such"),
        (
            lambda: as_folder("memory://none"),
            "folder must be an existing folder, got 'memory://none'",
        ),
    ],
)
@pytest.mark.usefixtures("memory")
def test_mistakes_are_one_sentence(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_whole_files_are_put_at_once(memory, monkeypatch):
    folder = output_folder("memory://root/out")
    assert not memory.store
    write_text(folder / "a/b.txt", "text")
    assert (folder / "a/b.txt").read_bytes() == b"text"
    assert [path.name for path in folder.iterdir()] == ["a"]
    with pytest.raises(FileNotFoundError), whole_file(folder / "half") as temporary:
        temporary.rename("half/way")
    with whole_files(folder, ["a/b.txt"]) as place:
        (place / "c").write_text("c")
    assert {path.removeprefix("/root/out/") for path in memory.store} == {"c"}

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(memory), "put_file", full)
    with pytest.raises(OSError, match="No space left on device"):
        write_text(folder / "d", "text")


def test_errors_of_other_libraries_become_os_errors_without_secrets(memory, monkeypatch):
    memory.pipe_file("/root/a", b"content")

    class LibraryError(Exception):
        pass

    def lost(*_, **__):
        raise LibraryError("the connection to\nmemory://key:secret@host was lost")

    for name in ("cat_file", "info"):
        with monkeypatch.context() as patch:
            patch.setattr(type(memory), name, lost)
            with pytest.raises(ValueError, match=r"\(the connection to memory://\*\*\*@host was"):
                read_bytes("memory://root/a", "a file")


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("https://host/a.png?key=se'cr et", "GET /a.png?key=se%27cr%20et: no route"),
        ("https://host/a.png?key=secret", "the key 'secret' is wrong"),
        ("ftp://me:se@cret@host/a.png", "login of me with se@cret failed"),
    ],
)
def test_library_that_may_quote_a_secret_is_not_quoted(monkeypatch, address, says):
    def lost(*_, **__):
        raise OSError(says)

    path = as_path(address)
    monkeypatch.setattr(type(path._path), "fs", property(lost))
    with pytest.raises(ValueError, match=r"\(OSError\)$") as caught:
        read_bytes(address, "a file")
    assert not any(word in str(caught.value) for word in ("secret", "cr et", "cr%20et", "se@cret"))


@pytest.mark.usefixtures("memory")
def test_schemes_may_be_in_capitals():
    write_text("memory://root/a", "text")
    assert read_bytes("MEMORY://root/a", "a file") == b"text"
    assert as_path("FILE:///a/b") == Path("/a/b")


def test_large_files_are_refused(memory, monkeypatch):
    memory.pipe_file("/root/a", bytes(1_000_001))
    monkeypatch.setenv("MANYMATCH_MAX_ARRAY_MB", "1")
    with pytest.raises(ValueError, match="more megabytes than 1"):
        read_bytes("memory://root/a", "a file")


def test_an_image_is_fetched_once_until_it_changes(memory, images, monkeypatch):
    fetched, fetch = [], type(memory).cat_file

    def counted(self, path, **settings):
        fetched.append(path)
        return fetch(self, path, **settings)

    monkeypatch.setattr(type(memory), "cat_file", counted)
    for name, times in (("view000.png", 1), ("view001.png", 2)):
        memory.pipe_file("/root/a.png", (images / name).read_bytes())
        for _ in range(3):
            read = load_image("memory://root/a.png")
        np.testing.assert_array_equal(read, load_image(images / name))
        assert len(fetched) == times


def test_graphs_are_written_and_read(memory, tmp_path):
    from manymatch import AssociationGraph

    graph = AssociationGraph([[1, 2]], [[3, 4]], [[0, 0]], [0.5], [1])
    graph.save("memory://root/graph.npz")
    write_associations_csv(graph, "memory://root/graph.csv")
    assert load_graph("memory://root/graph.npz") == load_graph("memory://root/graph.csv") == graph
    graph.save(tmp_path / "graph.npz")
    assert memory.cat_file("/root/graph.npz") == (tmp_path / "graph.npz").read_bytes()


def test_images_are_read_from_a_web_server(images, tmp_path):
    pytest.importorskip("aiohttp")

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = functools.partial(Handler, directory=images)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            root = f"http://127.0.0.1:{server.server_port}"
            (tmp_path / "pairs.txt").write_text("view000.png view001.png\n")
            (pair,) = read_pairs(tmp_path / "pairs.txt", f"{root}?key=value")
            expected = load_image(images / "view001.png")
            np.testing.assert_array_equal(load_image(pair.path1), expected)
            with pytest.raises(FileNotFoundError, match=r"none.png' \(there is no such file\)"):
                load_image(f"{root}/none.png")
            with pytest.raises(ValueError, match="out must be a folder that can be written to"):
                output_folder(f"{root}/out")
        finally:
            server.shutdown()
            thread.join()
