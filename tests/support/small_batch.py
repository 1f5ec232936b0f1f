"""A batch of small images that takes a second, and its table."""

import contextlib
import csv
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


def rows(folder):
    with (folder / "pairs.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def content(folder):
    """Return the bytes of all files of a batch by name, but for the summary.

    A process that was killed may have left a temporary file, which a later run removes.
    """
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "summary.json" and not path.name.endswith(".tmp")
    }


def assert_same(folder, expected):
    """Check that two batches are the same bytes."""
    found, wanted = content(folder), content(expected)
    assert found.keys() == wanted.keys()
    for name in wanted:
        assert found[name] == wanted[name], name


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
    """Numbers of the blocks that have a part."""
    return sorted(int(path.stem) for path in (folder / "parts").glob("*.parquet"))


def wait_for(process, folder, count):
    """Wait until this number of blocks is finished, or everything is."""
    deadline = time.monotonic() + HANGS_S
    while len(finished(folder)) < count and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.002)
