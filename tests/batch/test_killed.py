"""A batch that is killed or interrupted at any moment goes on without loss or repetition."""

import itertools
import signal
import subprocess
import time

import numpy as np
import pytest

from manymatch import read_matches
from manymatch.batch.batch import run_batch
from manymatch.batch.merge import merge_batch
from manymatch.batch.runner import RunInterrupted
from manymatch.matcher.config import MatcherConfig
from manymatch_lab.datasets import read_pairs
from tests.support.importers import database_content
from tests.support.small_batch import HANGS_S, finished, rows, running, wait_for
from tests.support.synthetic_images import make_images

pytest.importorskip("cv2")
pytest.importorskip("PIL")
pytest.importorskip("pycolmap")
pytest.importorskip("pyarrow")
h5py = pytest.importorskip("h5py")

CONFIG = MatcherConfig.of("classic", max_keypoints=100, longest=160, max_iterations=1000)
SETTINGS = ["--preset", "classic", "--max-keypoints", "100", "--set", "longest=160"]
SETTINGS += ["--set", "max_iterations=1000", "--workers", "2"]
FORMATS = ["parquet", "npz", "h5", "colmap", "colmap-db"]
WITH_MATCHES = [*SETTINGS, "--format", ",".join(FORMATS)]
IMAGES = 30
PAIRS = 29


@pytest.fixture(scope="module")
def pair_list(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed")
    names = make_images(folder, IMAGES)
    path = folder / "pairs.txt"
    path.write_text("".join(f"{a} {b}\n" for a, b in itertools.pairwise(names)))
    return path


def in_one_go(pair_list, out):
    """Run what the command runs, without interruption, or to its end."""
    return run_batch(CONFIG, read_pairs(pair_list, pair_list.parent), out, formats=FORMATS)


@pytest.fixture(scope="module")
def whole(pair_list, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    assert in_one_go(pair_list, folder).computed == PAIRS
    return folder


def content(path):
    """All arrays of an .h5 file, by name."""
    found = {}
    with h5py.File(path) as file:
        file.visititems(
            lambda name, item: found.update({name: item[()].tolist()})
            if isinstance(item, h5py.Dataset)
            else None
        )
    assert found
    return found


def test_killed_again_and_again(pair_list, whole, tmp_path):
    rng = np.random.default_rng(1)
    kept = []
    # How many pairs are finished when it is killed; the last time by whatever moment it is then.
    for count in (1, *sorted(rng.integers(2, PAIRS // 2, 2)), 0):
        with running(pair_list, "--out", tmp_path, *WITH_MATCHES) as process:
            wait_for(process, tmp_path, count)
            time.sleep(rng.uniform(0.0, 0.05))
            process.send_signal(signal.SIGKILL)
            process.wait()
        now = finished(tmp_path)
        assert now[: len(kept)] == kept
        assert len(set(now)) == len(now) >= count
        kept = now
    assert len(kept) < PAIRS
    assert not (tmp_path / "pairs.csv").exists()
    summary = in_one_go(pair_list, tmp_path)
    assert summary.computed == PAIRS - len(kept)
    assert finished(tmp_path)[: len(kept)] == kept
    assert sorted(finished(tmp_path)) == list(range(PAIRS))
    assert rows(tmp_path) == rows(whole)
    names = [path.name for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(names) == sorted(path.name for path in whole.rglob("*") if path.is_file())
    for folder in ("matches", "colmap"):
        for path in (whole / folder).iterdir():
            assert path.read_bytes() == (tmp_path / folder / path.name).read_bytes()
    for name in ("matches.parquet", "keypoints.parquet"):
        assert (tmp_path / name).read_bytes() == (whole / name).read_bytes()
    for name in ("features.h5", "matches.h5"):
        assert content(tmp_path / name) == content(whole / name)
    database = database_content(tmp_path / "database.db")
    assert len(database) == IMAGES + PAIRS
    assert database == database_content(whole / "database.db")


def test_a_killed_shard(pair_list, whole, tmp_path):
    """It is joined as it is, goes on with the same command, and is joined again."""
    arguments = (pair_list, "--out", tmp_path, *WITH_MATCHES)
    with running(*arguments, "--shard", "2/2") as process:
        wait_for(process, tmp_path / "shards" / "2-of-2", 3)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert 3 <= merge_batch(tmp_path).finished < PAIRS // 2
    for shard in ("1/2", "2/2"):
        with running(*arguments, "--shard", shard) as process:
            assert process.wait(timeout=HANGS_S) == 0
    assert merge_batch(tmp_path, formats=FORMATS).finished == PAIRS
    assert rows(tmp_path) == rows(whole)
    assert database_content(tmp_path / "database.db") == database_content(whole / "database.db")


def test_ctrl_c_keeps_what_is_finished(pair_list, whole, tmp_path):
    with running(pair_list, "--out", tmp_path, *WITH_MATCHES) as process:
        wait_for(process, tmp_path, 5)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=HANGS_S)
    count = len(finished(tmp_path))
    assert 5 <= count < PAIRS
    assert process.returncode == 130
    assert f"{count} of {PAIRS} pairs finished; the same command continues" in errors
    assert "Traceback" not in errors
    assert f"{count} of {PAIRS} pairs in" in output
    assert len(rows(tmp_path)) == count
    assert in_one_go(pair_list, tmp_path).computed == PAIRS - count
    assert rows(tmp_path) == rows(whole)


def test_ctrl_c_does_not_wait_for_an_endless_pair(pair_list, tmp_path):
    """Two pairs end at once, the others would take hours."""
    from PIL import Image

    Image.new("L", (1, 1)).save(tmp_path / "dot.png")
    folder = pair_list.parent
    (tmp_path / "list.txt").write_text(
        f"dot.png dot.png\n{folder}/view000.png dot.png\n"
        f"{folder}/view000.png {folder}/view001.png\n{folder}/view001.png {folder}/view002.png\n"
    )
    endless = ["--set", "min_iterations=2147483647", "--set", "max_iterations=2147483647"]
    out = tmp_path / "out"
    arguments = [tmp_path / "list.txt", "--out", out, *SETTINGS, *endless]
    with running(*arguments) as process:
        wait_for(process, out, 2)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.5)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=HANGS_S)
    assert process.returncode == 130
    assert "2 of 4 pairs finished" in errors
    assert "2 failed" in output
    assert [row["verdict"] for row in rows(out)] == ["failed", "failed"]


def test_the_library_raises_with_a_summary(pair_list, whole, tmp_path):
    pairs = read_pairs(pair_list, pair_list.parent)
    before = signal.getsignal(signal.SIGINT)
    pressed = []

    def press(progress):
        if progress.finished >= 3 and not pressed:
            pressed.append(progress.finished)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as caught:
        run_batch(CONFIG, pairs, tmp_path, workers=1, formats=FORMATS, progress=press)
    assert not (tmp_path / "matches.h5").exists()
    with read_matches(tmp_path) as store:
        assert len(store) == caught.value.result.finished
    assert isinstance(caught.value, RunInterrupted)
    summary = caught.value.result
    assert summary.interrupted
    assert pressed[0] <= summary.finished == len(rows(tmp_path)) < PAIRS
    assert signal.getsignal(signal.SIGINT) is before
    in_one_go(pair_list, tmp_path)
    assert rows(tmp_path) == rows(whole)


def test_a_second_ctrl_c_is_as_usual(pair_list, tmp_path):
    """Whoever presses twice does not want to wait, and loses nothing but the tables."""
    pairs = read_pairs(pair_list, pair_list.parent)

    def press(progress):
        if progress.finished >= 3:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as caught:
        run_batch(CONFIG, pairs, tmp_path, workers=2, progress=press)
    assert not isinstance(caught.value, RunInterrupted)
    assert 3 <= len(finished(tmp_path)) < PAIRS
    assert not (tmp_path / "pairs.csv").exists()
