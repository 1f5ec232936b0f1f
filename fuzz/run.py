"""Fuzz all targets, two at a time, and print how many inputs were tried and how many are wrong.

    python -m fuzz.run --minutes 1 [TARGET ...]     # minutes for each target

Readers and public functions need atheris, the core a build with clang in ``build/fuzz``; what is
missing is said and left out. A target stops at its first wrong input, which is kept in
``fuzz/corpus/<target>``, where ``make test`` runs it again until it is fixed.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CORPUS = Path(__file__).with_name("corpus")
CORE = Path(__file__).parents[1] / "build" / "fuzz" / "fuzz_core"


def fuzz(target: str, seconds: int) -> tuple[str, int, bool]:
    """Fuzz one target; (target, inputs tried, whether one was wrong)."""
    core = target.startswith("core_")
    command = [str(CORE)] if core else [sys.executable, "-m", "fuzz.run", "--one", target]
    with tempfile.TemporaryDirectory() as folder:
        options = [
            f"-max_total_time={seconds}",
            *("-max_len=4096", "-timeout=60", "-rss_limit_mb=2048"),
            f"-artifact_prefix={CORPUS / target}/wrong-",
        ]
        done = subprocess.run(
            [*command, *options, folder, str(CORPUS / target)],
            env={**os.environ, "FUZZ_TARGET": target.removeprefix("core_")},
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    tried = [int(n) for n in re.findall(r"^#(\d+)", done.stderr, re.MULTILINE)]
    if done.returncode:
        sys.stderr.write(f"--- {target}\n{done.stderr[-3000:]}\n")
    return target, max(tried, default=0), done.returncode != 0


def fuzz_here(target: str, options: list[str]) -> None:
    """Fuzz a target of Python in this process, guided by what it reaches in the package."""
    import atheris

    with atheris.instrument_imports(include=["manymatch", "manymatch_paper"]):
        from fuzz import targets
    atheris.Setup([target, *options], lambda data: targets.run(target, data))
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1.0, help="minutes for each target")
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
    with ThreadPoolExecutor(2) as pool:
        rows = list(pool.map(lambda name: fuzz(name, int(60 * given.minutes)), chosen))
    sys.stdout.write(f"{'target':<28}{'tried':>10}  wrong\n")
    for name, tried, wrong in rows:
        sys.stdout.write(f"{name:<28}{tried:>10}  {int(wrong)}\n")
    return int(any(wrong for *_, wrong in rows))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        fuzz_here(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(main())
