"""Time the phases of ``manymatch match``, cold and with the features in a cache.

    python benchmarks/speed/match.py [A.jpg B.jpg] [--preset embedded] [--against CHECKOUT ...]
    python benchmarks/speed/match.py --presets classic embedded fused best [--against CHECKOUT ...]

Every run is a process of its own, as a user starts it: importing, loading the networks, the images,
their features, association, estimation, and every file that is written. Wall and CPU time (user and
system, of its threads in Python) are counted for each phase without those inside it, for the total
of all threads, and the minimum of several runs counts, which other work on the machine disturbs
least. With ``--against`` the sources of other
checkouts, whose core is compiled, are measured too, in turn with these. Writes ``match.json`` and
``match.md``.

With ``--presets`` presets are compared: ``manymatch match`` from a cold start, with picture and
report, and further pairs of a `Matcher` that has matched one, each in processes of their own with
their peak memory; also with ``--against``. Minimum and median; writes ``presets.md``.
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
from statistics import median
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


def measure_warm(image0: str, image1: str, preset: str, repeats: str) -> dict[str, list[float]]:
    """Match two images again and again: seconds of every stage and CPU, and the peak memory."""
    matcher = importlib.import_module("manymatch.matcher.matcher").Matcher(preset)
    matcher.match(image0, image1)
    found: dict[str, list[float]] = {}
    for _ in range(int(repeats)):
        start = time.process_time()
        seconds = dict(matcher.match(image0, image1).timing)
        for stage, value in {**seconds, "cpu": time.process_time() - start}.items():
            found.setdefault(stage, []).append(value)
    return found | {"peak_mb": [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]}


def measure_command(checkout: Path, arguments: list[str]) -> dict[str, list[float]]:
    """Run ``manymatch match`` from a cold start: seconds, CPU seconds and peak memory."""
    code = "from manymatch.cli.app import main; main()"
    environment = os.environ | {"PYTHONPATH": str(checkout / "src")}
    start = time.perf_counter()
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(  # noqa: S603 - this package
            [sys.executable, "-c", code, "match", *arguments],
            env=environment,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
        _, status, used = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - start
        if status:
            said.seek(0)
            sys.exit(said.read().decode())
    child.returncode = 0
    cpu, peak = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
    return {"cold": [seconds], "cold cpu": [cpu], "cold peak": [peak]}


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


def compare_presets(
    images: list[str], presets: list[str], checkouts: list[Path], repeats: int, pairs: int
) -> str:
    """Markdown: a row for each preset and checkout, which take turns."""
    stages = ("load", "features", "associate", "estimate", "confidence")
    runs: dict[tuple[str, Path], dict[str, list[float]]] = {}
    for preset in presets:
        for _ in range(repeats):
            for checkout in checkouts:
                where = checkout.resolve()
                kept = runs.setdefault((preset, checkout), {})
                with tempfile.TemporaryDirectory() as folder:
                    one = measure_command(where, [*images, "--preset", preset, "--out", folder])
                one |= answer_of(where, "--warm", *images, preset, str(pairs))
                for name, values in one.items():
                    kept.setdefault(name, []).extend(values)
    header = ["preset", "version", "warm, s", "CPU", "cold, s", "CPU", *stages, "MB", "MB cold"]
    lines = [f"| {' | '.join(header)} |", f"|:--|:--{'|--:' * (len(header) - 2)}|"]
    for (preset, checkout), of in runs.items():
        cells = [f"{min(of[k]):.2f} / {median(of[k]):.2f}" for k in ("total", "cpu")]
        cells += [f"{min(of[k]):.2f} / {median(of[k]):.2f}" for k in ("cold", "cold cpu")]
        cells += [f"{min(of[stage]):.3f}" for stage in stages]
        cells += [f"{max(of[k]):.0f}" for k in ("peak_mb", "cold peak")]
        version = "this" if checkout == ROOT else checkout.name
        lines.append(f"| `{preset}` | {version} | {' | '.join(cells)} |")
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
    parser.add_argument("--repeats", type=int, default=5, help="processes, which take turns")
    parser.add_argument("--pairs", type=int, default=7, help="further pairs of a process")
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="folder of results")
    arguments = parser.parse_args()
    if len(arguments.images) != 2:
        parser.error("two images are wanted")
    checkouts = [*arguments.against, ROOT]
    if arguments.presets:
        images = [str(path.resolve()) for path in arguments.images]
        text = compare_presets(
            images, arguments.presets, checkouts, arguments.repeats, arguments.pairs
        )
        sys.stdout.write(f"Minimum / median of {arguments.repeats} processes.\n\n{text}\n")
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "presets.md").write_text(f"{text}\n")
        return
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
