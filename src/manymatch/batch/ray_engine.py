"""The Ray engine: the pairs of a batch, worked on by processes all over a Ray cluster.

This process, the driver, decides who does what, and alone writes: it appends to the journal and
knows from it what is missing. Workers are actors that do one of two things: compute the features of
an image, which stay in Ray's object store on the worker's node, or match a block of pairs whose
features are there. Nothing that a worker has is needed to go on: when a process or a node is lost,
the driver has other workers compute what was lost with it.

Every node has a stretch of the order of the pairs, in which neighbours have images in common, and a
node without work takes half of the longest stretch. Hence most features are used where they were
computed. Only a few blocks are open at a time, and the features of an image are released when no
open block needs them and those that are kept for later ones exceed a budget.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import os
import re
import secrets
import socket
import subprocess
import sys
import time
from collections import OrderedDict, deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import manymatch
from manymatch._validate import choice, refusal, require
from manymatch.batch import ENGINES
from manymatch.batch.rows import PACKED
from manymatch.batch.runner import Engine, Result
from manymatch.batch.views import ViewError
from manymatch.features.device import (
    WITHOUT_NETWORK,
    library_versions,
    require_torch,
    take_turns,
)
from manymatch.io.pairs import numbered
from manymatch.options import share_cores, usable_cores

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from concurrent.futures import Future

    from manymatch._validate import IndexArray
    from manymatch.batch.focals import FirstPass
    from manymatch.batch.views import View
    from manymatch.batch.work import PairWork
    from manymatch.io.pairs import Pair, PairImage

_ADDRESS = re.compile(r"(?P<host>[^\s/@:]+|\[[0-9A-Fa-f:.]+\]):(?P<port>\d{1,5})")
# How long a cluster may take to answer, and to give this run its first worker, or another one when
# all are lost.
_ANSWER_SECONDS = 10.0
_WORKER_SECONDS = 600.0
# How often the driver looks for nodes that came or went.
_LOOK_SECONDS = 5.0
# Calls of a worker at a time: one in work, and one that waits, so that the driver may be slow.
_AHEAD = 2
# A block takes about as long. It is lost with its worker, and with Ctrl-C if it takes longer than
# pairs are given to end.
_BLOCK_SECONDS = 0.5
_LARGEST_BLOCK = 32
# Workers that may be lost by the same pair or image.
_ATTEMPTS = 3
# Workers that may fail to start, more than do start.
_FAILED_STARTS = 3


def ray_cluster(engine: object, address: object, workers: int, memory_mb: int) -> RayCluster | None:
    """Return the cluster that an engine works on; None for the local one."""
    if choice(engine, "engine", ENGINES) == "ray":
        return RayCluster(address, workers, memory_mb)
    if address is not None:
        raise ValueError(f'address must be left out with engine "local", got {address!r}')
    return None


class RayCluster:
    """A Ray cluster for batches, connected to when it is first needed.

    Parameters
    ----------
    address : str, optional
        "auto" for the cluster of this machine, or "host:port" of its head node; by default Ray is
        started here, and stopped by `close`. A process that is connected to Ray already uses that.
    workers : int
        Processes that work at the same time, 0 for one per CPU that the cluster has at any time.
    memory_mb : int
        Features that each node keeps for further pairs.
    """

    def __init__(self, address: object, workers: int, memory_mb: int) -> None:
        if address is None and "ray" not in sys.modules and "RAY_AUTH_MODE" not in os.environ:
            # The ports of a Ray that is started here are open to the network. Ray reads this when
            # it is imported.
            os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        self._ray = require("ray", 'engine "ray"', "ray")
        self._found = _ADDRESS.fullmatch(address) if isinstance(address, str) else None
        if not (address in (None, "auto") or self._found):
            raise refusal("address", 'left out, "auto" or "host:port" of a Ray cluster', address)
        self._address, self._workers, self._memory_mb = address, workers, memory_mb
        self._own = False

    def connect(self) -> Any:
        """Return the module ray, connected."""
        ray = self._ray
        if ray.is_initialized():
            if self._found and not self._own:
                raise ValueError(
                    "address must be left out where this process is connected to Ray already, got "
                    f"{self._address!r}"
                )
            return ray
        more: dict[str, Any] = {"address": self._address}
        if self._address is None:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            more = {
                "address": "local",
                "num_cpus": self._workers or usable_cores(),
                "include_dashboard": False,
                # Features that are kept, and those of open blocks and results beside.
                "object_store_memory": (2 * self._memory_mb + 256) * 1_000_000,
            }
        else:
            self._check_reachable()
        try:
            ray.init(**more, logging_level=logging.ERROR, log_to_driver=False)
        except (OSError, RuntimeError, ValueError) as error:
            reason = str(error).strip().partition("\n")[0].rstrip(".")
            raise ConnectionError(f"{self._name} cannot be used: {reason}") from error
        self._own = True
        return ray

    @property
    def _name(self) -> str:
        if self._address is None:
            return "a local Ray"
        return (
            "the Ray cluster of this machine"
            if self._address == "auto"
            else (f"the Ray cluster at {self._address}")
        )

    def _check_reachable(self) -> None:
        """Refuse a cluster that does not answer; Ray itself would wait for minutes and exit."""
        where = []
        if self._found:
            host, port = self._found["host"].strip("[]"), int(self._found["port"])
            try:
                socket.create_connection((host, port), timeout=_ANSWER_SECONDS).close()
            except (OSError, OverflowError) as error:
                reason = getattr(error, "strerror", None) or str(error)
                raise ConnectionError(f"{self._name} cannot be reached: {reason}") from error
            where = ["--address", str(self._address)]
        command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", *where]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=_ANSWER_SECONDS)  # noqa: S603
        except subprocess.TimeoutExpired as error:
            raise ConnectionError(
                f"{self._name} cannot be reached: no answer within {_ANSWER_SECONDS:g} s"
            ) from error
        except subprocess.CalledProcessError as error:
            lines = error.stderr.decode(errors="replace").strip().splitlines() or ["no answer"]
            reason = lines[-1].partition(": ")[2] or lines[-1]
            raise ConnectionError(f"{self._name} cannot be reached: {reason}") from error

    def device(self, device: object) -> str:
        """Return where networks run: "cuda" if the cluster has GPUs, unless `device` is "cpu"."""
        if device not in ("auto", "cuda", "cpu"):
            raise refusal("device", '"auto", "cuda" or "cpu" with engine "ray"', device)
        if device == "cpu":
            return "cpu"
        if self.connect().cluster_resources().get("GPU", 0) >= 1:
            return "cuda"
        if device == "cuda":
            raise ValueError(f"device must be one that the Ray cluster has, got {device!r}")
        return "cpu"

    def engine(
        self, work: PairWork, pairs: Sequence[Pair], name: str, first: FirstPass | None = None
    ) -> Engine:
        """Return an engine that works on these pairs, with results for the journal `name`."""
        kept = self._memory_mb * 1_000_000
        return _RayEngine(self.connect(), work, pairs, name, first, self._workers, kept)

    def close(self) -> None:
        """Disconnect, and stop what was started."""
        if self._own and self._ray.is_initialized():
            self._ray.shutdown()
        self._own = False


@dataclasses.dataclass(eq=False)
class _Image:
    """Features of an image: a reference once they were asked for, and where they are when done."""

    number: int
    ref: Any = None
    node: str = ""
    size: int = 0
    users: int = 0
    attempts: int = 0

    def forget(self) -> None:
        self.ref, self.node = None, ""


@dataclasses.dataclass(eq=False)
class _Block:
    """Pairs that a worker matches in one call, and the images that they need."""

    indices: list[int]
    images: list[_Image]
    attempts: int = 0


@dataclasses.dataclass(eq=False)
class _Lane:
    """What a node has to do: a stretch of the order, blocks opened of it, and missing features."""

    start: int = 0
    stop: int = 0
    blocks: list[_Block] = dataclasses.field(default_factory=list)
    wanted: deque[_Image] = dataclasses.field(default_factory=deque)
    workers: int = 0

    def __len__(self) -> int:
        return self.stop - self.start


@dataclasses.dataclass(eq=False)
class _Worker:
    """An actor; it has a node when it is ready. Calls are those that have not ended."""

    actor: Any
    extracts: bool
    matches: bool
    node: str = ""
    calls: list[_Call] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(eq=False)
class _Call:
    """A call of a worker: its start, features of an image, or a block of pairs."""

    worker: _Worker
    item: _Image | _Block | None


class _RayEngine(Engine):
    _patience = 1.0

    def __init__(
        self,
        ray: Any,
        work: PairWork,
        pairs: Sequence[Pair],
        name: str,
        first: FirstPass | None,
        workers: int,
        kept: int,
    ) -> None:
        super().__init__()
        self._ray, self._work, self._pairs, self._name = ray, work, pairs, name
        self._first, self._count, self._node_bytes = first, workers, kept
        self._errors = ray.exceptions
        self._files, self._numbers = numbered(pairs)
        self._network = work.config.needs_torch
        self._gpu = self._network and work.device == "cuda"
        # Where networks also match, all workers need what they run on.
        sources = work.config.sources
        self._apart = self._gpu and all(source.load_matcher() is None for source in sources)
        on_cpu = self._network and not self._gpu
        self._threads = require_torch().get_num_threads() if on_cpu else None
        # All that are asked for or there. Those that no open block needs are also idle, the ones
        # used last at the end.
        self._images: dict[int, _Image] = {}
        self._idle: OrderedDict[int, _Image] = OrderedDict()
        self._idle_bytes = 0
        self._lanes: dict[str, _Lane] = {}
        self._workers: list[_Worker] = []
        self._calls: dict[Future[Any], _Call] = {}
        self._order: IndexArray = np.zeros(0, dtype=np.int64)
        self._left = 0
        # Means that follow slowly, of matching a pair and of the features of an image.
        self._pair_seconds, self._image_bytes = _BLOCK_SECONDS, 0.0
        self._started = self._failed = 0
        self._nodes = 1
        self._looked = -np.inf
        self._last_worker = time.monotonic()
        self._ended = False

    @property
    def busy(self) -> bool:
        if self._ended:
            return any(isinstance(call.item, _Block) for call in self._calls.values())
        return self._left > 0

    @property
    def _kept(self) -> int:
        """Bytes of features to keep on all nodes, and to be in use before blocks have to wait."""
        return self._node_bytes * self._nodes

    def _begin(self, indices: IndexArray) -> None:
        self._order, self._left = indices, len(indices)
        # Nobody's, until the first node has a worker.
        self._lanes[""] = _Lane(0, len(indices))

    def _end(self, *, now: bool) -> None:
        self._ended = True
        if now:
            self._calls.clear()
            for worker in tuple(self._workers):
                self._dismiss(worker)
            self._images.clear()
            self._idle.clear()

    def _submit(self) -> None:
        now = time.monotonic()
        if now - self._looked > _LOOK_SECONDS:
            self._looked = now
            self._recruit()
        ready = [worker for worker in self._workers if worker.node]
        if ready:
            self._last_worker = now
        elif now - self._last_worker > _WORKER_SECONDS:
            self._error = ConnectionError(
                f"the Ray cluster gave no worker within {_WORKER_SECONDS:g} s, as nothing is free "
                "there; the same command continues"
            )
        # Everybody gets one before anybody gets two.
        given = 1
        while given:
            free = [worker for worker in ready if len(worker.calls) < _AHEAD]
            given = sum(self._give(worker) for worker in sorted(free, key=_load))

    # Workers.

    def _recruit(self) -> None:
        """Ask for as many workers as there should be; those that are not ready wait for a place."""
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        cpus, gpus = (int(sum(node.get(name, 0) for node in nodes)) for name in ("CPU", "GPU"))
        self._nodes = max(1, len(nodes))
        if self._apart:
            self._ask(gpus, extracts=True, matches=False)
            self._ask(self._count or cpus - gpus, extracts=False, matches=True)
        else:
            self._ask(self._count or (gpus if self._gpu else cpus), extracts=True, matches=True)

    def _ask(self, count: int, *, extracts: bool, matches: bool) -> None:
        role = (extracts, matches)
        there = sum((worker.extracts, worker.matches) == role for worker in self._workers)
        gpu = self._gpu and extracts
        work = self._work
        if self._network and not gpu:
            work = dataclasses.replace(work, device="cpu")
        make = self._ray.remote(_Actor).options(
            num_cpus=1, num_gpus=int(gpu), max_restarts=0, max_task_retries=0
        )
        for _ in range(min(max(count, 1), self._left) - there):
            number = self._started + self._failed + len(self._workers)
            actor = make.remote(work, str(Path.cwd()), number, self._threads, loads=extracts)
            worker = _Worker(actor, extracts, matches)
            self._workers.append(worker)
            self._watch(worker, None, actor.start.remote())

    def _watch(self, worker: _Worker, item: _Image | _Block | None, ref: Any) -> None:
        call = _Call(worker, item)
        worker.calls.append(call)
        future = ref.future()
        self._calls[future] = call
        future.add_done_callback(self._done.put)

    def _ready(self, worker: _Worker, node: str, versions: dict[str, str], address: str) -> None:
        """Give a worker that started its place; one with other packages has other results."""
        for name, here in _versions().items():
            there = versions.get(name)
            if there != here and (self._network or name in ("manymatch", *WITHOUT_NETWORK)):
                raise ValueError(
                    f"every node of the Ray cluster must have {name} {here} as this process has, "
                    f"got {there or 'none'} on {address}"
                )
        worker.node = node
        self._started += 1
        self._lanes.setdefault(node, _Lane()).workers += worker.matches

    def _dismiss(self, worker: _Worker) -> None:
        """Part with a worker, which may be dead already; the calls that it has fail."""
        if worker in self._workers:
            if worker.node:
                self._lanes[worker.node].workers -= worker.matches
            self._workers.remove(worker)
        with contextlib.suppress(Exception):
            self._ray.kill(worker.actor)

    # What a worker does next.

    def _give(self, worker: _Worker) -> bool:
        """Give a worker something to do, if there is anything: first what its node has to do."""
        own = self._lanes[worker.node]
        while True:
            if worker.matches and self._match(worker, own):
                return True
            if worker.extracts and self._extract(worker, own):
                return True
            if not (worker.matches and self._open(own)):
                break
        # One that would be idle helps others, whose features are then not where they are needed.
        return not worker.calls and any(
            (worker.matches and self._match(worker, lane))
            or (worker.extracts and self._extract(worker, lane))
            for lane in self._lanes.values()
        )

    def _match(self, worker: _Worker, lane: _Lane) -> bool:
        """Have the first block matched whose features are there."""
        for block in lane.blocks:
            if all(image.node for image in block.images):
                lane.blocks.remove(block)
                places = {image.number: place for place, image in enumerate(block.images)}
                pairs = [
                    (index, self._pairs[index], *(places[n] for n in self._numbers[index].tolist()))
                    for index in block.indices
                ]
                firsts = [self._only(index) for index in block.indices]
                refs = [image.ref for image in block.images]
                self._watch(worker, block, worker.actor.match.remote(pairs, firsts, *refs))
                return True
        return False

    def _extract(self, worker: _Worker, lane: _Lane) -> bool:
        """Have the features of the first image computed that some block waits for."""
        while lane.wanted:
            image = lane.wanted.popleft()
            if image.users and image.ref is None:
                file: PairImage = self._files[image.number]
                method = worker.actor.extract.options(num_returns=2)
                image.ref, size = method.remote(file.path, file.turns)
                self._watch(worker, image, size)
                return True
        return False

    def _open(self, lane: _Lane) -> bool:
        """Open the next block of the stretch of a node; False if enough are, or none is left."""
        used = len(self._images) - len(self._idle)
        most = 1 if used * self._image_bytes > self._kept else _AHEAD * max(1, lane.workers)
        if len(lane.blocks) >= most or not (lane or self._move(lane)):
            return False
        # Towards the end there is a block for everybody.
        size = min(_LARGEST_BLOCK, round(_BLOCK_SECONDS / self._pair_seconds))
        size = max(1, min(size, len(lane) // (_AHEAD * max(1, lane.workers))))
        stop = lane.start + size
        self._put(lane, self._order[lane.start : stop].tolist())
        lane.start = stop
        return True

    def _move(self, lane: _Lane) -> bool:
        """Give a node without work the stretch that is nobody's, or half of the longest."""
        longest = max(
            self._lanes.values(), key=lambda one: (len(one) > 0, not one.workers, len(one))
        )
        middle = longest.start if not longest.workers else (longest.start + longest.stop + 1) // 2
        if middle >= longest.stop:
            return False
        lane.start, lane.stop, longest.stop = middle, longest.stop, middle
        return True

    def _put(self, lane: _Lane, indices: list[int], attempts: int = 0) -> None:
        """Open a block, and want the features that it lacks."""
        numbers = np.unique(self._numbers[indices]).tolist()
        images = [self._images.setdefault(number, _Image(number)) for number in numbers]
        for image in images:
            image.users += 1
            if self._idle.pop(image.number, None) is not None:
                self._idle_bytes -= image.size
            if image.ref is None:
                lane.wanted.append(image)
        lane.blocks.append(_Block(indices, images, attempts))

    def _close(self, block: _Block) -> None:
        """Let go of the features that a block used, beyond those that are kept."""
        for image in block.images:
            image.users -= 1
            if not image.users:
                if image.node:
                    self._idle[image.number] = image
                    self._idle_bytes += image.size
                elif image.ref is None:
                    del self._images[image.number]
        while self._idle_bytes > self._kept:
            number, image = self._idle.popitem(last=False)
            self._idle_bytes -= image.size
            del self._images[number]

    # What came back.

    def _take(self, future: Future[Any]) -> list[Result]:
        call = self._calls.pop(future, None)
        if call is None:
            return []
        worker, item = call.worker, call.item
        blamed = worker.calls[0] is call
        worker.calls.remove(call)
        try:
            value = future.result()
        except self._errors.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, self._errors.RayError):
                return self._lost(call, error, blamed=False)
            if isinstance(cause, Exception):
                raise cause from None
            raise RuntimeError(_last_line(error)) from error
        except self._errors.RayError as error:
            self._dismiss(worker)
            self._looked = -np.inf
            return self._lost(call, error, blamed=blamed)
        if isinstance(item, _Image):
            item.node, item.size = worker.node, value
            self._image_bytes += 0.2 * (value - self._image_bytes)
            if not item.users:
                self._idle[item.number] = item
                self._idle_bytes += item.size
            return []
        if isinstance(item, _Block):
            rows, seconds = value
            self._pair_seconds += 0.2 * (seconds / len(rows) - self._pair_seconds)
            self._close(item)
            return self._results(rows)
        self._ready(worker, *value)
        return []

    def _results(self, rows: Iterable[dict[str, Any]]) -> list[Result]:
        found: list[Result] = [{self._name: row} for row in rows]
        self._left -= len(found)
        return found

    def _lost(self, call: _Call, error: Exception, *, blamed: bool) -> list[Result]:
        """Have others do what a worker did not, or cannot as features are lost with their node.

        What costs several workers, such as an image that takes all memory, is given up.
        """
        item = call.item
        if item is None:
            self._failed += 1
            if self._failed >= self._started + _FAILED_STARTS:
                raise RuntimeError(
                    f"a worker cannot start on the Ray cluster: {_last_line(error)}"
                ) from error
            return []
        lane = self._lanes.setdefault(call.worker.node, _Lane())
        item.attempts += blamed
        why = ViewError(
            f"the process that worked on it ended {_ATTEMPTS} times, maybe for lack of memory",
            again=True,
        )
        if isinstance(item, _Image):
            item.forget()
            if item.attempts >= _ATTEMPTS:
                item.ref, item.node = self._ray.put(why), call.worker.node
            elif item.users:
                lane.wanted.appendleft(item)
            else:
                del self._images[item.number]
            return []
        if self._ended:
            return []
        if isinstance(error, self._errors.RayTaskError):
            self._forget_lost(lane, item.images)
        if item.attempts >= _ATTEMPTS and len(item.indices) == 1:
            (index,) = item.indices
            self._close(item)
            row = self._work.match(index, self._pairs[index], why, why, self._only(index))
            return self._results([row])
        # One by one, to learn which pair it is.
        for index in item.indices:
            self._put(lane, [index], item.attempts)
        self._close(item)
        return []

    def _only(self, index: int) -> FirstPass | None:
        return None if self._first is None else self._first.only(index)

    def _forget_lost(self, lane: _Lane, images: list[_Image]) -> None:
        """Want features again that are lost with their node, or all if every node is there."""
        alive = {node["NodeID"] for node in self._ray.nodes() if node["Alive"]}
        # Others are being computed again already.
        done = [image for image in images if image.node]
        for image in [image for image in done if image.node not in alive] or done:
            image.forget()
            lane.wanted.append(image)


def _last_line(error: Exception) -> str:
    """Return what an error of Ray is about, after traces of other processes."""
    return str(error).strip().rpartition("\n")[2].strip()


def _load(worker: _Worker) -> int:
    return len(worker.calls)


@functools.cache
def _versions() -> dict[str, str]:
    return {"manymatch": manymatch.__version__, **library_versions()}


class _Actor:
    """What a worker runs, in a process of its own on any node."""

    def __init__(
        self, work: PairWork, folder: str, number: int, threads: int | None, *, loads: bool
    ) -> None:
        self._work, self._folder, self._number = work, folder, number
        self._threads, self._loads = threads, loads

    def start(self) -> tuple[str, dict[str, str], str]:
        """Load what all pairs need; return the node, versions of packages, and the address."""
        # Paths are those of the driver, which may be relative.
        with contextlib.suppress(OSError):
            os.chdir(self._folder)
        cores = usable_cores()
        share_cores(cores)
        if self._threads is not None:
            # The last bits of networks depend on the number of threads. Ray sets it to one.
            require_torch().set_num_threads(self._threads)
            take_turns(self._number % max(1, cores // self._threads))
        if self._loads:
            self._work.load()
        ray = require("ray", 'engine "ray"', "ray")
        return ray.get_runtime_context().get_node_id(), _versions(), ray.util.get_node_ip_address()

    def extract(self, path: Path, turns: int) -> tuple[View | ViewError, int]:
        """Return the features of an image, and their size in bytes."""
        view = self._work.extract(path, turns)
        return view, 0 if isinstance(view, ViewError) else view.nbytes

    def match(
        self,
        pairs: Sequence[tuple[int, Pair, int, int]],
        firsts: Sequence[FirstPass | None],
        *views: View | ViewError,
    ) -> tuple[list[dict[str, Any]], float]:
        """Return the rows of some pairs, given with the places of their views; and the seconds."""
        begin = time.perf_counter()
        rows = [
            self._work.match(index, pair, views[place0], views[place1], first)
            for (index, pair, place0, place1), first in zip(pairs, firsts, strict=True)
        ]
        # What pairs have in common is sent once.
        parts: dict[bytes, tuple[bytes, bytes]] = {}
        for row in rows:
            if PACKED in row:
                common = tuple(parts.setdefault(part[0], part) for part in row[PACKED].parts)
                row[PACKED] = row[PACKED]._replace(parts=common)
        return rows, time.perf_counter() - begin
