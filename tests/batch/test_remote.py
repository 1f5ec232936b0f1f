"""Images, caches and results at addresses of fsspec: in memory, on disk and on a server of S3."""

import io
import logging
import os
import signal
import subprocess
import sys
import urllib.request
import uuid
from pathlib import Path

import numpy as np
import pytest

from manymatch import read_matches
from manymatch.batch.batch import run_batch
from manymatch.features.feature_cache import FeatureCache
from manymatch.io.files import as_path
from manymatch.io.pairs import exhaustive_pairs, read_pairs
from tests.support.command import one_sentence, run
from tests.support.small_batch import CONFIG, FLAGS
from tests.support.synthetic_images import make_images

fsspec = pytest.importorskip("fsspec")
pytest.importorskip("cv2")
parquet = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("PIL")
pytest.importorskip("h5py")
pytest.importorskip("pycolmap")

FORMATS = ["npz", "h5", "colmap", "colmap-db"]
BATCH_FORMATS = ["parquet", *FORMATS]
PAIRS = 6
BUCKET = "manymatch-test"
# Only keeps a broken program from hanging here for hours.
HANGS_S = 60


@pytest.fixture(scope="module")
def s3():
    """A server of S3 in this process, whose bucket is empty; the environment leads to it."""
    pytest.importorskip("s3fs", reason="s3fs is not installed, which makes s3:// an address")
    pytest.importorskip("flask_cors", reason="flask-cors is not installed, for moto's server")
    server_module = pytest.importorskip("moto.server", reason="moto is not installed")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    # A worker may set this up again, and the server's content belongs to the process.
    reset = urllib.request.Request(f"http://{host}:{port}/moto-api/reset", method="POST")
    urllib.request.urlopen(reset).close()  # noqa: S310 - the server above
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "testing")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        system = fsspec.filesystem("s3", skip_instance_cache=True)
        system.mkdir(BUCKET)
        yield system
    type(system).clear_instance_cache()
    server.stop()


@pytest.fixture
def memory():
    """The files in memory, none at first."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pseudo_dirs[:] = [""]
    yield system
    system.store.clear()


@pytest.fixture(params=["memory", "file", pytest.param("s3", marks=pytest.mark.nightly)])
def root(request, tmp_path):
    """An address under which nothing is yet."""
    if request.param == "file":
        return f"file://{tmp_path}/root"
    request.getfixturevalue(request.param)
    return (
        f"memory://{uuid.uuid4()}" if request.param == "memory" else f"s3://{BUCKET}/{uuid.uuid4()}"
    )


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    make_images(folder, 4)
    return folder


@pytest.fixture(scope="module")
def local(images, tmp_path_factory):
    """The folder of a batch on this machine."""
    folder = tmp_path_factory.mktemp("local")
    run_batch(exhaustive_pairs(images), None, folder, CONFIG, workers=1, formats=BATCH_FORMATS)
    return folder


def put(address, files):
    """Write files under an address."""
    system, place = fsspec.url_to_fs(address)
    for name, content in files.items():
        system.makedirs(system._parent(f"{place}/{name}"), exist_ok=True)
        system.pipe_file(f"{place}/{name}", content)


def put_images(address, folder):
    put(address, {path.name: path.read_bytes() for path in folder.iterdir()})
    return address


def content(address):
    """All files under an address, but for times and the summary."""
    system, place = fsspec.url_to_fs(address)
    system.invalidate_cache()
    found = {
        path.removeprefix(place.rstrip("/") + "/"): system.cat_file(path)
        for path in sorted(system.find(place))
    }
    return {name: data for name, data in found.items() if name != "summary.json"}


def assert_equal_results(address, local):
    """Check a batch against one of this machine, byte for byte.

    The images are elsewhere, so the settings and the digest that parts have of them differ.
    """
    found, expected = content(address), content(f"file://{local}")
    assert found.keys() == expected.keys()
    for name in expected:
        if name == "pairs.parquet" or name.startswith("parts/"):
            one, two = (parquet.read_table(io.BytesIO(data[name])) for data in (found, expected))
            assert one.to_pylist() == two.to_pylist()
        elif name != "run.json":
            assert found[name] == expected[name], name


def batch(root, out="out", **settings):
    settings = {"workers": 2, "formats": BATCH_FORMATS, "cache": f"{root}/cache", **settings}
    return run_batch(f"{root}/images", None, f"{root}/{out}", CONFIG, **settings)


def test_batch_is_the_same_at_any_address(root, images, local):
    put_images(f"{root}/images", images)
    summary = batch(root)
    assert (summary.finished, summary.computed) == (PAIRS, PAIRS)
    assert_equal_results(f"{root}/out", local)
    assert len(list(FeatureCache(f"{root}/cache").folder.glob("??/*.npz"))) == 4
    again = batch(root)
    assert (again.finished, again.computed) == (PAIRS, 0)
    assert again.counts == summary.counts
    assert_equal_results(f"{root}/out", local)
    table = content(f"{root}/out")["pairs.csv"].decode()
    assert table.splitlines()[0] == (local / "pairs.csv").read_text().splitlines()[0]
    assert len(table.splitlines()) == PAIRS + 1


def test_shards_are_joined_by_copying(root, images, local):
    put_images(f"{root}/images", images)
    for number in (1, 2):
        batch(root, f"{number}", shard=f"{number}/2")
        put(f"{root}/out", content(f"{root}/{number}"))
    assert batch(root).computed == 0
    assert_equal_results(f"{root}/out", local)


def test_damaged_part_is_done_again(root, images, local):
    put_images(f"{root}/images", images)
    batch(root)
    parts = {name: data for name, data in content(f"{root}/out").items() if name.startswith("pa")}
    whole = parts["parts/000002.parquet"]
    put(f"{root}/out", {"parts/000002.parquet": whole[:-10]})
    with pytest.raises(ValueError, match=r"got '.*/out/parts/000002\.parquet' .*; remove it and"):
        batch(root)
    system, place = fsspec.url_to_fs(f"{root}/out/parts/000002.parquet")
    system.rm(place)
    summary = batch(root)
    assert (summary.finished, summary.computed) == (PAIRS, 1)
    assert_equal_results(f"{root}/out", local)


@pytest.mark.nightly
@pytest.mark.usefixtures("s3")
def test_killed_run_goes_on(images, local):
    """Five kills at several moments."""
    root = f"s3://{BUCKET}/killed"
    put_images(f"{root}/images", images)
    script = f"""
import time
from tests.batch.test_remote import batch
def slowly(progress):
    print(progress.finished, flush=True)
    time.sleep(0.2)
batch({root!r}, workers=1, progress=slowly)
"""
    for moment in (0, 1, 2, 3, 5):
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:  # noqa: S603
            for line in process.stdout:
                if int(line) >= moment:
                    break
            process.send_signal(signal.SIGKILL)
        there = [name for name in content(f"{root}/out") if name.startswith("parts/")]
        assert moment <= len(there) < PAIRS
    summary = batch(root)
    assert (summary.finished, summary.computed) == (PAIRS, PAIRS - len(there))
    assert_equal_results(f"{root}/out", local)


@pytest.mark.nightly
@pytest.mark.usefixtures("s3")
def test_workers_of_ray_use_addresses(images, local):
    pytest.importorskip("ray", reason="ray is not installed")
    root = f"s3://{BUCKET}/ray"
    put_images(f"{root}/images", images)
    # In a process of its own, which starts the cluster and ends it.
    script = f"from tests.batch.test_remote import batch; batch({root!r}, engine='ray')"
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    command = [sys.executable, "-c", script]
    subprocess.run(command, check=True, timeout=2 * HANGS_S, env=environment)  # noqa: S603
    assert_equal_results(f"{root}/out", local)
    assert len(list(FeatureCache(f"{root}/cache").folder.glob("??/*.npz"))) == 4


def test_matches_are_read_pair_by_pair(root, images, local):
    put_images(f"{root}/images", images)
    batch(root)
    with read_matches(f"{root}/out") as found, read_matches(local) as expected:
        assert list(found) == list(expected) == list(range(PAIRS))
        for index in found:
            np.testing.assert_array_equal(found[index].matches, expected[index].matches)
            np.testing.assert_array_equal(found[index].keypoints0, expected[index].keypoints0)


# ---- images and caches


def test_entries_of_a_cache_are_checked(root):
    cache = FeatureCache(f"{root}/cache")
    key, arrays = {"image": "a"}, {"points": np.arange(6.0).reshape(3, 2)}
    assert cache.read(key) is None
    cache.write(key, arrays)
    FeatureCache(f"{root}/cache").write(key, arrays)
    assert len(list(cache.folder.glob("??/*.npz"))) == 1
    np.testing.assert_array_equal(cache.read(key)["points"], arrays["points"])
    name = str(cache.path(key)).removeprefix(str(cache.folder) + "/")
    whole = content(f"{root}/cache")[name]
    for damaged in (b"", whole[:100], b"x" * 1000, whole[:-9] + b"123456789"):
        put(f"{root}/cache", {name: damaged})
        found = cache.read(key)
        assert found is None or damaged[:-9] == whole[:-9]


def test_unreachable_cache_is_not_used(memory, images, monkeypatch):
    put_images("memory://root/images", images)

    def fail(*_, **__):
        raise OSError(5, "the network is down")

    monkeypatch.setattr(type(memory), "put_file", fail)
    cache = FeatureCache("memory://root/cache")
    with pytest.warns(UserWarning, match="cannot be written to .the network is down"):
        cache.write({"a": 1}, {"b": np.zeros(1)})
    assert not cache.writable
    monkeypatch.setattr(type(memory), "info", fail)
    assert cache.read({"a": 1}) is None


# ---- faults


def test_fault_on_the_way_to_an_image_is_tried_again(memory, images, local, monkeypatch):
    put_images("memory://root/images", images)

    class LibraryError(Exception):
        """Libraries of some stores raise such errors, which are not an OSError."""

    real, left = type(memory).cat_file, [3]

    def fetch(self, path, **settings):
        if path.endswith("view003.png") and left[0]:
            left[0] -= 1
            raise LibraryError("the connection to memory://key:secret@host was lost")
        return real(self, path, **settings)

    monkeypatch.setattr(type(memory), "cat_file", fetch)
    summary = batch("memory://root", workers=1)
    assert (summary.finished, summary.counts["error"], left) == (PAIRS, 0, [0])
    assert_equal_results("memory://root/out", local)
    left[0] = 1000
    with pytest.raises(ValueError, match=r"\(the connection to memory://\*\*\*@host was lost\)"):
        batch("memory://root", "again", cache=None)


def test_results_that_cannot_be_written_end_the_run(memory, images, local, monkeypatch):
    put_images("memory://root/images", images)
    real = type(memory).put_file

    def put_file(self, source, path, **settings):
        if path.endswith("000003.parquet"):
            raise OSError(28, "No space left on device")
        real(self, source, path, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(type(memory), "put_file", put_file)
        with pytest.raises(OSError, match="No space left on device"):
            batch("memory://root", workers=1)
    assert batch("memory://root").computed == 1
    assert_equal_results("memory://root/out", local)


@pytest.mark.usefixtures("memory")
def test_missing_image_is_a_row(images):
    put_images("memory://root/images", images)
    put("memory://root", {"pairs.txt": b"view000.png view001.png\nview000.png view009.png\n"})
    pairs = read_pairs("memory://root/pairs.txt", "memory://root/images")
    summary = run_batch(pairs, None, "memory://root/out", CONFIG, workers=1)
    assert summary.counts["error"] == 1
    (reason,) = summary.reasons
    assert "'memory://root/images/view009.png' (there is no such file)" in reason.sentence


@pytest.mark.parametrize(
    "name", ["../other.png", "/etc/passwd", "s3://other/a.png", "a/../../b.png", "%2e%2e/b.png"]
)
@pytest.mark.usefixtures("memory")
def test_names_of_a_list_stay_below_the_folder(name):
    put("memory://root", {"pairs.txt": f"a.png b.png\na.png {name}\n".encode(), "im/a.png": b"x"})
    with pytest.raises(
        ValueError, match=r"line 2: names must be of files below 'memory://root/im'"
    ):
        read_pairs("memory://root/pairs.txt", "memory://root/im")


@pytest.mark.usefixtures("memory")
def test_names_of_a_local_list_are_no_addresses(tmp_path):
    put("memory://root", {"a.png": b"x"})
    (tmp_path / "pairs.txt").write_text("memory://root/a.png b.png\n")
    (pair,) = read_pairs(tmp_path / "pairs.txt", tmp_path)
    assert isinstance(pair.path0, Path)
    assert not pair.path0.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["eval", "synthetic:easy", "--out", "memory://root/out"],
        ["compare", "memory://root/a", "memory://root/b"],
        ["demo", "--out", "memory://root/out"],
    ],
)
@pytest.mark.usefixtures("memory")
def test_what_takes_no_address_says_so(arguments):
    put("memory://root", {"a/run.json": b"{}", "b/run.json": b"{}"})
    assert "must be on this machine, got 'memory://root/" in one_sentence(run(*arguments))


@pytest.mark.usefixtures("memory")
def test_secrets_are_neither_shown_nor_written(images, monkeypatch):
    put_images("memory://key:Hunter2@root/images", images)
    put("memory://key:Hunter2@root", {"pairs.txt": b"view000.png view001.png\nview000.png a.png\n"})
    root = "memory://key:Hunter2@root"
    done = run(
        *("batch", f"{root}/pairs.txt", "--images", f"{root}/images", "--out", f"{root}/out"),
        *("--cache", f"{root}/cache", "--format", "npz", *FLAGS),
    )
    assert done.exit_code == 1
    assert "memory://***@root/images/a.png" in done.output
    pair = ["match", f"{root}/images/view000.png", f"{root}/images/view001.png"]
    # The report tells the command.
    monkeypatch.setattr(sys, "argv", ["manymatch", *pair])
    matched = run(*pair, "--out", f"{root}/pair", "--no-picture", *FLAGS)
    assert matched.exit_code == 0, matched.output
    assert "Hunter2" not in done.output + matched.output
    written = {**content(f"{root}/out"), **content(f"{root}/pair")}
    assert {"report.html", "run.json", "pairs.csv"} <= written.keys()
    assert b"memory://***@root/images/view000.png" in written["report.html"]
    assert not any(b"Hunter2" in data for data in written.values())
    assert "Hunter2" not in repr(as_path(root)) + str(as_path("https://a/b?Hunter2"))


# ---- commands


@pytest.mark.nightly
@pytest.mark.usefixtures("s3")
def test_commands_take_addresses(images, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    root = f"s3://{BUCKET}/commands"
    put_images(f"{root}/images", images)
    put(root, {"config.toml": CONFIG_TOML})
    pair = [f"{root}/images/view000.png", f"{root}/images/view001.png"]
    here = [str(images / "view000.png"), str(images / "view001.png")]
    formats = ["--format", ",".join(FORMATS), "--no-report"]
    for given, out in ((pair, f"{root}/pair"), (here, tmp_path / "pair")):
        done = run("match", *given, "--out", out, *formats, "--config", f"{root}/config.toml")
        assert done.exit_code == 0, done.output
    found, expected = content(f"{root}/pair"), content(f"file://{tmp_path}/pair")
    assert found.keys() == expected.keys()
    for name in expected.keys() - {"result.json", "config.toml"}:
        assert found[name] == expected[name], name
    # The files of an earlier result go.
    assert run("match", *pair, "--out", f"{root}/pair", "--no-report", *FLAGS).exit_code == 0
    assert content(f"{root}/pair").keys() == {
        "result.json", "config.toml", "matches.npz", "matches.png"
    }  # fmt: skip
    # Without --out the result is on this machine, in a folder named after the images.
    assert run("match", *pair, "--no-picture", "--no-report", *FLAGS).exit_code == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == [
        f"s3--{BUCKET}-commands-images-view000_s3--{BUCKET}-commands-images-view001"
    ]


CONFIG_TOML = b"""preset = "classic"
[features]
max_keypoints = 150
longest = 160
"""


def test_only_addresses_load_fsspec(images, tmp_path):
    code = (
        "import sys; from manymatch.cli.app import main\n"
        "try: main()\n"
        "except SystemExit as stop: assert not stop.code, stop.code\n"
        "assert 'fsspec' not in sys.modules"
    )
    arguments = ["batch", images, "--out", tmp_path / "out", "--cache", tmp_path / "cache", *FLAGS]
    command = [sys.executable, "-c", code, *map(str, arguments)]
    subprocess.run(command, check=True, timeout=HANGS_S)  # noqa: S603
