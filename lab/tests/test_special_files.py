"""Special files are refused at once: opening a FIFO would block."""

import os

import pytest

from manymatch_lab.datasets.loading import list_note


@pytest.mark.parametrize("kind", ["a FIFO", "a device"])
def test_special_files_are_refused(tmp_path, kind):
    path = tmp_path / "a.txt"
    if kind == "a FIFO":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(
        ValueError, match=f"^path must be a list of pairs, got .* \\(it is {kind}\\)$"
    ):
        list_note(1, path, "")
