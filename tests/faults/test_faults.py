"""Calls of the system that fail in turn during match, batch and cache writes; see sweep.py.

Every seventh call that concerns files fails here once, and some in other ways. ``make faults``
takes all calls and all ways. The steps are primes, as calls repeat in groups.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("cv2")
pytest.importorskip("h5py")
pytest.importorskip("pyarrow")
pytest.importorskip("pycolmap")
if shutil.which("g++") is None or not sys.platform.startswith("linux"):
    pytest.skip("the shim needs g++ and Linux", allow_module_level=True)

ROOT = Path(__file__).parents[2]


@pytest.mark.nightly
def test_no_fault_loses_or_halves_anything():
    run = subprocess.run(  # noqa: S603
        [sys.executable, str(ROOT / "tests/faults/sweep.py"), "--json", "--steps", "7", "127"],
        capture_output=True,
        check=False,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
    )
    assert run.returncode == 0, run.stderr[-2000:]
    found = json.loads(run.stdout)
    assert found["wrong"] == []
    tried = sum(row[4] for row in found["table"])
    assert tried > 100
    print(f"{tried} calls were made to fail")
