"""The Ray engine: the blocks of a batch as tasks of a Ray cluster.

Every task computes the features of an image, or a block, whose part it writes. Ray runs a task
again when its process or its node is lost; a block that was written twice is the same bytes. A
worker process keeps the networks for the next tasks.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import re
import secrets
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import manymatch
from manymatch._validate import choice, refusal, require
from manymatch.batch import ENGINES
from manymatch.batch.parts import machine_fault, stop_point
from manymatch.features.device import (
    WITHOUT_NETWORK,
    library_versions,
    require_torch,
    take_turns,
    torch_threads,
)
from manymatch.options import share_cores, usable_cores

if TYPE_CHECKING:
    from manymatch.batch.work import BlockWork, ImageKey, View

    Driver: TypeAlias = tuple[str, Any, str, dict[str, str], int | None]

_ADDRESS = re.compile(r"([^\s/@:]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}")
# How long a cluster may take to answer, and later not answer: Ray ends the process after 60 s. And
# how often a thread that waits looks for Ctrl-C.
_ANSWER_SECONDS, _LOST_SECONDS, _POLL_SECONDS = 10.0, 20.0, 0.5
# How often a task is run again whose process or node was lost.
_RETRIES = 3
# Tasks that share a GPU at most.
_TASKS_PER_GPU = 4
# Images whose features the cluster holds for further blocks, on disk where memory is short.
_VIEWS = 256


class ClusterLostError(ConnectionError):
    """The head of a Ray cluster has ended; finished blocks are kept."""

    exit_code = 3


def ray_cluster(engine: object, address: object, workers: int) -> RayCluster | None:
    """Return the cluster that an engine works on; None for the local one."""
    if choice(engine, "engine", ENGINES) == "ray":
        return RayCluster(address, workers)
    if address is not None:
        raise ValueError(f'address must be left out with engine "local", got {address!r}')
    return None


class RayCluster:
    """A Ray cluster for batches, connected to when it is first needed.

    `address` is "auto" for the cluster of this machine, or "host:port" of its head node; without it
    Ray is started here, and stopped by `close`. A process that is connected to Ray already uses
    that. `workers` blocks are in work at the same time, 0 for one per CPU of the cluster.
    """

    def __init__(self, address: object, workers: int) -> None:
        if address is None and "ray" not in sys.modules and "RAY_AUTH_MODE" not in os.environ:
            # The ports of a Ray that is started here are open to the network. Ray reads this when
            # it is imported.
            os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        self._ray = require("ray", 'engine "ray"', "ray")
        known = address in (None, "auto")
        if not (known or (isinstance(address, str) and _ADDRESS.fullmatch(address))):
            raise refusal("address", 'left out, "auto" or "host:port" of a Ray cluster', address)
        self._address, self._workers, self._own = address, workers, False
        self._next_check, self._answered = 0.0, math.inf
        where = "of this machine" if address == "auto" else f"at {address}"
        self._name = "a local Ray" if address is None else f"the Ray cluster {where}"

    def resources(self) -> dict[str, float]:
        """Connect if that was not done before, and return what the cluster has."""
        if not self._ray.is_initialized():
            self._connect()
        elif self._address not in (None, "auto") and not self._own:
            raise ValueError(
                "address must be left out where this process is connected to Ray already, got "
                f"{self._address!r}"
            )
        return dict(self._ray.cluster_resources())

    def _connect(self) -> None:
        how: dict[str, Any] = {"address": self._address}
        if self._address is None:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            cpus = self._workers or usable_cores()
            how = {"address": "local", "num_cpus": cpus, "include_dashboard": False}
        else:
            self._check_reachable()
        try:
            self._ray.init(**how, logging_level=logging.ERROR, log_to_driver=False)
        except (OSError, RuntimeError, ValueError) as error:
            reason = str(error).strip().partition("\n")[0].rstrip(".")
            raise ConnectionError(f"{self._name} cannot be used: {reason}") from error
        self._own = True

    def check(self) -> None:
        """Raise `ClusterLostError` if the head of the cluster has not answered for a while."""
        now = time.monotonic()
        if now < self._next_check:
            return
        self._next_check = now + 1.0
        host, _, port = self._ray.get_runtime_context().gcs_address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _ANSWER_SECONDS).close()
            self._answered = time.monotonic()
        except OSError as error:
            if now - self._answered > _LOST_SECONDS:
                raise ClusterLostError(
                    f"{self._name} has ended; finished blocks are kept, and the same command "
                    "continues"
                ) from error

    def _check_reachable(self) -> None:
        """Refuse a cluster that does not answer; Ray itself would wait for minutes and exit."""
        where = [] if self._address == "auto" else ["--address", str(self._address)]
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
        if device != "cpu" and self.resources().get("GPU", 0) >= 1:
            return "cuda"
        if device == "cuda":
            raise ValueError(f"device must be one that the Ray cluster has, got {device!r}")
        return "cpu"

    def workers(self) -> int:
        """Return how many blocks are given to the cluster at a time."""
        # Tasks that wait keep the workers busy, and tell an autoscaler that there is more to do.
        return self._workers or 2 * max(1, int(self.resources().get("CPU", 1)))

    def close(self) -> None:
        """Disconnect, and stop what was started."""
        if self._own and self._ray.is_initialized():
            self._ray.shutdown()
        self._own = False


class RayBlocks:
    """Does blocks as `do_block` does, each as a task of a cluster that its thread waits for.

    The features of an image are a task of their own, whose result Ray hands to the blocks.
    """

    def __init__(self, cluster: RayCluster, do_block: BlockWork) -> None:
        self._cluster, there = cluster, cluster.resources()
        self._ray = ray = require("ray", 'engine "ray"', "ray")
        network, cuda = do_block.work.config.needs_torch, do_block.work.device == "cuda"
        resources: dict[str, float] = {"num_cpus": 1}
        if network and cuda:
            share = there.get("GPU", 1) / max(1, there.get("CPU", 1))
            resources["num_gpus"] = min(1.0, max(share, 1 / _TASKS_PER_GPU))
        names = [*_versions()] if network else ["manymatch", *WITHOUT_NETWORK]
        versions = {name: _versions().get(name, "none") for name in names}
        threads = torch_threads() if network and not cuda else None
        self._driver = (secrets.token_hex(8), ray.put(do_block), str(Path.cwd()), versions, threads)
        # A process that used a GPU is kept for the next blocks.
        remote = ray.remote(max_retries=_RETRIES, max_calls=0, **resources)
        self._do_block, self._do_view = remote(_do_block), remote(_do_view)
        self._images, self._lock = do_block.images, threading.Lock()
        self._views: dict[ImageKey, Any] = {}

    def __call__(self, block: int) -> dict[str, int]:
        """Do a block; raise what its task raised, or what the loss of its process means."""
        ray, errors, keys = self._ray, self._ray.exceptions, self._images(block)
        with self._lock:
            for key in keys:  # the latest ones are last
                known = self._views.pop(key, None)
                self._views[key] = known or self._do_view.remote(self._driver, key)
            views = [self._views[key] for key in keys]
            for key in list(self._views)[:-_VIEWS]:
                del self._views[key]
        task = self._do_block.remote(self._driver, block, keys, *views)
        try:
            while not ray.wait([task], timeout=_POLL_SECONDS)[0]:
                stop_point()
                self._cluster.check()
        except BaseException:
            # Only while it is in work: Ray ends the process if a finished task is cancelled.
            with contextlib.suppress(Exception):
                ray.cancel(task, force=True)
            raise
        try:
            return dict(ray.get(task))
        except errors.RayError as error:
            with self._lock:
                for key in keys:
                    self._views.pop(key, None)
            cause = getattr(error, "cause", None)
            if isinstance(error, errors.RayTaskError):
                raise cause if isinstance(cause, Exception) else error from None
            raise MemoryError(
                f"the process that worked on block {block} ended {_RETRIES + 1} times, maybe for "
                "lack of memory"
            ) from error


def _versions() -> dict[str, str]:
    return {"manymatch": manymatch.__version__, **library_versions()}


# The work of a driver, with the networks that this process keeps for it.
_kept: dict[str, BlockWork] = {}


def _work_of(driver: Driver) -> BlockWork:
    """Return the work of a driver in a worker process on any node."""
    token, work, folder, versions, threads = driver
    if token not in _kept:
        ray = require("ray", 'engine "ray"', "ray")
        for name, there in versions.items():
            here = _versions().get(name, "none")
            if here != there:
                raise ValueError(
                    f"every node of the Ray cluster must have {name} {there} as the driver has, "
                    f"got {here} on {ray.util.get_node_ip_address()}"
                )
        # Paths are those of the driver, which may be relative.
        with contextlib.suppress(OSError):
            os.chdir(folder)
        cores = usable_cores()
        share_cores(cores)
        if threads is not None:
            # The last bits of networks depend on the number of threads, which Ray sets to one.
            require_torch().set_num_threads(threads)
            take_turns(os.getpid() % max(1, cores // threads))
        _kept.clear()
        _kept[token] = ray.get(work)
        _kept[token].work.load()
    return _kept[token]


def _do_view(driver: Driver, key: ImageKey) -> View | None:
    """Compute the features of an image; None if that fails, and its pairs say why."""
    work = _work_of(driver).work
    try:
        return work.views.compute(*key)
    except Exception as error:
        if isinstance(error, ImportError) or machine_fault(error):
            raise
        return None


def _do_block(
    driver: Driver, block: int, keys: list[ImageKey], *views: View | None
) -> dict[str, int]:
    do_block = _work_of(driver)
    lent = zip(keys, views, strict=True)
    do_block.work.views.lent = {key: view for key, view in lent if view is not None}
    return dict(do_block(block))
