"""Seven small images, all pairs of them, and a batch over these."""

import pytest

from manymatch.batch.batch import run_batch
from manymatch.io.pairs import exhaustive_pairs
from tests.support.small_batch import CONFIG
from tests.support.synthetic_images import make_images


@pytest.fixture(scope="session")
def images(tmp_path_factory):
    pytest.importorskip("cv2")
    folder = tmp_path_factory.mktemp("views")
    make_images(folder, 7)
    return folder


@pytest.fixture(scope="session")
def pairs(images):
    return exhaustive_pairs(images)


@pytest.fixture(scope="session")
def done(pairs, tmp_path_factory):
    """A run from beginning to end, in one thread: its folder and its summary."""
    folder = tmp_path_factory.mktemp("done")
    summary = run_batch(pairs, None, folder, CONFIG, workers=1, formats=["npz"])
    return folder, summary
