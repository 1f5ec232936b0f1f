"""Downloads: cut connections, other files, wrong hashes, silence, and what is kept of them."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import logging
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from manymatch.features import downloads
from manymatch.features.downloads import DownloadError, download

DATA = bytes(range(256)) * 4000


@dataclasses.dataclass
class Server:
    """What a server does, and what it was asked."""

    data: bytes = DATA
    etag: str | None = '"one"'
    ranges: bool = True
    #: Bytes after which a connection is cut, one number for each; None does not cut.
    cuts: list[int | None] = dataclasses.field(default_factory=list)
    #: Added to the announced length.
    announced: int = 0
    status: int = 200
    #: Whether connections stay open and say nothing after what they send.
    silent: bool = False
    released: threading.Event = dataclasses.field(default_factory=threading.Event)
    asked: list[str | None] = dataclasses.field(default_factory=list)
    url: str = ""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        wanted = handler.headers.get("Range")
        self.asked.append(wanted)
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.ranges else 0
        if self.status != 200:
            handler.send_error(self.status)
            return
        if start and start >= len(self.data):
            handler.send_error(416)
            return
        rest = self.data[start:]
        handler.send_response(206 if start else 200)
        if self.etag:
            handler.send_header("ETag", self.etag)
        if start:
            extent = f"bytes {start}-{len(self.data) - 1}/{len(self.data)}"
            handler.send_header("Content-Range", extent)
        handler.send_header("Content-Length", str(len(rest) + self.announced))
        handler.end_headers()
        cut = self.cuts.pop(0) if self.cuts else None
        handler.wfile.write(rest[:cut])
        handler.wfile.flush()
        if self.silent:
            self.released.wait(10)


@pytest.fixture
def server():
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with contextlib.suppress(OSError):
                state.answer(self)

        def log_message(self, *_) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        listening.daemon_threads = True
        thread = threading.Thread(target=listening.serve_forever, args=(0.02,))
        thread.start()
        state.url = f"http://127.0.0.1:{listening.server_address[1]}/w.pt"
        yield state
        state.released.set()
        listening.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def direct(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "w.pt"


def names(path):
    return sorted(file.name for file in path.parent.iterdir())


def broken(server, path, part, sha256=""):
    with pytest.raises(DownloadError, match=part) as error:
        download(server.url, path, sha256)
    assert "\n" not in str(error.value)
    assert not path.exists()
    return str(error.value)


def test_a_whole_file(server, path):
    digest = hashlib.sha256(DATA).hexdigest()
    assert download(server.url, path, digest) == path
    assert path.read_bytes() == DATA
    assert names(path) == ["w.pt"]
    assert server.asked == [None]


def test_a_cut_connection_goes_on(server, path):
    server.cuts = [100_000, 300_000]
    download(server.url, path)
    assert path.read_bytes() == DATA
    assert server.asked == [None, "bytes=100000-", "bytes=400000-"]


def test_a_later_call_goes_on(server, path, monkeypatch):
    monkeypatch.setattr(downloads, "ATTEMPTS", 1)
    server.cuts = [100_000, 0]
    text = broken(server, path, "the connection broke after 100000 of 1024000 bytes")
    assert "0.1 MB are kept in" in text
    assert names(path) == ["w.pt.part", "w.pt.part.json"]
    download(server.url, path, hashlib.sha256(DATA).hexdigest()[:8])
    assert path.read_bytes() == DATA
    assert server.asked[-1] == "bytes=100000-"
    assert names(path) == ["w.pt"]


def test_a_server_without_ranges_starts_again(server, path):
    server.ranges = False
    server.cuts = [100_000]
    download(server.url, path)
    assert path.read_bytes() == DATA
    assert server.asked == [None, "bytes=100000-"]


@pytest.mark.parametrize("change", ["etag", "size", "shorter", "none"])
def test_a_changed_file_starts_again(server, path, monkeypatch, change):
    monkeypatch.setattr(downloads, "ATTEMPTS", 1)
    if change == "none":
        server.etag = None
    server.cuts = [100_000, 0]
    broken(server, path, "broke")
    monkeypatch.undo()
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    if change == "etag":
        server.etag, server.data = '"two"', bytes(len(DATA))
    elif change == "size":
        server.data = DATA[::-1] + b"more"
    elif change == "shorter":
        server.data = b"short"
    download(server.url, path)
    assert path.read_bytes() == server.data
    assert server.asked[-1] is None


@pytest.mark.parametrize("note", ["", "[]", "{}", "[" * 100_000, '{"url": 1, "size": -5}', "null"])
def test_a_damaged_note_starts_again(server, path, note):
    path.parent.mkdir()
    path.with_name("w.pt.part").write_bytes(b"something else")
    path.with_name("w.pt.part.json").write_text(note)
    download(server.url, path)
    assert path.read_bytes() == DATA
    assert server.asked == [None]


def test_a_part_of_another_address_is_not_used(server, path):
    path.parent.mkdir()
    path.with_name("w.pt.part").write_bytes(b"something else")
    note = {"url": "http://elsewhere/w.pt", "validator": '"one"', "size": len(DATA)}
    path.with_name("w.pt.part.json").write_text(json.dumps(note))
    download(server.url, path)
    assert server.asked == [None]
    assert path.read_bytes() == DATA


def test_a_wrong_hash_is_not_kept(server, path):
    text = broken(server, path, "which is not kept", sha256="0" * 64)
    assert hashlib.sha256(DATA).hexdigest() in text
    assert names(path) == []


@pytest.mark.parametrize("announced", [50, -50])
def test_a_wrong_length_is_refused(server, path, monkeypatch, announced):
    monkeypatch.setattr(downloads, "ATTEMPTS", 2)
    server.announced = announced
    if announced > 0:
        broken(server, path, "broke after|other file")
    else:
        # The rest is never read: the bytes are too few, which the hash tells.
        broken(server, path, "not kept", sha256=hashlib.sha256(DATA).hexdigest())
        assert names(path) == []


def test_silence_is_given_up(server, path, monkeypatch):
    monkeypatch.setattr(downloads, "READ_S", 0.2)
    monkeypatch.setattr(downloads, "ATTEMPTS", 1)
    server.silent = True
    server.cuts = [1000, 0]
    text = broken(server, path, "timed out")
    assert "are kept in" in text
    assert path.with_name("w.pt.part").read_bytes() == DATA[:1000]


def test_a_trickle_is_given_up(server, path, monkeypatch):
    monkeypatch.setattr(downloads, "STALL_S", 0.0)
    monkeypatch.setattr(downloads, "STALL_BYTES", 1 << 40)
    monkeypatch.setattr(downloads, "ATTEMPTS", 1)
    server.cuts = [1000] * 5
    server.data = DATA[:1000]
    broken(server, path, r"only \d+ bytes in 0 s")


def test_no_server(path, monkeypatch):
    monkeypatch.setattr(downloads, "ATTEMPTS", 1)
    with pytest.raises(DownloadError, match=r"refused.*nothing is kept"):
        download("http://127.0.0.1:9/w.pt", path)


@pytest.mark.parametrize("status", [403, 404, 500])
def test_a_refusal_is_not_repeated(server, path, status):
    server.status = status
    broken(server, path, f"the server answered {status}")
    assert len(server.asked) == 1


def test_an_interruption_keeps_the_part_and_says_so(server, path, monkeypatch, caplog):
    def interrupted(answer, file, *_):
        file.write(answer.read(1000))
        raise KeyboardInterrupt

    monkeypatch.setattr(downloads, "_copy", interrupted)
    with caplog.at_level(logging.WARNING, "manymatch"), pytest.raises(KeyboardInterrupt):
        download(server.url, path)
    monkeypatch.undo()
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert "stopped" in caplog.text
    assert "w.pt.part and the same command resumes" in caplog.text
    download(server.url, path)
    assert server.asked == [None, "bytes=1000-"]
    assert path.read_bytes() == DATA


def test_progress_is_a_line_in_a_log_and_a_bar_on_a_terminal(
    server, path, caplog, capsys, monkeypatch
):
    with caplog.at_level(logging.WARNING, "manymatch"):
        download(server.url, path)
    assert f"downloading {server.url} (1 MB)" in caplog.text
    assert capsys.readouterr() == ("", "")
    caplog.clear()
    path.unlink()
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    download(server.url, path)
    assert caplog.text == ""
    assert "w.pt" in capsys.readouterr().err


@pytest.fixture
def online(monkeypatch, tmp_path):
    """Downloads into a cache of our own."""
    for name in ("MANYMATCH_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "TORCH_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("MANYMATCH_WEIGHTS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "torch" / "hub" / "checkpoints" / "w.pt"


@pytest.mark.parametrize("content", ["right", "another network", "noise"])
def test_only_the_network_that_was_asked_for_is_kept(server, online, monkeypatch, content):
    torch = pytest.importorskip("torch")
    from manymatch.features.backbones import vjepa
    from manymatch.features.registry import models
    from manymatch.features.weights import WeightsError, random_weights

    name = "vjepa2.1-vitl16"
    size = vjepa.Size(64, 64, (1, 2, 3, 4))
    monkeypatch.setitem(vjepa.SIZES, name, size)
    state = random_weights(vjepa.build_network(size)).state_dict()
    if content == "another network":
        state = {"a": torch.zeros(3)}
    if content != "noise":
        buffer = io.BytesIO()
        torch.save({"ema_encoder": state}, buffer)
        server.data = buffer.getvalue()
    model = dataclasses.replace(models()[name], url=server.url)
    if content == "right":
        vjepa.load_vjepa(model, "ema_encoder")
        assert online.read_bytes() == server.data
        vjepa.load_vjepa(model, "ema_encoder")
        assert len(server.asked) == 1
    else:
        with pytest.raises(WeightsError, match="weights must be"):
            vjepa.load_vjepa(model, "ema_encoder")
        assert names(online) == []


@pytest.mark.usefixtures("online")
def test_a_wrong_hash_is_one_sentence_of_ours(server):
    pytest.importorskip("torch")
    from manymatch.features.registry import models
    from manymatch.features.weights import WeightsError, find_weights

    model = dataclasses.replace(
        models()["vjepa2.1-vitl16"], url=server.url, sha256={"w.pt": "0" * 8}
    )
    with pytest.raises(WeightsError, match="instead of 00000000, which is not kept") as error:
        find_weights(model)
    assert "\n" not in str(error.value)
