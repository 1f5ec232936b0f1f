"""Instructions of fixed pieces of work, counted by valgrind: the same on a busy machine.

The work is that of ``cpp/bench/driver.cpp``. Valgrind knows AVX2 but not AVX-512, so the paths that
can be counted are avx2 and baseline.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.speed import build

if TYPE_CHECKING:
    from collections.abc import Sequence

COUNTED = "manymatch_counted"


def compiler() -> str:
    """Name and version of the compiler that built the driver: counts depend on it."""
    cache = (build.DRIVER / "CMakeCache.txt").read_text()
    path = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.*)$", cache, re.MULTILINE)
    assert path is not None
    done = subprocess.run(  # noqa: S603
        [path[1], "--version"], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()[0]


def count(driver: Path, task: str, times: int, isa: str) -> int:
    """Count the instructions of one task, without its preparation."""
    with tempfile.TemporaryDirectory() as folder:
        file = _run(driver, task, times, isa, Path(folder))
        total = re.search(r"^totals: (\d+)$", file.read_text(), re.MULTILINE)
    assert total is not None
    return int(total[1])


def count_by_function(driver: Path, task: str, times: int, isa: str) -> dict[str, int]:
    """Count the instructions of one task by function, with all that a function calls."""
    with tempfile.TemporaryDirectory() as folder:
        file = _run(driver, task, times, isa, Path(folder))
        done = subprocess.run(  # noqa: S603
            [build.tool("callgrind_annotate"), "--inclusive=yes", "--threshold=100", str(file)],
            capture_output=True,
            text=True,
            check=True,
        )
    functions: dict[str, int] = {}
    for line in done.stdout.splitlines():
        match = re.match(r"\s*([\d,]+) \([\d. ]+%\)\s+[^:]*:(.*?)(?: \[[^\]]*\])?$", line)
        if match:
            functions.setdefault(match[2], int(match[1].replace(",", "")))
    return functions


def count_operations(driver: Path, task: str, times: int, isa: str) -> tuple[int, int]:
    """Count instructions that compute with floating-point numbers, and the operations they do.

    A fused multiply-add is two operations in every lane. The C library's are not counted.
    """
    listing = subprocess.run(  # noqa: S603
        [build.tool("objdump"), "-d", "--no-show-raw-insn", str(driver)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    work = {
        int(line[0], 16): operations(line[1])
        for line in re.findall(r"^ *([0-9a-f]+):\t(.*)$", listing, re.MULTILINE)
    }
    instructions = total = 0
    with tempfile.TemporaryDirectory() as folder:
        more = ("--dump-instr=yes", "--compress-pos=no", "--compress-strings=no")
        lines = _run(driver, task, times, isa, Path(folder), more).read_text().splitlines()
    here, called = False, False
    for line in lines:
        if line.startswith("ob="):
            here = line == f"ob={driver}"
        elif line.startswith("calls="):
            called = True  # the next line is the cost of what was called
        elif line.startswith("0x"):
            address, _, cost = line.split()
            amount = work.get(int(address, 16), 0)
            if here and not called and amount:
                instructions += int(cost)
                total += amount * int(cost)
            called = False
    return instructions, total


def operations(instruction: str) -> int:
    """Floating-point operations of one line of disassembly; 0 for anything else."""
    name = re.match(
        r"v?(fn?m(?:add|sub)\d*|add|sub|mul|div|sqrt|max|min)([ps])([sd])\b", instruction
    )
    if name is None:
        return 0
    bits = 512 if "%zmm" in instruction else 256 if "%ymm" in instruction else 128
    lanes = 1 if name[2] == "s" else bits // (32 if name[3] == "s" else 64)
    return lanes * (2 if name[1].startswith("f") else 1)


def _run(
    driver: Path, task: str, times: int, isa: str, folder: Path, more: Sequence[str] = ()
) -> Path:
    file = folder / "callgrind.out"
    command = [
        *(build.tool("valgrind"), "--tool=callgrind", f"--callgrind-out-file={file}", *more),
        *(f"--toggle-collect={COUNTED}", str(driver), task, str(times)),
    ]
    done = subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, check=False, env={"MANYMATCH_ISA": isa}
    )
    if done.returncode:
        raise build.UnavailableError(f"{task} cannot be counted: {done.stderr[-500:]}")
    return file
