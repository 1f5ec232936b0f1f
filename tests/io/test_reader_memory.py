"""What files may make readers allocate; see reader_memory.py for the files."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("PIL")
pytest.importorskip("h5py")
pytest.importorskip("pyarrow")
if not Path("/proc/self/clear_refs").exists():
    pytest.skip("the peak of the memory is read from /proc", allow_module_level=True)

from tests.io.reader_memory import CASES

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def rows():
    """All rows of the table, measured in a process that has made no large array before."""
    run = subprocess.run(  # noqa: S603
        [sys.executable, str(Path(__file__).with_name("reader_memory.py")), "--json"],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
    )
    return {row[0]: row[1:] for row in json.loads(run.stdout)}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_peak_memory(rows, case):
    _, peak_mb, outcome = rows[case.name]
    assert peak_mb <= case.most_mb, outcome
    if case.refused:
        assert outcome, "it was read"
        assert not outcome.startswith(("MemoryError", "RecursionError", "TypeError", "KeyError"))
    else:
        assert outcome == ""
