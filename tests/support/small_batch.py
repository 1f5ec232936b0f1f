"""A batch of small images that takes a second, and its table."""

import csv

from manymatch.matcher.config import MatcherConfig
from tests.support.synthetic_images import HEIGHT, WIDTH

CONFIG = MatcherConfig.of(
    "classic", max_keypoints=150, longest=160, min_iterations=100, max_iterations=300
)
#: The same as options of a command.
FLAGS = ["--preset", "classic", "--max-keypoints", "150", "--set", "longest=160"]
FLAGS += ["--set", "min_iterations=100", "--set", "max_iterations=300"]
FOCAL = 130.0
#: Intrinsics of the images, as a list of pairs has them.
K = f"{FOCAL} 0 {(WIDTH - 1) / 2} 0 {FOCAL} {(HEIGHT - 1) / 2} 0 0 1"

# Columns that differ between two runs of the same batch.
TIMING_COLUMNS = ("seconds", "estimate_seconds")


def rows(folder, timing=False):
    """Read the table of a batch, by default without the columns that no two runs have alike."""
    with (folder / "pairs.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    if not timing:
        for row in found:
            for name in TIMING_COLUMNS:
                del row[name]
    return found
