"""Downloads of single files: they resume, and only the right bytes are kept."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import logging
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from manymatch.features import weights
from manymatch.features.registry import models
from manymatch.features.weights import DownloadError, download, find_weights

DATA = bytes(range(256)) * 4000
DIGEST = hashlib.sha256(DATA).hexdigest()


@dataclasses.dataclass
class Server:
    """What a server does, and what it was asked."""

    data: bytes = DATA
    etag: str | None = '"one"'
    ranges: bool = True
    #: Bytes after which a connection is cut, one number for each; None does not cut.
    cuts: list[int | None] = dataclasses.field(default_factory=list)
    status: int = 200
    asked: list[str | None] = dataclasses.field(default_factory=list)
    url: str = ""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        wanted = handler.headers.get("Range")
        self.asked.append(wanted)
        if self.status != 200:
            handler.send_error(self.status)
            return
        same = self.ranges and handler.headers.get("If-Range") == self.etag
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and same else 0
        if start and start >= len(self.data):
            handler.send_error(416)
            return
        rest = self.data[start:]
        handler.send_response(206 if start else 200)
        if self.etag:
            handler.send_header("ETag", self.etag)
        handler.send_header("Content-Length", str(len(rest)))
        handler.end_headers()
        handler.wfile.write(rest[: self.cuts.pop(0) if self.cuts else None])


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with contextlib.suppress(OSError):
                state.answer(self)

        def log_message(self, *_) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.02,))
        thread.start()
        state.url = f"http://127.0.0.1:{listening.server_address[1]}/w.pt"
        yield state
        listening.shutdown()
        thread.join()


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


def test_a_cut_connection_is_resumed(server, path, caplog):
    server.cuts = [100_000, 300_000]
    with caplog.at_level(logging.WARNING, "manymatch"):
        assert download(server.url, path, DIGEST) == path
    assert path.read_bytes() == DATA
    assert names(path) == ["w.pt"]
    assert server.asked == [None, "bytes=100000-", "bytes=400000-"]
    assert f"downloading {server.url} (1 MB)" in caplog.text


def test_a_later_call_resumes(server, path, monkeypatch):
    monkeypatch.setattr(weights, "_ATTEMPTS", 1)
    server.cuts = [100_000, 0]
    text = broken(server, path, "the connection broke after 100000 of 1024000 bytes")
    assert "0.1 MB are kept in" in text
    download(server.url, path, DIGEST[:8])
    assert path.read_bytes() == DATA
    assert server.asked[-1] == "bytes=100000-"
    assert names(path) == ["w.pt"]


@pytest.mark.parametrize("change", ["etag", "shorter", "no etag", "no ranges"])
def test_a_changed_file_starts_again(server, path, change):
    server.etag = None if change == "no etag" else server.etag
    server.ranges = change != "no ranges"
    server.cuts = [100_000, 0, 0, 0]
    broken(server, path, "broke after")
    if change == "etag":
        server.etag, server.data = '"two"', bytes(len(DATA))
    elif change == "shorter":
        server.data = b"short"
    download(server.url, path)
    assert path.read_bytes() == server.data


def test_a_wrong_hash_is_not_kept(server, path):
    assert DIGEST in broken(server, path, "which is not kept", sha256="0" * 64)
    assert names(path) == []


@pytest.mark.parametrize("status", [403, 404, 500])
def test_a_refusal_is_not_repeated(server, path, status):
    server.status = status
    broken(server, path, f"the server answered {status}; nothing is kept")
    assert len(server.asked) == 1


def test_an_unreachable_server_is_one_sentence(path):
    with pytest.raises(DownloadError, match=r"refused.*nothing is kept"):
        download("http://127.0.0.1:9/w.pt", path)


def test_an_interruption_keeps_the_part_and_says_so(server, path, monkeypatch, caplog):
    def interrupted(stream, file, _):
        file.write(stream.read(1000))
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weights.shutil, "copyfileobj", interrupted)
        with caplog.at_level(logging.WARNING, "manymatch"), pytest.raises(KeyboardInterrupt):
            download(server.url, path)
    assert "w.pt.part and the same command resumes" in caplog.text
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    download(server.url, path)
    assert server.asked == [None, "bytes=1000-"]
    assert path.read_bytes() == DATA


@pytest.fixture
def online(monkeypatch, tmp_path):
    """Downloads into a cache of our own."""
    for name in ("MANYMATCH_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "TORCH_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("MANYMATCH_WEIGHTS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "torch" / "hub" / "checkpoints" / "w.pt"


@pytest.mark.parametrize("content", ["right", "another network", "noise"])
def test_only_the_network_that_was_asked_for_is_kept(server, online, content):
    torch = pytest.importorskip("torch")
    from manymatch.features.backbones.vjepa import build_network, load_vjepa
    from manymatch.features.tensors import WeightsError, random_weights

    settings = {"entry": "ema_encoder", "hidden": 64, "normed": (1, 2, 3, 4)}
    state = random_weights(build_network(64, 64, (1, 2, 3, 4))).state_dict()
    if content == "another network":
        state = {"a": torch.zeros(3)}
    if content != "noise":
        buffer = io.BytesIO()
        torch.save({"ema_encoder": state}, buffer)
        server.data = buffer.getvalue()
    model = dataclasses.replace(
        models()["vjepa2.1-vitl16"], url=server.url, dim=64, settings=settings
    )
    if content == "right":
        load_vjepa(model)
        assert online.read_bytes() == server.data
        load_vjepa(model)
        assert len(server.asked) == 1
    else:
        with pytest.raises(WeightsError, match="weights must be"):
            load_vjepa(model)
        assert names(online) == []


@pytest.mark.usefixtures("online")
def test_a_wrong_hash_is_one_sentence_of_ours(server):
    model = models()["vjepa2.1-vitl16"]
    model = dataclasses.replace(model, url=server.url, sha256={"w.pt": "0" * 8})
    with pytest.raises(ValueError, match="instead of 00000000, which is not kept") as error:
        find_weights(model)
    assert "\n" not in str(error.value)
