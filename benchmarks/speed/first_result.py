"""Seconds from `git clone` to the first result: a fresh clone, environment and installation.

    python benchmarks/speed/first_result.py > benchmarks/results/first_result.md

Everything happens in a temporary folder, which is removed. Processor seconds count all processes of
a step together; they hardly depend on what else runs. How long packages take to arrive is in the
elapsed seconds.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.speed.report import processor_name

ROOT = Path(__file__).resolve().parents[2]
PHOTOS = ("examples/photos/street0.jpg", "examples/photos/street3.jpg")
PIP = ("-m", "pip", "--disable-pip-version-check", "install", "--quiet")


def main() -> None:
    """Print a table of all steps, and what the last one says."""
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder, "manymatch")
        python = str(Path(folder, "env", "bin", "python"))
        match = (python, "-m", "manymatch", "match", *PHOTOS)
        steps = {
            "git clone": ("git", "clone", "--quiet", "--no-local", str(ROOT), str(clone)),
            "a new environment": (sys.executable, "-m", "venv", str(Path(folder, "env"))),
            '`pip install ".[viz,images]"`': (python, *PIP, ".[viz,images]"),
            "`manymatch match`, SIFT": (*match, "--preset", "classic"),
            "`manymatch match`, with the default preset's weights": match,
            "`manymatch match`, a second time": match,
        }
        print("# From the clone to the first result\n")
        print("```sh\npython benchmarks/speed/first_result.py\n```\n")
        print("| step | processor seconds | elapsed seconds |\n|---|---:|---:|")
        said, totals = "", [0.0, 0.0]
        for name, command in steps.items():
            place = clone if clone.exists() else folder
            before, start = _processor(), time.monotonic()
            done = subprocess.run(  # noqa: S603
                command, cwd=place, capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise SystemExit(f"{name}: {done.stdout}{done.stderr}")
            seconds = (_processor() - before, time.monotonic() - start)
            totals = [total + one for total, one in zip(totals, seconds, strict=True)]
            said = done.stdout.splitlines()[0] if done.stdout else ""
            print(f"| {name} | {seconds[0]:.1f} | {seconds[1]:.0f} |", flush=True)
            if "SIFT" in name:
                print(f"| together, until the first result | {totals[0]:.1f} | {totals[1]:.0f} |")
        print(f"\n{processor_name()}, {os.cpu_count()} cores, load {os.getloadavg()[1]:.0f}.\n")
        print(f"> {said}")


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
