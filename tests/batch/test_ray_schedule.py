"""Who does what on a Ray cluster, by a stand-in for Ray whose calls end in any order, at once."""

import fcntl
import os
import tempfile
import types
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest

from manymatch.batch.ray_engine import _RayEngine
from manymatch.batch.shards import local_order
from manymatch.batch.work import PairWork
from manymatch.features import device
from manymatch.io.pairs import PairList
from manymatch.matcher.config import MatcherConfig

MB = 1_000_000


class RayError(Exception):
    pass


class RayTaskError(RayError):
    pass


class Call:
    """A call whose end the cluster decides."""

    def __init__(self, cluster, actor, value):
        self.cluster, self.actor, self.value = cluster, actor, value

    def future(self):
        future = Future()
        self.cluster.calls.append((self, future))
        return future


class Method:
    def __init__(self, function):
        self.remote = function

    def options(self, **_):
        return self


class Actor:
    """A worker that computes nothing, on one of the nodes."""

    def __init__(self, cluster, node, settings, work):
        self.cluster, self.node, self.settings, self.work = cluster, node, settings, work
        self.start = Method(lambda: Call(cluster, self, (node, {}, "")))
        self.extract = Method(self._extract)
        self.match = Method(self._match)

    def _extract(self, path, _turns):
        self.cluster.extracted.append(path.name)
        view = types.SimpleNamespace(node=self.node)
        return view, Call(self.cluster, self, MB)

    def _match(self, pairs, _firsts, *views):
        self.cluster.local += [view.node == self.node for view in views]
        return Call(self.cluster, self, ([{"index": pair[0]} for pair in pairs], 0.05 * len(pairs)))


class Cluster:
    """Stands for the module ray, connected to some nodes."""

    exceptions = types.SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self, nodes, seed=0):
        self.resources, self.rng = nodes, np.random.default_rng(seed)
        self.calls, self.actors, self.extracted, self.local = [], [], [], []

    def nodes(self):
        return [
            {"NodeID": str(i), "Alive": True, "Resources": has}
            for i, has in enumerate(self.resources)
        ]

    def remote(self, _):
        return types.SimpleNamespace(options=self._options)

    def _options(self, **settings):
        def make(work, *_, **__):
            node = str(len(self.actors) % len(self.resources))
            self.actors.append(Actor(self, node, settings, work))
            return self.actors[-1]

        return types.SimpleNamespace(remote=make)

    def kill(self, actor):
        actor.node = None

    def advance(self):
        """End one call, the first of some worker."""
        firsts = {}
        for call, future in self.calls:
            firsts.setdefault(call.actor, (call, future))
        call, future = list(firsts.values())[self.rng.integers(len(firsts))]
        self.calls.remove((call, future))
        future.set_result(call.value)


def sequence(count, neighbours):
    """Every image with the next ones, in an order that says nothing."""
    pairs = [(i, i + k) for i in range(count) for k in range(1, neighbours + 1) if i + k < count]
    shuffled = np.random.default_rng(1).permutation(np.array(pairs))
    return PairList(Path("/images"), [f"{i}.jpg" for i in range(count)], shuffled)


def work_on(cluster, pairs, kept, workers=0):
    """Run an engine to its end; the indices, and the largest number of images at a time."""
    config = MatcherConfig.of("classic")
    engine = _RayEngine(cluster, PairWork(config), pairs, "pairs", None, workers, kept)
    engine._ready = lambda worker, node, *_: ready(engine, worker, node)
    found, most = [], 0
    finished = engine.results(local_order(pairs))
    submit = engine._submit

    def step():
        nonlocal most
        submit()
        most = max(most, len(engine._images))
        if cluster.calls and engine.busy:
            cluster.advance()

    engine._submit = step
    for results in finished:
        found += [result["pairs"]["index"] for result in results]
    assert not engine.busy
    return found, most


def ready(engine, worker, node):
    worker.node = node
    engine._lanes.setdefault(node, type(engine._lanes[""])()).workers += worker.matches


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cpus", [[4], [2, 2], [1, 3, 2]])
def test_every_pair_once_and_most_features_where_they_are(cpus, seed):
    pairs = sequence(500, 10)
    cluster = Cluster([{"CPU": count} for count in cpus], seed)
    found, most = work_on(cluster, pairs, 40 * MB)
    assert sorted(found) == list(range(len(pairs)))
    assert len(cluster.actors) == sum(cpus)
    # Each image about once, and only a few of them at a time.
    assert len(set(cluster.extracted)) == 500
    assert len(cluster.extracted) <= 1.3 * 500
    assert most <= 40 * len(cpus) + 100
    assert np.mean(cluster.local) >= 0.8


def test_without_memory_images_are_computed_again():
    pairs = sequence(60, 10)
    cluster = Cluster([{"CPU": 2}])
    found, most = work_on(cluster, pairs, 0)
    assert sorted(found) == list(range(len(pairs)))
    assert len(cluster.extracted) > 100
    assert most <= 45


def test_networks_on_cpus_take_turns_with_other_processes(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(device._cpu, "file", -1)
    device.take_turns(3)
    (path,) = tmp_path.iterdir()
    # As another process has it.
    with path.open("w") as other:

        def free():
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            fcntl.flock(other, fcntl.LOCK_UN)
            return True

        cpu = torch.device("cpu")
        assert free()
        with device.inference(cpu):
            with device.inference(cpu):
                assert not free()
            assert not free()
        assert free()
    os.close(device._cpu.file)


def test_workers_that_were_asked_for():
    cluster = Cluster([{"CPU": 8}])
    work_on(cluster, sequence(20, 3), 40 * MB, workers=3)
    assert len(cluster.actors) == 3


def roles(config, resources):
    """What workers a cluster is asked for: device and GPUs of each, for networks on GPUs."""
    cluster = Cluster(resources)
    work = PairWork(MatcherConfig.of(config), device="cuda")
    engine = _RayEngine(cluster, work, sequence(30, 3), "pairs", None, 0, MB)
    engine._begin(np.arange(87))
    engine._recruit()
    return sorted((actor.work.device, actor.settings["num_gpus"]) for actor in cluster.actors)


def test_networks_run_on_gpus_and_pairs_are_matched_beside():
    pytest.importorskip("torch")
    found = roles("embedded", [{"CPU": 4, "GPU": 1}, {"CPU": 4, "GPU": 1}, {"CPU": 2}])
    assert found == [("cpu", 0)] * 8 + [("cuda", 1)] * 2


def test_matchers_that_are_networks_need_a_gpu_themselves():
    pytest.importorskip("torch")
    found = roles("best", [{"CPU": 4, "GPU": 1}, {"CPU": 4, "GPU": 2}])
    assert found == [("cuda", 1)] * 3
