"""Fuzz all targets, and print how many inputs were tried and how many were wrong.

    python -m fuzz.run --minutes 1 [TARGET ...]     # minutes for each target

Readers and public functions need atheris, the core a build with clang in ``build/fuzz``; what is
missing is said and left out. A target stops at its first wrong input, which is kept in
``fuzz/corpus/<target>``, where ``make test`` runs it again until it is fixed.

Inputs that reach new code are kept in ``out/fuzz/<target>``, where the next run starts from them,
and ``out/fuzz/record.csv`` adds up all runs: seconds of the processor, inputs, wrong ones.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CORPUS = Path(__file__).with_name("corpus")
CORE = Path(__file__).parents[1] / "build" / "fuzz" / "fuzz_core"
FOUND = Path("out", "fuzz")
RECORD = FOUND / "record.csv"
_recording = threading.Lock()


def fuzz(target: str, seconds: int) -> bool:
    """Fuzz one target, add to the record, and return whether an input was wrong."""
    core = target.startswith("core_")
    command = [str(CORE)] if core else [sys.executable, "-m", "fuzz.run", "--one", target]
    (FOUND / target).mkdir(parents=True, exist_ok=True)
    options = [
        f"-max_total_time={seconds}",
        *("-max_len=4096", "-timeout=60", "-rss_limit_mb=2048"),
        f"-artifact_prefix={CORPUS / target}/wrong-",
    ]
    process = subprocess.Popen(
        [*command, *options, str(FOUND / target), str(CORPUS / target)],
        env={**os.environ, "FUZZ_TARGET": target.removeprefix("core_")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    told = process.stderr.read()
    # Of this child alone, unlike the times that `resource` adds up.
    _, status, used = os.wait4(process.pid, 0)
    tried = [int(n) for n in re.findall(r"^#(\d+)", told, re.MULTILINE)]
    if status:
        sys.stderr.write(f"--- {target}\n{told[-3000:]}\n")
    row = [target, f"{used.ru_utime + used.ru_stime:.0f}", max(tried, default=0), int(status != 0)]
    with _recording, RECORD.open("a", newline="") as file:
        csv.writer(file).writerow(row)
    return status != 0


def totals() -> dict[str, list[int]]:
    """Add up the record: seconds, inputs and wrong ones by target."""
    sums: dict[str, list[int]] = {}
    with RECORD.open(newline="") as file:
        for target, *numbers in csv.reader(file):
            before = sums.get(target, [0, 0, 0])
            sums[target] = [a + int(b) for a, b in zip(before, numbers, strict=True)]
    return sums


def fuzz_here(target: str, options: list[str]) -> None:
    """Fuzz a target of Python in this process, guided by what it reaches in the package."""
    import atheris

    with atheris.instrument_imports(include=["manymatch", "manymatch_lab"]):
        from fuzz import targets
    atheris.Setup([target, *options], lambda data: targets.run(target, data))
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1.0, help="minutes for each target")
    parser.add_argument("--jobs", type=int, default=2, help="targets at a time")
    parser.add_argument("targets", nargs="*", help="targets; all if none is given")
    given = parser.parse_args()
    known = sorted(folder.name for folder in CORPUS.iterdir())
    missing = []
    if not CORE.exists():
        missing.append("core_")
        sys.stdout.write("core: left out, build/fuzz was not built; it needs clang\n")
    if importlib.util.find_spec("atheris") is None:
        missing.append("")
        sys.stdout.write("readers and functions: left out, atheris is not installed\n")
    chosen = [
        name
        for name in given.targets or known
        if ("core_" if name.startswith("core_") else "") not in missing
    ]
    with ThreadPoolExecutor(given.jobs) as pool:
        wrong = list(pool.map(lambda name: fuzz(name, int(60 * given.minutes)), chosen))
    sys.stdout.write(f"{'all runs':<28}{'minutes':>8}{'tried':>14}  wrong\n")
    for name, (seconds, tried, faults) in sorted(totals().items()):
        sys.stdout.write(f"{name:<28}{seconds / 60:>8.1f}{tried:>14,}  {faults}\n")
    return int(any(wrong))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        fuzz_here(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(main())
