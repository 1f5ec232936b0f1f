"""Long lists of pairs: time and memory to read one, and images that each of 16 shards needs.

python benchmarks/speed/pair_lists.py
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from manymatch.io.pairs import PairList, numbered, read_pairs
from manymatch.runs.shards import local_order

SHARDS = 16


def shard_images(numbers: np.ndarray, order: np.ndarray) -> int:
    """Count the images of contiguous parts of an order, together."""
    return sum(len(np.unique(numbers[part])) for part in np.array_split(order, SHARDS))


def lists(sequence: PairList) -> dict[str, PairList]:
    """Make lists of several kinds."""
    rng = np.random.default_rng(0)
    names = [str(i) for i in range(20_000)]
    pairs = numbered(sequence)[1]
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


def main() -> None:
    """Print both tables."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pairs.txt"
        names = [f"sequence_{i // 500:03d}/frame_{i:06d}.jpg" for i in range(20_000)]
        with path.open("w") as file:
            for i, j in np.ndindex(20_000, 50):
                file.write(f"{names[i]} {names[(i + j + 1) % 20_000]}\n")
        start = time.perf_counter()
        sequence = read_pairs(path, folder)
        seconds = time.perf_counter() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{len(sequence):,} pairs of 20,000 images: {seconds:.1f} s, process of {memory:.0f} MB\n"
    )
    print(
        "| pairs | images | every 16th line | 16ths of the list | --shard |\n|:--|--:|--:|--:|--:|"
    )
    for name, pairs in lists(sequence).items():
        images, numbers = numbered(pairs)
        apart = sum(len(np.unique(numbers[k::SHARDS])) for k in range(SHARDS))
        plain = shard_images(numbers, np.arange(len(pairs)))
        local = shard_images(numbers, local_order(pairs))
        print(f"| {name} | {len(images):,} | {apart:,} | {plain:,} | {local:,} |")


if __name__ == "__main__":
    main()
