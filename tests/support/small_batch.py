"""A batch of small images that takes a second, and its table."""

import contextlib
import csv
import json
import subprocess
import sys
import time

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


# Only keeps a broken program from hanging here for hours.
HANGS_S = 120


@contextlib.contextmanager
def running(*arguments, **settings):
    """Run ``manymatch batch`` in a process, and end it with the block."""
    command = [sys.executable, "-c", "from manymatch.cli.app import main; main()", "batch"]
    process = subprocess.Popen(  # noqa: S603
        [*command, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **settings,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def finished(folder):
    """Indices in the journal so far; the last line may be torn."""
    path = folder / "journal.jsonl"
    lines = path.read_bytes().split(b"\n")[1:-1] if path.exists() else []
    return [json.loads(line)["index"] for line in lines]


def wait_for(process, folder, count):
    """Wait until this many pairs are finished, or the whole batch."""
    deadline = time.monotonic() + HANGS_S
    while len(finished(folder)) < count and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.002)
