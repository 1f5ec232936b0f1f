"""Time the phases of ``manymatch match``, cold and with the features in a cache.

    python benchmarks/speed/match.py [A.jpg B.jpg] [--preset embedded] [--against CHECKOUT ...]
    python benchmarks/speed/match.py --presets classic embedded fused best

Every run is a process of its own, as a user starts it: importing, loading the networks, the images,
their features, association, estimation, and every file that is written. Wall and CPU time (user and
system, of its threads in Python) are counted for each phase without those inside it, for the total
of all threads, and the minimum of several runs counts, which other work on the machine disturbs
least. With ``--against`` the sources of other
checkouts, whose core is compiled, are measured too, in turn with these. Writes ``match.json`` and
``match.md``.

With ``--presets`` presets are compared: the whole command from a cold start, and further pairs of a
`Matcher` that has matched one, in a process of its own with its peak memory. Writes
``presets.md``.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PHOTOGRAPHS = ROOT / "src/manymatch/demo_photos"
LIBRARIES = ("torch", "kornia", "transformers", "cv2", "matplotlib", "h5py", "PIL")
# Where a phase is a function: module, attribute, and the phase.
FUNCTIONS = (
    ("matcher.matcher", "load_image", "load images"),
    ("matcher.matcher", "candidates", "associate"),
    ("matcher.matcher", "estimate_relative_pose", "estimate"),
    ("matcher.matcher", "assess", "confidence"),
    ("features.extractor", "load_detector", "load detector"),
    ("features.extractor", "load_backbone", "load backbone"),
    ("features.extractor", "Extractor._model_key", "hash weights"),
    ("features.extractor", "Extractor._compute", "detect"),
    ("features.extractor", "dense_maps", "dense features"),
    ("features.extractor", "Extractor._describe", "sample features"),
    ("features.extractor", "FeatureCache.read", "read cache"),
    ("matcher.match_result", "MatchResult.plot", "picture"),
    ("matcher.match_result", "MatchResult.report", "report"),
)

Times = dict[str, tuple[float, float]]


class Clock:
    """Wall and CPU seconds by phase; what a phase contains is not counted twice.

    Every thread has a stack of phases and a processor time of its own. Times of threads are added
    up, also where they ran at the same time.
    """

    def __init__(self) -> None:
        self.times: Times = {}
        self._own, self._lock = threading.local(), threading.Lock()

    @contextlib.contextmanager
    def phase(self, name: str) -> Any:
        start = time.perf_counter(), time.thread_time()
        inside = vars(self._own).setdefault("inside", [[0.0, 0.0]])
        inside.append([0.0, 0.0])
        try:
            yield
        finally:
            spent = [time.perf_counter() - start[0], time.thread_time() - start[1]]
            inner = inside.pop()
            with self._lock:
                old = self.times.get(name, (0.0, 0.0))
                self.times[name] = (old[0] + spent[0] - inner[0], old[1] + spent[1] - inner[1])
            for i in (0, 1):
                inside[-1][i] += spent[i]

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
    return clock.times | {"total": (0.0, time.process_time())}


def measure_warm(image0: str, image1: str, preset: str, repeats: str) -> dict[str, float]:
    """Match two images again and again; the least seconds of each stage, and the peak memory."""
    matcher = importlib.import_module("manymatch.matcher.matcher").Matcher(preset)
    matcher.match(image0, image1)
    best: dict[str, float] = {}
    for _ in range(int(repeats)):
        start = time.process_time()
        seconds = dict(matcher.match(image0, image1).timing)
        seconds["cpu"] = time.process_time() - start
        best = {stage: min(value, best.get(stage, value)) for stage, value in seconds.items()}
    return best | {"peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def answer_of(checkout: Path, *arguments: str) -> dict[str, Any]:
    """Run this file in a process of its own with the sources of a checkout."""
    environment = os.environ | {"PYTHONPATH": str(checkout / "src")}
    done = subprocess.run(  # noqa: S603 - this file
        [sys.executable, __file__, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stderr)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def run(checkout: Path, arguments: list[str]) -> Times:
    """Measure in a process of its own with the sources of a checkout."""
    start = time.perf_counter()
    answer = answer_of(checkout, "--worker", *arguments)
    times: Times = {k: (v[0], v[1]) for k, v in answer.items()}
    return times | {"total": (time.perf_counter() - start, times["total"][1])}


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


def compare_presets(images: list[str], presets: list[str], repeats: int) -> str:
    """Markdown: a row for each preset."""
    stages = ("features", "associate", "estimate", "confidence")
    lines = [
        f"| preset | cold, s | CPU | warm, s | CPU | {' | '.join(stages)} | peak memory, MB |",
        f"|:---|{'---:|' * (5 + len(stages))}",
    ]
    for preset in presets:
        with tempfile.TemporaryDirectory() as folder:
            runs = [run(ROOT, [*images, preset, "", folder])["total"] for _ in range(repeats)]
        cold = [min(one[i] for one in runs) for i in (0, 1)]
        warm = answer_of(ROOT, "--warm", *images, preset, str(repeats))
        cells = [*cold, warm["total"], warm["cpu"], *(warm[stage] for stage in stages)]
        texts = (f"{cell:.2f}" for cell in cells)
        lines.append(f"| `{preset}` | {' | '.join(texts)} | {warm['peak_mb']:.0f} |")
    return "\n".join(lines)


def main() -> None:
    for name, function in (("--worker", measure), ("--warm", measure_warm)):
        if sys.argv[1:2] == [name]:
            sys.stdout.write(f"\n{json.dumps(function(*sys.argv[2:]))}\n")
            return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    photographs = [PHOTOGRAPHS / "street0.jpg", PHOTOGRAPHS / "street1.jpg"]
    parser.add_argument("images", nargs="*", type=Path, default=photographs, help="two images")
    parser.add_argument("--preset", default="embedded")
    parser.add_argument("--presets", nargs="+", default=[], metavar="PRESET")
    parser.add_argument("--against", type=Path, action="append", default=[], metavar="CHECKOUT")
    parser.add_argument("--repeats", type=int, default=5, help="interleaved runs")
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="folder of results")
    arguments = parser.parse_args()
    if len(arguments.images) != 2:
        parser.error("two images are wanted")
    if arguments.presets:
        text = compare_presets(
            [str(path) for path in arguments.images], arguments.presets, arguments.repeats
        )
        sys.stdout.write(f"Minimum of {arguments.repeats} runs.\n\n{text}\n")
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "presets.md").write_text(f"{text}\n")
        return
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
