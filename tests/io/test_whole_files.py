"""Temporary folders of runs that ended are removed; those of other writers stay."""

import os
import subprocess
import sys

from manymatch.io.files import temporary_name, whole_files


def test_next_run_removes_the_temporary_folder_of_an_ended_process(tmp_path):
    code = "import sys; from manymatch.io.files import temporary_name; print(temporary_name())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    ended = tmp_path / done.stdout.strip()
    (ended / "deep").mkdir(parents=True)
    (ended / "deep" / "half").write_text("half")
    living = tmp_path / temporary_name().replace(f"-{os.getpid()}-", f"-{os.getppid()}-")
    elsewhere = tmp_path / ".00000000-1-0123.tmp"
    for folder in (living, elsewhere):
        folder.mkdir()
    with whole_files(tmp_path) as place:
        (place / "result").write_text("whole")
    assert sorted(tmp_path.iterdir()) == sorted([living, elsewhere, tmp_path / "result"])


def test_temporary_folder_of_long_ago_is_removed(tmp_path):
    old = tmp_path / ".00000000-1-0123.tmp"
    old.mkdir()
    os.utime(old, (0, 0))
    with whole_files(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []
