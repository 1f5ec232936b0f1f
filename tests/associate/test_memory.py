"""Peak memory of associate, measured in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

COUNT, DIMENSION, K = 16_384, 64, 5

CODE = """
import sys
from pathlib import Path
import numpy as np
from manymatch.associate.neighbours import associate

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

count, dimension, k = map(int, sys.argv[1:])
rng = np.random.default_rng(0)
x0 = rng.standard_normal((count, dimension), dtype=np.float32)
x1 = rng.standard_normal((count, dimension), dtype=np.float32)
# What BLAS and Python keep for themselves comes with the first product.
associate(x0[:1024], x1[:1024], k)
before = peak()
edges, similarity, rank = associate(x0, x1, k)
print(peak() - before, len(edges), int(rank.max()))
"""


@pytest.mark.skipif(
    not Path("/proc/self/status").is_file(), reason="the system does not tell the peak memory"
)
def test_peak_memory_is_as_documented():
    command = [sys.executable, "-c", CODE, str(COUNT), str(DIMENSION), str(K)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    growth, edges, largest = map(int, done.stdout.split())
    assert edges > COUNT / 4
    assert largest == K
    both = 2 * COUNT
    documented = 4 * DIMENSION * both + 16 * 2**20 + (64 * K + 80) * both
    output = (16 + 4 + 4) * edges
    # Freed memory that the allocator still holds comes on top; the full product would be 1 GiB.
    assert growth < documented + output + 16 * 2**20
    assert documented < 4 * COUNT * COUNT / 20
