"""Load for a while: estimators in a process that lives on, batches that are killed and resumed.

    python -m fuzz.soak --minutes 30

A round is all methods on some scenes, and a batch of images that is killed at random moments and
run again until it finishes. Every result must equal that of a quiet run, and the memory of this
process must stay where it was after the first rounds.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import manymatch
from manymatch._validate import METHODS
from manymatch.batch.batch import run_batch
from manymatch.io.pairs import read_pairs
from manymatch_lab.datasets.synthetic import EASY, make_scene
from tests.support.small_batch import CONFIG, FLAGS, rows
from tests.support.synthetic_images import make_images

# Rounds after which all buffers and caches have their size, and the growth allowed after them.
WARM_UP, MEGABYTES = 10, 48
OPTIONS = manymatch.Options(min_iterations=200, max_iterations=1000)
COMMAND = [sys.executable, "-c", "from manymatch.cli.app import main; main()", "batch"]
SCENES = 5


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def estimates(seed: int, threads: int) -> list[bytes]:
    """Return what association and all methods of both problems find in a scene."""
    scene = make_scene(EASY, seed=seed)
    cameras = (scene.camera0, scene.camera1)
    options = OPTIONS.replace(seed=seed, threads=threads)
    found = []
    for method in METHODS:
        found.append(manymatch.estimate_relative_pose(scene.graph, *cameras, method, options))
        found.append(manymatch.estimate_homography(scene.graph, method, options))
    edges = manymatch.associate(*np.random.default_rng(seed).normal(size=(2, 300, 32)))
    return [e.matches.tobytes() + np.float64(e.hcm).tobytes() for e in found] + [
        np.asarray(array).tobytes() for array in edges
    ]


def killed_batch(pairs: Path, out: Path, moments: random.Random) -> tuple[list[object], int]:
    """Return the rows of a batch, and how often it was killed before it finished."""
    for kills in itertools.count():
        process = subprocess.Popen(
            [*COMMAND, str(pairs), "--out", str(out), *FLAGS],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        try:
            # The more often it was killed, the more time it gets: a slow machine finishes too.
            _, told = process.communicate(timeout=moments.uniform(0.2, 2.0 + kills))
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            continue
        if process.returncode:
            raise SystemExit(f"a batch failed: {told.decode(errors='replace')}")
        return rows(out), kills
    raise AssertionError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=5.0)
    end = time.monotonic() + 60 * parser.parse_args().minutes
    moments = random.Random(1)  # noqa: S311
    wrong = kills = done = 0
    with tempfile.TemporaryDirectory() as folder:
        names = make_images(Path(folder), 12)
        pairs = Path(folder, "pairs.txt")
        pairs.write_text("".join(f"{a} {b}\n" for a, b in itertools.pairwise(names)))
        run_batch(read_pairs(pairs, Path(folder)), None, Path(folder, "quiet"), CONFIG)
        quiet = rows(Path(folder, "quiet"))
        expected = [estimates(seed, 1) for seed in range(SCENES)]
        memory: list[float] = []
        while time.monotonic() < end or done <= WARM_UP:
            for seed in range(SCENES):
                wrong += estimates(seed, moments.randint(1, 4)) != expected[seed]
            found, killed = killed_batch(pairs, Path(folder, f"run{done}"), moments)
            wrong += found != quiet
            kills, done = kills + killed, done + 1
            memory.append(resident_mb())
    grown = memory[-1] - memory[WARM_UP - 1]
    sys.stdout.write(
        f"{done} rounds, {done * SCENES * (2 * len(METHODS) + 1)} estimates and associations, "
        f"{done} batches with {kills} kills: {wrong} wrong; memory {memory[WARM_UP - 1]:.0f} MB "
        f"after {WARM_UP} rounds, {memory[-1]:.0f} MB at the end\n"
    )
    return int(wrong > 0 or grown > MEGABYTES)


if __name__ == "__main__":
    sys.exit(main())
