"""Every call of the system that a command makes fails in turn; nothing may be lost or half done.

``python tests/faults/sweep.py`` compiles the shim, preloads it into itself, and prints how many
calls were made to fail and what was wrong. A call fails once, or all from it on do, or the process
is killed there, or half of what it writes is written. After each fault the same command is run
again without one, and its results must be those of a run that was never disturbed.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import ctypes
import importlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
FILES, MEMORY = 1, 2
MODES = {"once": 0, "from then on": 1, "killed": 2, "short write": 3}
SETTINGS = ["--preset", "classic", "--max-keypoints", "60", "--set", "longest=96"]
SETTINGS += ["--set", "min_iterations=50", "--set", "max_iterations=100", "--set", "threads=1"]
# Columns that differ between two runs of one command.
TIMES = ("seconds", "estimate_seconds")


def commands(images, place):
    """Return the arguments of each command, which write into a folder."""
    first, second = sorted(images.glob("*.png"))[:2]
    out = ["--out", str(place / "out"), "--format", "npz,h5,colmap"]
    every = [*out[:-1], f"parquet,{out[-1]},colmap-db"]
    batch = ["batch", str(images / "list.txt"), "--workers", "1"]
    return {
        "match": ["match", str(first), str(second), "--no-picture", *out, *SETTINGS],
        "batch": [*batch, *every, *SETTINGS],
        "batch with cache": [*batch, "--cache", str(place / "cache"), *out[:2], *SETTINGS],
    }


def in_child(work):
    """Run a function in a process of its own; return its answer and the status of the process."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        answer = None
        try:
            answer = work()
        finally:
            os.write(send, json.dumps(answer).encode())
            os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as file:
        answer = file.read()
    return json.loads(answer) if answer else None, os.waitpid(child, 0)[1]


def run(arguments, place, kinds=0, number=-1, mode="once"):
    """Run a command with a fault; return its exit code, what it said, and the calls it made."""
    shim = ctypes.CDLL(None)

    def work():
        said = io.StringIO()
        sys.argv = ["manymatch", *arguments]
        from manymatch.cli.app import app

        shim.fault_arm(kinds, ctypes.c_long(number), MODES[mode], os.fsencode(place) + b"/")
        code = 0
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
            try:
                app()
            except SystemExit as end:
                code = end.code or 0
            except BaseException as error:  # noqa: BLE001 - what would be a traceback
                code, text = "traceback", f"{type(error).__name__}: {error}"
                said.write(text)
        calls = shim.fault_count()
        return [code, said.getvalue(), calls, sorted(sys.modules)]

    answer, status = in_child(work)
    if answer is None:
        return ["killed" if status == 137 << 8 else f"status {status}", "", 0, []]
    return answer


def content(path):
    """Read the content of a file, without times; a damaged file raises."""
    import h5py

    from tests.support.importers import database_content

    data = path.read_bytes()
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            return {name: arrays[name].tolist() for name in arrays}
    if path.suffix == ".h5":
        found = {}
        with h5py.File(path) as file:
            file.visititems(
                lambda name, item: found.update({name: item[()].tolist()})
                if isinstance(item, h5py.Dataset)
                else None
            )
        return found
    if path.suffix == ".db":
        return database_content(path)
    if path.suffix in (".csv", ".parquet"):
        if path.suffix == ".csv":
            assert data.endswith(b"\n")
            rows = list(csv.DictReader(io.StringIO(data.decode(), newline="")))
        else:
            parquet = importlib.import_module("pyarrow.parquet")
            rows = parquet.read_table(path, use_threads=False).to_pylist()
        return [{k: v for k, v in row.items() if k not in TIMES} for row in rows]
    if path.suffix == ".json":
        record = json.loads(data)
        return {k: v for k, v in record.items() if k in ("pose", "inliers", "counts", "total")}
    if path.name == "report.html":
        assert data.rstrip().endswith(b"</html>")
        return None
    return data.decode()


def results(place):
    """All files of the results by name; those whose names begin with a dot are no results."""
    return {
        str(path.relative_to(place / "out")): content(path)
        for path in sorted((place / "out").rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


def trouble(arguments, place, expected, kinds, number, mode):
    """Run a command with one fault and again without; return what is wrong, or None."""
    code, said, _, _ = run(arguments, place, kinds, number, mode)
    if mode != "killed" and (code not in (0, 1, 2) or "Traceback" in said):
        return f"ended with {code}: {said[-200:]}"
    if code == 2 and said.count("manymatch: ") != 1:
        return f"said no single sentence: {said[-300:]}"
    try:
        results(place)
    except Exception as error:  # noqa: BLE001 - any error means half a file
        return f"left half a file: {type(error).__name__}: {error}"
    if mode != "killed" and list((place / "out").rglob("*.tmp*")):
        return "left a temporary file"
    code, said, _, _ = run(arguments, place)
    if code not in (0, 1):
        return f"the second run ended with {code}: {said[-200:]}"
    found = results(place)
    if found != expected:
        names = [n for n in {*found, *expected} if found.get(n) != expected.get(n)]
        return f"the second run differs in {names}"
    return None


def sweep(images, steps):
    """Make calls fail in turn; yield the command, what fails and how, its number, and the trouble.

    `steps` are, for calls that concern files and fail once, and for all other faults, every how
    many calls one is made to fail; 0 is none.
    """
    folder = Path(tempfile.mkdtemp())
    try:
        for name in commands(images, folder):
            place = folder / "reference"
            arguments = commands(images, place)[name]
            place.mkdir()
            modules = run(arguments, place)[3]
            for module in modules:
                # Import everything first, so that no fault hits an import.
                with contextlib.suppress(Exception):
                    importlib.import_module(module)
            expected = results(place)
            errors = [row["error"] for row in expected.get("pairs.csv", ()) if row["error"]]
            if errors:
                raise RuntimeError(f"without a fault {name} has errors: {errors}")
            shutil.rmtree(place)
            for kinds, mode in [(FILES, m) for m in MODES] + [(MEMORY, "once")]:
                place.mkdir()
                calls = run(arguments, place, kinds)[2]
                shutil.rmtree(place)
                step = steps[0 if (kinds, mode) == (FILES, "once") else 1]
                for number in range(0, calls if step else 0, max(step, 1)):
                    place.mkdir()
                    wrong = trouble(arguments, place, expected, kinds, number, mode)
                    shutil.rmtree(place)
                    yield name, "files" if kinds == FILES else "memory", mode, number, calls, wrong
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, nargs=2, default=(1, 1), help="see sweep")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    if "LD_PRELOAD" not in os.environ:
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder) / "shim.so"
            source = Path(__file__).with_name("shim.cpp")
            compiler = ["g++", "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
            subprocess.run(compiler, check=True)  # noqa: S603
            more = {
                "LD_PRELOAD": str(library),
                "OMP_NUM_THREADS": "1",
                "OPENBLAS_NUM_THREADS": "1",
                "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path[1:])]),
            }
            end = subprocess.run([sys.executable, *sys.argv], env={**os.environ, **more})  # noqa: S603, PLW1510
            sys.exit(end.returncode)
    from tests.support.synthetic_images import make_images

    start, rows = time.monotonic(), {}
    with tempfile.TemporaryDirectory() as folder:
        images = Path(folder)
        names = make_images(images, 3)
        (images / "list.txt").write_text(f"{names[0]} {names[1]}\n{names[1]} {names[2]}\n")
        wrong = []
        for command, kind, mode, number, calls, fault in sweep(images, chosen.steps):
            row = rows.setdefault((command, kind, mode), [calls, 0, 0])
            row[1] += 1
            if fault:
                row[2] += 1
                wrong.append([command, kind, mode, number, fault])
                sys.stderr.write(f"{wrong[-1]}\n")
    table = [[*key, *row] for key, row in rows.items()]
    if chosen.json:
        sys.stdout.write(json.dumps({"table": table, "wrong": wrong}))
        return
    sys.stdout.write(
        "| command | fails | how | calls | tried | wrong |\n|---|---|---|---|---|---|\n"
    )
    for line in table:
        sys.stdout.write("| " + " | ".join(map(str, line)) + " |\n")
    total = sum(row[4] for row in table)
    sys.stdout.write(f"{total} faults in {time.monotonic() - start:.0f} s, {len(wrong)} wrong\n")


if __name__ == "__main__":
    main()
