"""What a batch costs beside the estimator: CPU time by stage, per pair, with cached features.

    OPENBLAS_NUM_THREADS=1 python benchmarks/speed/batch_cost.py [FOLDER] [--pairs 300]

All pairs of a folder of images are matched by one worker with one thread, after a run that filled
the cache of features. Times are CPU seconds, which other programs on the machine change little; in
particular, waiting for the disk does not count. "Runner" is all of `run_batch` but
`Matcher.match_features`, that is, start, images, cameras, cached features, rows, parts, tables and
files. Beside it stands the bare loop of `match_features` over the
same pairs in the same process. The folder is by default one of the posed pairs, below
MANYMATCH_DATA.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from manymatch.batch import batch, work
from manymatch.batch.batch import local_order, run_batch
from manymatch.batch.parts import Run
from manymatch.batch.work import Views
from manymatch.features.feature_cache import FeatureCache
from manymatch.io.pairs import exhaustive_pairs
from manymatch.matcher import matcher as matching
from manymatch.matcher.config import MatcherConfig
from manymatch.matcher.matcher import Matcher
from tests.support.data_folder import data_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

SET = "strecha_fountain_herzjesu"

# Where each stage is, and its name; those of one line are parts of the one above.
STAGES: dict[str, tuple[Any, str]] = {
    "match_features": (Matcher, "match_features"),
    "- estimator": (matching, "estimate_relative_pose"),
    "images and features of them": (work.Views, "compute"),
    "- decoding": (work, "load_image"),
    "- reading the cache": (FeatureCache, "read"),
    "- cameras and EXIF": (work, "resolve_camera"),
    "row": (work, "result_row"),
    "columns of the matches": (work, "match_columns"),
    "parts": (Run, "write"),
    "tables": (batch, "write_tables"),
    "files of matches": (batch, "write_outputs"),
}


class Clock:
    """CPU seconds and calls by stage, over all threads."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        """Add the time of a block."""
        start = time.thread_time()
        try:
            yield
        finally:
            seconds = time.thread_time() - start
            with self._lock:
                self.seconds[stage] += seconds
                self.calls[stage] += 1

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Measure all stages."""
        with contextlib.ExitStack() as stack:
            for stage, (place, name) in STAGES.items():
                plain = getattr(place, name)
                stack.callback(setattr, place, name, plain)
                setattr(place, name, self._timed(stage, plain))
            yield

    def _timed(self, stage: str, function: Any) -> Any:
        @functools.wraps(function)
        def timed(*arguments: Any, **settings: Any) -> Any:
            with self.measure(stage):
                return function(*arguments, **settings)

        return timed


def bare_loop(config: MatcherConfig, pairs: Any, how: dict[str, Any], order: Any) -> float:
    """CPU seconds of nothing but `match_features`, features in memory."""
    matcher = Matcher(config, cache=how["cache"])
    kept = Views(matcher, 10**12, how["cameras"])
    seconds = 0.0
    for index in order:
        pair = pairs[index]
        view0, view1 = kept.get(pair.path0, pair.rot0), kept.get(pair.path1, pair.rot1)
        cameras = view0.camera_in(pair, 0), view1.camera_in(pair, 1)
        start = time.thread_time()
        matcher.match_features(view0.features, view1.features, *cameras)
        seconds += time.thread_time() - start
    return seconds


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--preset", default="classic")
    parser.add_argument("--format", nargs="*", default=["parquet"], metavar="FORMAT")
    parser.add_argument("--cameras", help="of all images, as manymatch batch takes it")
    parser.add_argument("--cache", type=Path, help="kept for further runs; by default temporary")
    arguments = parser.parse_args()
    data = data_folder()
    folder = arguments.folder or (data and data / "posed_pairs" / SET)
    if folder is None:
        sys.exit("set MANYMATCH_DATA to the folder with posed_pairs, or give a folder of images")
    config = MatcherConfig.of(arguments.preset, threads=1)
    listed = exhaustive_pairs(folder)
    pairs = [listed[index] for index in local_order(listed)[: arguments.pairs].tolist()]
    with tempfile.TemporaryDirectory() as place:
        cache = arguments.cache or Path(place) / "cache"
        quick = MatcherConfig.of(config, min_iterations=1, max_iterations=1)
        how: dict[str, Any] = {"workers": 1, "cache": cache, "cameras": arguments.cameras}
        # Packages that only the files need are imported here as well.
        run_batch(pairs, None, Path(place) / "fill", quick, formats=arguments.format, **how)
        order = local_order(pairs).tolist()
        bare = bare_loop(config, pairs, how, order)
        clock = Clock()
        start = time.process_time()
        with clock.watching():
            run_batch(pairs, None, Path(place) / "out", config, formats=arguments.format, **how)
        total = time.process_time() - start
        size = sum(path.stat().st_size for path in (Path(place) / "out" / "parts").iterdir())
    show(clock, total, bare, len(pairs), size)


def show(clock: Clock, total: float, bare: float, count: int, size: int) -> None:
    """Print a Markdown table."""
    within = clock.seconds["match_features"]
    images = clock.calls["images and features of them"]
    runner = total - within
    print(f"{count} pairs of {images} images, parts {size / count / 1000:.1f} kB a pair\n")
    print(
        "| stage | calls | ms a call | ms a pair | % of match_features | % of the estimator |\n"
        "|:--|--:|--:|--:|--:|--:|"
    )
    estimator = clock.seconds["- estimator"]

    def line(stage: str, seconds: float, calls: int) -> None:
        print(
            f"| {stage} | {calls} | {1e3 * seconds / max(calls, 1):.3f} "
            f"| {1e3 * seconds / count:.3f} | {100 * seconds / within:.2f} "
            f"| {100 * seconds / estimator:.2f} |"
        )

    line("bare loop of match_features", bare, count)
    for stage in STAGES:
        line(stage, clock.seconds[stage], clock.calls[stage])
    told = sum(s for stage, s in clock.seconds.items() if not stage.startswith("- "))
    line("everything else", total - told, count)
    line("**runner**", runner, count)
    without = runner - clock.seconds["images and features of them"]
    line("**runner without images and their features**", without, count)


if __name__ == "__main__":
    main()
