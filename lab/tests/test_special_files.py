"""What is no regular file is refused at once: a FIFO blocks whoever opens it."""

import os

import pytest

from manymatch_lab.datasets import _lists
from manymatch_lab.experiments import q2_scores


@pytest.mark.parametrize("kind", ["a FIFO", "a device"])
def test_what_may_never_end_is_refused(tmp_path, kind):
    path = tmp_path / "a.txt"
    if kind == "a FIFO":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(
        ValueError, match=f"^path must be a list of pairs, got .* \\(it is {kind}\\)$"
    ):
        _lists.source(1, path, "")
    # Times that are kept from an earlier run are measured again where they cannot be read.
    assert q2_scores._kept(path) is None
