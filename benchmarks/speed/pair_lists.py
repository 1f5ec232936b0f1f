"""Long lists of pairs: reading one, images that each of 16 shards needs, and batches of a stand-in.

    python benchmarks/speed/pair_lists.py [--pairs 10000 100000] [--formats parquet]

The stand-in returns the same result for every pair, that of the demo's photographs, so that what
is left is the batch itself: the seconds until the first of a million listed pairs is finished, and
for a number of pairs CPU time and the memory of the process at the end, with tables and files. Each
is a process of its own.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from manymatch.batch.batch import local_order, run_batch
from manymatch.batch.work import Views
from manymatch.io.pairs import PairList, demo_pair, numbered, read_pairs
from manymatch.matcher.config import MatcherConfig
from manymatch.matcher.matcher import Matcher

if TYPE_CHECKING:
    from manymatch.batch.parts import RunProgress

SHARDS, IMAGES, LISTED = 16, 20_000, 1_000_000


def shard_images(numbers: np.ndarray, order: np.ndarray) -> int:
    """Count the images of contiguous parts of an order, together."""
    return sum(len(np.unique(numbers[part])) for part in np.array_split(order, SHARDS))


def lists(listed: PairList) -> dict[str, PairList]:
    """Make lists of several kinds."""
    rng = np.random.default_rng(0)
    names = [str(i) for i in range(20_000)]
    pairs = numbered(listed)[1]
    shuffled = rng.permutation(20_000)[pairs[rng.permutation(len(pairs))]]
    places = rng.random((3000, 2))
    distance = ((places[:, None] - places[None]) ** 2).sum(axis=2)
    nearest = np.argsort(distance, axis=1)[:, 1:21]
    made = {
        "a sequence, 50 neighbours each": pairs,
        "the same, shuffled": shuffled,
        "all of 1,000 images": np.column_stack(np.triu_indices(1000, 1)),
        "20 nearest neighbours on a map": np.column_stack(
            [np.repeat(np.arange(3000), 20), nearest.ravel()]
        ),
    }
    return {name: PairList(Path(), names, value) for name, value in made.items()}


def memory_mb() -> float:
    """Return the largest memory that this process had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def sequence() -> PairList:
    """Return a million pairs of a sequence."""
    names = [f"sequence_{i // 500:03d}/frame_{i:06d}.jpg" for i in range(IMAGES)]
    first, step = np.divmod(np.arange(LISTED), LISTED // IMAGES)
    return PairList(Path("images"), names, np.column_stack([first, (first + step + 1) % IMAGES]))


def stand_in(pairs: int, formats: list[str]) -> str:
    """Run a batch whose pairs all have the same result; return a line of the table."""
    pair = demo_pair()
    config = MatcherConfig.of("classic", max_iterations=1000, threads=1)
    matcher = Matcher(config)
    view0, view1 = (Views(matcher, 0).compute(path, 0) for path in (pair.path0, pair.path1))
    result = matcher.match_features(view0.features, view1.features, view0.camera, view1.camera)
    Views.compute = lambda *_: view0  # type: ignore[method-assign, assignment]
    Matcher.match_features = lambda *_, **__: result  # type: ignore[method-assign, assignment]
    before, listed, first = memory_mb(), sequence(), []
    start, cpu = time.monotonic(), time.process_time()

    def progress(now: RunProgress) -> None:
        if now.finished and not first:
            first.append(time.monotonic() - start)

    with tempfile.TemporaryDirectory() as folder:
        run_batch(
            listed, None, folder, config, workers=1, limit=pairs, formats=formats, progress=progress
        )
    seconds, cpu = time.monotonic() - start, time.process_time() - cpu
    return (
        f"| {pairs:,} | {' '.join(formats) or '-'} | {first[0]:.1f} | {1e3 * cpu / pairs:.2f} "
        f"| {seconds:.0f} | {before:.0f} | {memory_mb():.0f} |"
    )


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, nargs="*", default=[1, 10_000, 100_000])
    parser.add_argument("--formats", nargs="*", default=["parquet"])
    parser.add_argument("--stand-in", type=int, help="only one batch of N pairs")
    arguments = parser.parse_args()
    if arguments.stand_in:
        print(stand_in(arguments.stand_in, arguments.formats))
        return
    lists_and_shards()
    print(
        "\n| pairs of a million | files | first pair after s | CPU ms a pair | s | MB before | "
        "MB at the end |\n|--:|:--|--:|--:|--:|--:|--:|"
    )
    for pairs in arguments.pairs:
        for formats in ([], arguments.formats):
            command = [sys.executable, __file__, "--stand-in", str(pairs), "--formats", *formats]
            subprocess.run(command, check=True)  # noqa: S603


def lists_and_shards() -> None:
    """Print what it takes to read a list, and the images that shards need."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pairs.txt"
        with path.open("w") as file:
            for pair in sequence():
                file.write(f"{pair.name0} {pair.name1}\n")
        start = time.perf_counter()
        listed = read_pairs(path, folder)
        seconds = time.perf_counter() - start
    print(
        f"{len(listed):,} pairs of {IMAGES:,} images: {seconds:.1f} s, process of "
        f"{memory_mb():.0f} MB\n"
    )
    print(
        "| pairs | images | every 16th line | 16ths of the list | --shard |\n|:--|--:|--:|--:|--:|"
    )
    for name, pairs in lists(listed).items():
        images, numbers = numbered(pairs)
        apart = sum(len(np.unique(numbers[k::SHARDS])) for k in range(SHARDS))
        plain = shard_images(numbers, np.arange(len(pairs)))
        local = shard_images(numbers, local_order(pairs))
        print(f"| {name} | {len(images):,} | {apart:,} | {plain:,} | {local:,} |")


if __name__ == "__main__":
    main()
