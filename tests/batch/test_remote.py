"""Images, caches and results at addresses of fsspec: in memory, on disk and on a server of S3."""

import functools
import http.server
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import numpy as np
import pytest

from manymatch.batch import append_log, runner
from manymatch.batch.append_log import AppendLog
from manymatch.batch.batch import run_batch
from manymatch.batch.journal import DAMAGED, NAME, Journal, read_journal
from manymatch.batch.match_store import LOG, read_matches
from manymatch.batch.merge import merge_batch
from manymatch.batch.rows import STORED
from manymatch.features.feature_cache import FeatureCache
from manymatch.io.files import as_path
from manymatch.io.remote import RemotePath
from manymatch_lab.datasets import exhaustive_pairs, read_pairs
from tests.support.command import one_sentence, run
from tests.support.small_batch import CONFIG, FLAGS, TIMING_COLUMNS
from tests.support.synthetic_images import make_images

fsspec = pytest.importorskip("fsspec")
pytest.importorskip("cv2")
pytest.importorskip("PIL")
pytest.importorskip("h5py")
pytest.importorskip("pycolmap")

FORMATS = ["npz", "h5", "colmap", "colmap-db"]
BATCH_FORMATS = ["parquet", *FORMATS]
PAIRS = 6
# Files with times, the name of their folder or pairs as they were finished, and the lock of a disk.
OWN = (NAME, LOG, "pairs.csv", "pairs.parquet", "summary.json", ".lock")
HEADER = {"what": "a test"}
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


@pytest.fixture(params=["memory", "file", "s3"])
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
    run_batch(CONFIG, exhaustive_pairs(images), folder, workers=1, formats=BATCH_FORMATS)
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
    """All files under an address; the parts of a log are one file."""
    system, place = fsspec.url_to_fs(address)
    system.invalidate_cache()
    found = {}
    for path in sorted(system.find(place)):
        name = path.removeprefix(place.rstrip("/") + "/")
        stem, _, number = name.rpartition(".")
        name = stem if number.isdecimal() and len(number) == 16 else name
        found[name] = found.get(name, b"") + system.cat_file(path)
    return found


def rows(folder):
    """Rows of a journal without their times, by pair."""
    return [
        {name: value for name, value in row.items() if name not in (*TIMING_COLUMNS, STORED)}
        for row in read_journal(as_path(folder))[1]
    ]


def assert_equal_results(address, local, without=()):
    """Check a batch against one of this machine, byte for byte apart from times."""
    found, expected = content(address), content(f"file://{local}")
    assert rows(address) == rows(local)
    names = {name for name in found if not name.startswith(tuple(without))}
    assert names | {".lock"} == expected.keys() | {".lock"}
    for name in expected.keys() - set(OWN):
        assert found[name] == expected[name], name


def batch(root, out="out", **settings):
    pairs = exhaustive_pairs(f"{root}/images")
    settings = {"workers": 2, "formats": BATCH_FORMATS, "cache": f"{root}/cache", **settings}
    return run_batch(CONFIG, pairs, f"{root}/{out}", **settings)


def test_a_batch_is_the_same_anywhere(root, images, local):
    put_images(f"{root}/images", images)
    summary = batch(root)
    assert (summary.finished, summary.computed) == (PAIRS, PAIRS)
    assert_equal_results(f"{root}/out", local)
    assert len(FeatureCache(f"{root}/cache")) == 4
    again = batch(root)
    assert (again.finished, again.computed) == (PAIRS, 0)
    assert again.counts == summary.counts
    assert_equal_results(f"{root}/out", local)
    table = content(f"{root}/out")["pairs.csv"].decode()
    assert table.splitlines()[0] == (local / "pairs.csv").read_text().splitlines()[0]
    assert len(table.splitlines()) == PAIRS + 1


def test_shards_are_joined_from_anywhere_to_anywhere(root, images, local, tmp_path):
    put_images(f"{root}/images", images)
    for number in (1, 2):
        batch(root, shard=f"{number}/2")
    assert merge_batch(f"{root}/out", formats=BATCH_FORMATS).finished == PAIRS
    assert_equal_results(f"{root}/out", local, without=["shards/"])
    # To this machine, and from there to the address.
    shards = [f"{root}/out/shards/{number}-of-2" for number in (1, 2)]
    assert merge_batch(tmp_path / "joined", shards).finished == PAIRS
    for number in (1, 2):
        run_batch(
            CONFIG, exhaustive_pairs(images), tmp_path / "here", shard=f"{number}/2", workers=1
        )
    shards = [tmp_path / "here" / "shards" / f"{number}-of-2" for number in (1, 2)]
    assert merge_batch(f"{root}/merged", shards).finished == PAIRS
    assert rows(f"{root}/merged") == rows(local)


def test_a_run_that_fails_keeps_what_is_finished(root, images, local, monkeypatch):
    put_images(f"{root}/images", images)

    class StopError(Exception):
        pass

    def stop(progress):
        if progress.finished == 3:
            raise StopError

    monkeypatch.setattr(runner, "_WAITING", 0)
    with pytest.raises(StopError):
        batch(root, workers=1, progress=stop)
    summary = batch(root)
    assert (summary.finished, summary.computed) == (PAIRS, PAIRS - 3)
    assert_equal_results(f"{root}/out", local)


@pytest.mark.usefixtures("s3")
def test_a_killed_run_goes_on(images, local):
    root = f"s3://{BUCKET}/killed"
    put_images(f"{root}/images", images)
    script = f"""
import time
from manymatch.batch import append_log, runner
from tests.batch.test_remote import batch
append_log._PART_SECONDS, runner._WAITING = 0.0, 0
def slowly(progress):
    print(progress.finished, flush=True)
    time.sleep(0.5 if progress.finished >= 2 else 0.0)
batch({root!r}, workers=1, progress=slowly)
"""
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:  # noqa: S603
        for line in process.stdout:
            if int(line) >= 3:
                break
        process.send_signal(signal.SIGKILL)
    before = rows(f"{root}/out")
    assert 2 <= len(before) < PAIRS
    summary = batch(root)
    assert (summary.finished, summary.computed) == (PAIRS, PAIRS - len(before))
    assert_equal_results(f"{root}/out", local)


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
    assert len(FeatureCache(f"{root}/cache")) == 4


@pytest.fixture
def parts(memory, images, monkeypatch):
    """The root of a batch in memory each of whose pairs is a part of the journal."""
    monkeypatch.setattr(append_log, "_PART_SECONDS", 0.0)
    monkeypatch.setattr(runner, "_WAITING", 0)
    put_images("memory://root/images", images)
    batch("memory://root", workers=1)
    names = sorted(name for name in memory.store if f"/{NAME}." in name)
    assert len(names) == PAIRS
    return names


@pytest.mark.parametrize("place", [-1, 2])
def test_a_torn_part_costs_only_its_pair(parts, memory, local, place):
    torn = memory.cat_file(parts[place])[:-10]
    memory.pipe_file(parts[place], torn)
    assert batch("memory://root").computed == 1
    assert_equal_results("memory://root/out", local)
    assert batch("memory://root").computed == 0


@pytest.mark.parametrize("place", [-1, 2])
def test_a_missing_part_costs_only_its_pair(parts, memory, local, place):
    memory.rm_file(parts[place])
    assert batch("memory://root").computed == 1
    assert rows("memory://root/out") == rows(local)


@pytest.mark.usefixtures("parts")
def test_damaged_matches_are_done_again(memory, local):
    names = sorted(name for name in memory.store if f"/{LOG}" in name)
    whole = memory.cat_file(names[3])
    memory.pipe_file(names[3], whole[:-1] + b"?")
    summary = batch("memory://root")
    assert summary.computed >= 1
    assert any(LOG in note for note in summary.notes)
    assert_equal_results("memory://root/out", local)
    memory.rm_file(names[-1])
    assert batch("memory://root").computed >= 1
    assert_equal_results("memory://root/out", local)


@pytest.mark.usefixtures("parts")
def test_a_journal_without_its_first_part_is_refused(memory):
    memory.rm_file(f"/root/out/{NAME}")
    with pytest.raises(ValueError, match="out must have a whole journal"):
        read_journal(as_path("memory://root/out"))
    with pytest.raises(ValueError, match="out must have a whole journal"):
        batch("memory://root")


def test_a_damaged_line_is_set_aside(parts, memory, local):
    damaged = memory.cat_file(parts[3]).replace(b'"verdict"', b'"verdikt"')
    memory.pipe_file(parts[3], damaged)
    summary = batch("memory://root")
    assert summary.computed == 1
    assert any(DAMAGED in note for note in summary.notes)
    assert content("memory://root/out")[DAMAGED] == damaged
    assert_equal_results("memory://root/out", local, without=[DAMAGED])
    again = batch("memory://root")
    assert again.computed == 0
    assert not any(DAMAGED in note for note in again.notes)


def test_another_run_on_the_same_folder_is_found_out(root):
    folder = as_path(f"{root}/out")
    first = Journal(folder, HEADER)
    if isinstance(folder, Path):
        # It has a lock.
        with pytest.raises(ValueError, match="out must be a folder that no other run is using"):
            Journal(folder, HEADER)
        first.close()
        return
    second = Journal(folder, HEADER)
    first.append([{"index": 0}])
    first.close()
    second.append([{"index": 1}])
    with pytest.raises(ValueError, match="out must be a folder that no other run is using, got"):
        second.close()
    assert [row["index"] for row in read_journal(folder)[1]] == [0]


def test_a_log_is_written_in_few_parts(root, monkeypatch):
    monkeypatch.setattr(append_log, "_PART_SECONDS", HANGS_S)
    path = as_path(f"{root}/log")
    path.parent.mkdir(parents=True, exist_ok=True)
    blobs = [bytes([number]) * (number + 1) for number in range(200)]
    with AppendLog(path) as log:
        offsets = [log.append([blob])[0] for blob in blobs]
        assert [log.read(at, len(blob)) for at, blob in zip(offsets, blobs, strict=True)] == blobs
        monkeypatch.setattr(append_log, "_PART_BYTES", 5000)
        offsets += log.append(blobs)
    system, place = fsspec.url_to_fs(root)
    system.invalidate_cache()
    assert len(system.ls(place)) <= 2
    # What is read is fetched, whatever order it is read in, and an end that is torn is dropped.
    size = offsets[-1]
    with AppendLog(path, size) as log:
        assert log.size == size
        for number in (300, 3, 150, 398):
            blob = blobs[number % 200]
            assert log.read(offsets[number], len(blob)) == blob
        assert log.append([b"end"]) == [size]
    with AppendLog(path) as log:
        assert log.read(size - 1, 10) == bytes([198]) + b"end"


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("seconds", [0.0, HANGS_S])
def test_matches_are_written_before_the_rows_that_refer_to_them(images, monkeypatch, seconds):
    put_images("memory://root/images", images)
    monkeypatch.setattr(append_log, "_PART_SECONDS", seconds)
    monkeypatch.setattr(runner, "_WAITING", 0)
    written, real = [], RemotePath.write_bytes

    def write(path, data, **settings):
        written.append(path.name)
        real(path, data, **settings)

    monkeypatch.setattr(RemotePath, "write_bytes", write)
    batch("memory://root", workers=1)
    logs = [name.rpartition(".")[0] or name for name in written if name.startswith((NAME, LOG))]
    # The header, then parts in turn.
    parts = PAIRS if seconds == 0.0 else 1
    assert len(logs) == 1 + 2 * parts
    assert [name.partition(".")[0] for name in logs[1:]] == ["matches", "journal"] * parts


def test_matches_are_read_pair_by_pair(root, images, local):
    put_images(f"{root}/images", images)
    batch(root)
    with read_matches(f"{root}/out") as found, read_matches(local) as expected:
        assert list(found) == list(expected) == list(range(PAIRS))
        for index in found:
            np.testing.assert_array_equal(found[index].matches, expected[index].matches)
            np.testing.assert_array_equal(found[index].keypoints0, expected[index].keypoints0)
    with read_matches(f"{root}/out/matches.parquet") as found:
        assert len(found) == PAIRS


def test_waits_grow_with_the_run(memory, monkeypatch):
    now = 0.0
    monkeypatch.setattr(append_log.time, "monotonic", lambda: now)
    with AppendLog(as_path("memory://root/log")) as log:
        counts = []
        for hour in range(1, 4):
            while now < 3600.0 * hour:
                log.append([b"x"])
                now += 1.0
            counts.append(len(memory.find("/root")))
    # Of 3,600 appends an hour: at first every 5 seconds, later every 60.
    assert 100 < counts[0] < 250
    assert counts[2] - counts[1] <= 61


# ---- images and caches


def test_an_image_is_fetched_once(memory, images, monkeypatch):
    put_images("memory://root/images", images)
    fetched = []
    real = type(memory).cat_file

    def fetch(self, path, **settings):
        fetched.append(path)
        return real(self, path, **settings)

    monkeypatch.setattr(type(memory), "cat_file", fetch)
    for out in ("first", "with_a_full_cache"):
        fetched.clear()
        batch("memory://root", out, workers=1, formats=[])
        assert len([path for path in fetched if path.endswith(".png")]) == 4
    # A file that has changed since is read again.
    path = as_path("memory://root/images/view000.png")
    old = np.array(manymatch_image(path))
    put("memory://root/images", {"view000.png": (images / "view001.png").read_bytes()})
    assert not np.array_equal(manymatch_image(path), old)


def test_requests_grow_with_images_and_not_with_pairs(memory, images, monkeypatch):
    put_images("memory://root/images", images)
    monkeypatch.setattr(append_log, "_PART_SECONDS", HANGS_S)
    pairs = b"view000.png view001.png\nview001.png view002.png\n"
    put("memory://root", {"few.txt": pairs, "many.txt": 10 * pairs})
    counts, calls = [], []
    for name in ("info", "ls", "cat_file", "pipe_file", "put_file", "rm_file"):
        real = getattr(type(memory), name)

        def call(self, *arguments, real=real, **settings):
            calls.append(real)
            return real(self, *arguments, **settings)

        monkeypatch.setattr(type(memory), name, call)
    for name in ("few", "many"):
        calls.clear()
        listed = read_pairs(f"memory://root/{name}.txt", "memory://root/images")
        run_batch(CONFIG, listed, f"memory://root/{name}", workers=1)
        counts.append(len(calls))
    assert counts[0] == counts[1]


def manymatch_image(path):
    from manymatch.io.image import load_image

    return load_image(path)


def test_entries_of_a_cache_are_checked(root):
    cache = FeatureCache(f"{root}/cache")
    key, arrays = {"image": "a"}, {"points": np.arange(6.0).reshape(3, 2)}
    assert cache.read(key) is None
    cache.write(key, arrays)
    FeatureCache(f"{root}/cache").write(key, arrays)
    assert len(cache) == 1
    np.testing.assert_array_equal(cache.read(key)["points"], arrays["points"])
    name = str(cache.path(key)).removeprefix(str(cache.folder) + "/")
    whole = content(f"{root}/cache")[name]
    for damaged in (b"", whole[:100], b"x" * 1000, whole[:-9] + b"123456789"):
        put(f"{root}/cache", {name: damaged})
        found = cache.read(key)
        assert found is None or damaged[:-9] == whole[:-9]


def test_a_cache_that_cannot_be_reached_is_done_without(memory, images, monkeypatch):
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


def test_images_are_read_from_a_web_server(images, tmp_path):
    pytest.importorskip(
        "aiohttp", reason="aiohttp is not installed, which makes http:// an address"
    )

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = functools.partial(Handler, directory=images)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            root = f"http://127.0.0.1:{server.server_port}"
            put_images("memory://root/images", images)
            image = manymatch_image(f"{root}/view001.png?key=value")
            np.testing.assert_array_equal(image, manymatch_image(images / "view001.png"))
            with pytest.raises(FileNotFoundError, match=r"view009.png' \(there is no such file\)"):
                manymatch_image(f"{root}/view009.png")
            (tmp_path / "pairs.txt").write_text("view000.png view001.png\n")
            pairs = read_pairs(tmp_path / "pairs.txt", root)
            assert run_batch(CONFIG, pairs, tmp_path / "out", workers=1).with_pose == 1
            with pytest.raises(ValueError, match="out must be a folder that can be written to"):
                run_batch(CONFIG, pairs, f"{root}/out")
        finally:
            server.shutdown()
            thread.join()


def test_paths_can_be_sent_to_other_processes():
    path = as_path("s3://key:Hunter2@bucket/a/b.png")
    copied = pickle.loads(pickle.dumps(path))  # noqa: S301
    assert copied == path
    assert copied.address == path.address
    assert {path: 1}[copied] == 1
    assert (path.name, path.stem, path.suffix) == ("b.png", "b", ".png")
    assert str(path.parent / "c") == "s3://***@bucket/a/c"
    assert str(as_path("s3://bucket/a?b.png")) == "s3://bucket/a?b.png"
    with pytest.raises(ValueError, match="must be a file or folder of this machine, got"):
        path.chmod(0o600)
    # A run would be on this machine, in a folder "s3:".
    with pytest.raises(ValueError, match="must be an address as a text"):
        as_path(Path("s3://bucket/a"))


def test_a_part_whose_answer_was_lost_is_not_another_runs(memory, monkeypatch):
    real = type(memory).pipe_file

    def pipe(self, path, value, **settings):
        real(self, path, value, **settings)
        raise OSError(5, "the connection was lost")

    path = as_path("memory://root/log")
    with monkeypatch.context() as patch:
        patch.setattr(type(memory), "pipe_file", pipe)
        with AppendLog(path) as log:
            log.append([b"one"])
    with AppendLog(path) as log:
        assert log.read(0, 9) == b"one"


# ---- faults


def test_a_fault_on_the_way_to_an_image_is_tried_again(memory, images, local, monkeypatch):
    put_images("memory://root/images", images)

    class LibraryError(Exception):
        """As the libraries of some stores have, which is no OSError."""

    real = type(memory).cat_file

    def fetch(self, path, **settings):
        if path.endswith("view003.png"):
            raise LibraryError("the connection to memory://key:secret@host was lost")
        return real(self, path, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(type(memory), "cat_file", fetch)
        summary = batch("memory://root")
    assert (summary.finished, summary.counts["error"]) == (PAIRS, 3)
    (reason,) = summary.reasons
    assert "(the connection to memory://***@host was lost)" in str(reason)
    assert batch("memory://root").computed == 3
    assert_equal_results("memory://root/out", local)


@pytest.mark.usefixtures("memory")
def test_a_missing_image_is_a_row(images):
    put_images("memory://root/images", images)
    put("memory://root", {"pairs.txt": b"view000.png view001.png\nview000.png view009.png\n"})
    pairs = read_pairs("memory://root/pairs.txt", "memory://root/images")
    summary = run_batch(CONFIG, pairs, "memory://root/out", workers=1)
    assert summary.counts["error"] == 1
    (reason,) = summary.reasons
    assert "'memory://root/images/view009.png' (there is no such file)" in str(reason)


def test_results_that_cannot_be_written_end_the_run(memory, images, local, monkeypatch):
    put_images("memory://root/images", images)
    monkeypatch.setattr(append_log, "_PART_SECONDS", 0.0)
    monkeypatch.setattr(runner, "_WAITING", 0)
    real, left = type(memory).pipe_file, [4]

    def pipe(self, path, value, **settings):
        if NAME in path:
            left[0] -= 1
            if left[0] < 0:
                raise OSError(28, "No space left on device")
        real(self, path, value, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(type(memory), "pipe_file", pipe)
        with pytest.raises(OSError, match="No space left on device"):
            batch("memory://root", workers=1)
    assert len(rows("memory://root/out")) == 3
    assert batch("memory://root").computed == 3
    assert_equal_results("memory://root/out", local)


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


def match(*arguments):
    return one_sentence(run("match", *arguments, "--out", "memory://root/out", *FLAGS))


@pytest.mark.usefixtures("memory")
def test_what_is_wrong_with_an_image_is_one_sentence(images, monkeypatch):
    good = put_images("memory://root/images", images) + "/view000.png"
    put("memory://root", {"empty.png": b"", "text.png": b"text"})
    for name, reason in {
        "images/none.png": "(there is no such file)",
        "images/viw001.png": "did you mean 'view001.png'",
        "images": "got the folder 'memory://root/images'",
        "empty.png": "(it is empty)",
        "text.png": "(it is in no format that Pillow reads)",
    }.items():
        assert reason in match(good, f"memory://root/{name}")
    assert "fsspec knows, got 'unknown://a/b.png' (Protocol not known" in match(
        good, "unknown://a/b.png"
    )
    assert "address of one file system" in match(good, "zip://a.png::memory://root/a.zip")
    put("memory://root", {"large.png": bytes(2_000_000)})
    monkeypatch.setenv("MANYMATCH_MAX_ARRAY_MB", "1")

    def fetch(*_, **__):
        raise AssertionError("its size is known before")

    monkeypatch.setattr(fsspec.get_filesystem_class("memory"), "cat_file", fetch)
    large = "memory://root/large.png"
    assert "it has more megabytes than 1" in match(large, large)


@pytest.mark.usefixtures("memory")
def test_a_missing_package_is_named(monkeypatch):
    fsspec.register_implementation("nowhere", "no_such_package.System", errtxt="install nowherefs")
    sentence = match("nowhere://bucket/a.png", "b.png")
    assert "needs a package that is not installed: install nowherefs" in sentence
    monkeypatch.setitem(sys.modules, "fsspec", None)
    sentence = one_sentence(run("match", "s3://a/b.png", "s3://a/c.png", "--out", "x", *FLAGS))
    assert "the address 's3://a/b.png' needs fsspec: pip install" in sentence


@pytest.mark.usefixtures("s3")
def test_a_server_that_does_not_answer_is_one_sentence():
    pytest.importorskip("aiohttp")
    # Nobody listens at this port.
    sentence = one_sentence(run("match", "http://127.0.0.1:9/a.png?key=secret", "b.png", *FLAGS))
    assert "Connect call failed" in sentence
    assert "secret" not in sentence
    sentence = one_sentence(run("batch", f"s3://{BUCKET}/none", "--out", "s3://no-bucket/x"))
    assert "there is no such file" in sentence
    put(f"s3://{BUCKET}/two", {"a.png": b"x", "b.png": b"x"})
    refused = run("batch", f"s3://{BUCKET}/two", "--out", "s3://no-bucket/x", *FLAGS)
    assert refused.exit_code == 2
    assert "(there is no 's3://no-bucket')" in refused.stderr


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
    assert "must be on this machine, got 'memory://root/" in one_sentence(run(*arguments))


@pytest.mark.usefixtures("memory")
def test_secrets_are_neither_told_nor_written(images, monkeypatch):
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
    assert {"report.html", NAME, "summary.json"} <= written.keys()
    assert b"memory://***@root/images/view000.png" in written["report.html"]
    assert not any(b"Hunter2" in data for data in written.values())
    assert "Hunter2" not in repr(as_path(root)) + str(as_path("https://a/b?Hunter2"))


# ---- commands


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
