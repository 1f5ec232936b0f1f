"""What only the benchmarks compile: the driver whose instructions are counted, a module to time."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DRIVER, MODULE = ROOT / "build" / "bench", ROOT / "build" / "bench-module"


class UnavailableError(RuntimeError):
    """Something that a measurement needs is not installed; the message is a sentence."""


def driver() -> Path:
    """Compile the driver as the package is compiled, where it changed; return its path."""
    _build(DRIVER, "driver", "-DMANYMATCH_PYTHON=OFF")
    return DRIVER / "cpp" / "bench" / "driver"


def bench_module() -> Path:
    """Compile the module ``_bench`` for this interpreter, where it changed; return its path."""
    _build(MODULE, "_bench", "-DMANYMATCH_PYTHON=ON", f"-DPython_EXECUTABLE={sys.executable}")
    (path,) = (MODULE / "cpp" / "bench").glob("_bench*.so")
    return path


def tool(name: str) -> str:
    """Find a program on the path or beside the interpreter."""
    found = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
    if found is None:
        raise UnavailableError(f"{name} is not installed, which this measurement needs.")
    return found


def _build(folder: Path, target: str, *settings: str) -> None:
    configure = [
        *(tool("cmake"), "-S", str(ROOT), "-B", str(folder), "-G", "Ninja"),
        *(f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}", "-DCMAKE_BUILD_TYPE=Release"),
        *("-DMANYMATCH_BENCH=ON", *settings),
    ]
    for command in (configure, [tool("cmake"), "--build", str(folder), "--target", target]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            raise UnavailableError(f"{target} cannot be built: {done.stdout[-2000:]}{done.stderr}")
