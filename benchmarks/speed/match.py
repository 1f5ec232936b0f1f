"""Time the phases of ``manymatch match``, cold and with the features in a cache.

    python benchmarks/speed/match.py [A.jpg B.jpg] [--preset embedded] [--against CHECKOUT ...]

Every run is a process of its own, as a user starts it: importing, loading the networks, the images,
their features, association, estimation, and every file that is written. Wall and CPU time (user and
system, all threads) are counted for each phase without those inside it, and the minimum of several
runs counts, which other work on the machine disturbs least. With ``--against`` the sources of other
checkouts, whose core is compiled, are measured too, in turn with these. Writes ``match.json`` and
``match.md``.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PHOTOGRAPHS = ROOT / "src/manymatch/datasets/demo_photos"
LIBRARIES = ("torch", "kornia", "transformers", "cv2", "matplotlib", "h5py", "PIL")
# Where a phase is a function: module, attribute, and the phase.
FUNCTIONS = (
    ("matcher.matcher", "load_image", "load images"),
    ("matcher.matcher", "candidates", "associate"),
    ("matcher.matcher", "estimate_relative_pose", "estimate"),
    ("matcher.matcher", "assess", "confidence"),
    ("features.extractor", "load_detector", "load detector"),
    ("features.extractor", "load_backbone", "load backbone"),
    ("features.extractor", "Extractor._key", "hash images and weights"),
    ("features.extractor", "Extractor._detect", "detect"),
    ("features.extractor", "Extractor._dense", "dense features"),
    ("features.extractor", "Extractor._describe", "sample features"),
    ("features.extractor", "FeatureCache.read", "read cache"),
    ("matcher.result", "MatchResult.plot", "picture"),
    ("matcher.result", "MatchResult.report", "report"),
)

Times = dict[str, tuple[float, float]]


class Clock:
    """Wall and CPU seconds by phase; what a phase contains is not counted twice."""

    def __init__(self) -> None:
        self.times: Times = {}
        self._inside: list[list[float]] = [[0.0, 0.0]]

    @contextlib.contextmanager
    def phase(self, name: str) -> Any:
        start = time.perf_counter(), time.process_time()
        self._inside.append([0.0, 0.0])
        try:
            yield
        finally:
            spent = [time.perf_counter() - start[0], time.process_time() - start[1]]
            inner = self._inside.pop()
            before = self.times.get(name, (0.0, 0.0))
            self.times[name] = (before[0] + spent[0] - inner[0], before[1] + spent[1] - inner[1])
            for i in (0, 1):
                self._inside[-1][i] += spent[i]

    def watch(self, owner: Any, name: str, phase: str) -> None:
        """Count the calls of a function or method as a phase."""
        inner = getattr(owner, name)

        @functools.wraps(inner)
        def timed(*arguments: Any, **settings: Any) -> Any:
            with self.phase(phase):
                return inner(*arguments, **settings)

        setattr(owner, name, timed)

    def watch_imports(self) -> None:
        """Count imports of large libraries, which the package asks of `importlib`."""
        inner = importlib.import_module

        def timed(name: str, package: str | None = None) -> Any:
            top = name.partition(".")[0]
            if top not in LIBRARIES:
                return inner(name, package)
            with self.phase(f"import {top}"):
                return inner(name, package)

        importlib.import_module = timed


def measure(image0: str, image1: str, preset: str, cache: str, out: str) -> Times:
    """Match two images as the command does, in this process, which has imported nothing yet."""
    clock = Clock()
    clock.watch_imports()
    clock.times["start Python"] = (0.0, time.process_time())
    with clock.phase("import manymatch"):
        importlib.import_module("manymatch.cli.app")
        importlib.import_module("manymatch.cli.match")
        for module, name, phase in FUNCTIONS:
            owner = importlib.import_module(f"manymatch.{module}")
            *parents, last = name.split(".")
            clock.watch(functools.reduce(getattr, parents, owner), last, phase)
        matcher_class = importlib.import_module("manymatch.matcher.matcher").Matcher
    with clock.phase("everything else"):
        matcher = matcher_class(preset, cache=cache or None)
        result = matcher.match(image0, image1)
        with clock.phase("other files"):
            result.save(out)
    return clock.times


def run(checkout: Path, arguments: list[str]) -> Times:
    """Measure in a process of its own with the sources of a checkout."""
    command = [sys.executable, __file__, "--worker", *arguments]
    environment = os.environ | {"PYTHONPATH": str(checkout / "src")}
    start = time.perf_counter()
    done = subprocess.run(  # noqa: S603 - this file
        command, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.stderr)
    times: Times = {k: (v[0], v[1]) for k, v in json.loads(done.stdout.splitlines()[-1]).items()}
    # What is left of the process's life is its start and its end.
    known = sum(wall for wall, _ in times.values())
    times["start Python"] = (time.perf_counter() - start - known, times["start Python"][1])
    return times | {"total": tuple(map(sum, zip(*times.values(), strict=True)))}


def table(best: dict[str, Times]) -> str:
    """Markdown: a row for each phase, wall and CPU milliseconds of each column."""
    phases = list(dict.fromkeys(phase for times in best.values() for phase in times))
    # The order of the first column, the total last.
    phases.sort(key=lambda phase: phase == "total")
    lines = [f"| phase | {' | '.join(best)} |", f"|:---|{'---:|' * len(best)}"]
    for phase in phases:
        cells = (
            f"{1e3 * times[phase][0]:.0f} / {1e3 * times[phase][1]:.0f}" if phase in times else "–"
            for times in best.values()
        )
        lines.append(f"| {phase} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        times = measure(*sys.argv[2:])
        sys.stdout.write(f"\n{json.dumps(times)}\n")
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    photographs = [PHOTOGRAPHS / "street0.jpg", PHOTOGRAPHS / "street1.jpg"]
    parser.add_argument("images", nargs="*", type=Path, default=photographs, help="two images")
    parser.add_argument("--preset", default="embedded")
    parser.add_argument("--against", type=Path, action="append", default=[], metavar="CHECKOUT")
    parser.add_argument("--repeats", type=int, default=5, help="interleaved runs")
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="folder of results")
    arguments = parser.parse_args()
    if len(arguments.images) != 2:
        parser.error("two images are wanted")
    checkouts = [*arguments.against, ROOT]
    best: dict[str, Times] = {}
    with tempfile.TemporaryDirectory() as folder:
        # The first round fills the caches and is not counted.
        for i in range(arguments.repeats + 1):
            for k, checkout in enumerate(checkouts):
                for kind in ("cold", "cached"):
                    cache = f"{folder}/cache{k}" if kind == "cached" else ""
                    given = [*map(str, arguments.images), arguments.preset, cache, f"{folder}/out"]
                    times = run(checkout.resolve(), given)
                    name = kind if checkout == ROOT else f"{checkout.name}, {kind}"
                    if i:
                        old = best.setdefault(name, times)
                        best[name] = {
                            phase: (min(wall, old[phase][0]), min(cpu, old[phase][1]))
                            for phase, (wall, cpu) in times.items()
                        }
    text = table(best)
    sys.stdout.write(f"Wall / CPU milliseconds, minimum of {arguments.repeats} runs.\n\n{text}\n")
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "match.md").write_text(f"{text}\n")
    (arguments.out / "match.json").write_text(json.dumps(best, indent=1))


if __name__ == "__main__":
    main()
