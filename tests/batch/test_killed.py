"""A batch that is killed, interrupted, run twice at once or in shards has the bytes of one run."""

import itertools
import shutil
import signal
import subprocess
import threading
import time

import numpy as np
import pytest

from manymatch import read_matches
from manymatch.batch.batch import run_batch
from manymatch.batch.parts import RunInterrupted
from manymatch.matcher.config import MatcherConfig
from tests.support.pair_matches import same
from tests.support.small_batch import HANGS_S, assert_same, finished, rows, running, wait_for
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
IMAGES, PAIRS, BLOCK, BLOCKS = 30, 29, 2, 15


@pytest.fixture(scope="module")
def pair_list(tmp_path_factory):
    path = tmp_path_factory.mktemp("killed") / "pairs.txt"
    names = make_images(path.parent, IMAGES)
    path.write_text("".join(f"{a} {b}\n" for a, b in itertools.pairwise(names)))
    return path


def in_one_go(pair_list, out, **settings):
    """Run what the command runs, without interruption, or to its end."""
    settings = {"formats": FORMATS, "block": BLOCK, **settings}
    return run_batch(pair_list, None, out, CONFIG, **settings)


@pytest.fixture(scope="module")
def whole(pair_list, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    assert in_one_go(pair_list, folder).computed == PAIRS
    assert finished(folder) == list(range(BLOCKS))
    return folder


def killed(pair_list, out, count, *more, delay=0.0):
    """Run the command until this number of blocks is there, and kill it a moment later."""
    with running(pair_list, "--out", out, "--block", BLOCK, *WITH_MATCHES, *more) as process:
        wait_for(process, out, count)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.wait()
    return finished(out)


def check_kills(pair_list, whole, out, counts):
    rng = np.random.default_rng(1)
    kept = []
    for count in counts:
        now = killed(pair_list, out, count, delay=rng.uniform(0.0, 0.05))
        assert set(now) >= set(kept)
        assert len(now) >= min(count, BLOCKS)
        kept = now
    parts = [out / "parts" / f"{block:06d}.parquet" for block in kept]
    before = [part.stat().st_mtime_ns for part in parts]
    summary = in_one_go(pair_list, out)
    assert summary.computed <= PAIRS - BLOCK * (len(kept) - 1)
    # Finished parts are not computed again.
    assert [part.stat().st_mtime_ns for part in parts] == before
    assert_same(out, whole)


def test_killed_and_resumed_gives_the_same_bytes(pair_list, whole, tmp_path):
    check_kills(pair_list, whole, tmp_path, (0, 1, 6, 0))


@pytest.mark.nightly
def test_killed_at_many_moments(pair_list, whole, tmp_path):
    """Twenty kills: while it starts, in the middle of blocks, and while it writes the files."""
    for repeat in range(4):
        counts = np.random.default_rng(repeat).integers(0, BLOCKS + 1, 5)
        check_kills(pair_list, whole, tmp_path / str(repeat), sorted(counts.tolist()))


def test_two_processes_in_one_folder_do_no_harm(pair_list, whole, tmp_path):
    arguments = (pair_list, "--out", tmp_path, "--block", BLOCK, *WITH_MATCHES)
    with running(*arguments) as first, running(*arguments) as second:
        for process in (first, second):
            assert process.wait(timeout=HANGS_S) == 0, process.stderr.read()
    assert_same(tmp_path, whole)


def test_shards_are_joined_by_copying(pair_list, whole, tmp_path):
    """Machines that never talk: each has a folder of its own, one of them is killed once."""
    joined = tmp_path / "joined"
    for number in (2, 3, 1):
        out = tmp_path / str(number)
        if number == 3:
            killed(pair_list, out, 2, "--shard", "3/3")
        summary = in_one_go(pair_list, out, shard=f"{number}/3")
        assert finished(out) == list(range(number - 1, BLOCKS, 3))
        assert summary.finished == summary.total == (10 if number < 3 else 9)
        assert any("when the parts of all shards are in one folder" in n for n in summary.notes)
        assert not (out / "database.db").exists()
        shutil.copytree(out, joined, dirs_exist_ok=True)
    summary = in_one_go(pair_list, joined)
    assert (summary.computed, summary.finished) == (0, PAIRS)
    assert_same(joined, whole)


def test_shards_in_one_folder_need_no_joining(pair_list, whole, tmp_path):
    for number in (1, 2):
        in_one_go(pair_list, tmp_path, shard=f"{number}/2")
    assert_same(tmp_path, whole)


def test_matches_are_read_while_it_runs(pair_list, whole, tmp_path):
    with read_matches(whole) as expected:
        seen = []

        def look(progress):
            if progress.finished:
                with read_matches(tmp_path) as store:
                    seen.append(len(store))
                    index = next(iter(store))
                    same(store[index], expected[index])

        in_one_go(pair_list, tmp_path, progress=look, workers=1)
    assert seen[0] == BLOCK
    assert seen[-1] == PAIRS
    assert seen == sorted(seen)


def test_ctrl_c_keeps_what_is_finished(pair_list, whole, tmp_path):
    with running(pair_list, "--out", tmp_path, "--block", BLOCK, *WITH_MATCHES) as process:
        wait_for(process, tmp_path, 3)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=HANGS_S)
    count = len(rows(tmp_path))
    assert BLOCK * 3 <= count < PAIRS
    assert process.returncode == 130
    assert f"{count} of {PAIRS} pairs finished; the same command continues" in errors
    assert "Traceback" not in errors
    assert f"{count} of {PAIRS} pairs in" in output
    assert in_one_go(pair_list, tmp_path).computed == PAIRS - count
    assert_same(tmp_path, whole)


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
    with running(tmp_path / "list.txt", "--out", out, *SETTINGS, *endless) as process:
        wait_for(process, out, 2)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.5)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=HANGS_S)
    assert process.returncode == 130
    assert "2 of 4 pairs finished" in errors
    assert "2 failed" in output
    assert [row["verdict"] for row in rows(out)] == ["failed", "failed"]


def test_library_raises_with_a_summary(pair_list, whole, tmp_path):
    before = signal.getsignal(signal.SIGINT)
    pressed = []

    def press(progress):
        if progress.finished >= 3 and not pressed:
            pressed.append(progress.finished)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(RunInterrupted) as caught:
        in_one_go(pair_list, tmp_path, workers=1, progress=press)
    summary = caught.value.result
    assert not (tmp_path / "matches.h5").exists()
    with read_matches(tmp_path) as store:
        assert len(store) == summary.finished
    assert summary.interrupted
    assert pressed[0] <= summary.finished == len(rows(tmp_path)) < PAIRS
    assert signal.getsignal(signal.SIGINT) is before
    assert not [t for t in threading.enumerate() if t.name.startswith("manymatch") and t.is_alive()]
    in_one_go(pair_list, tmp_path)
    assert_same(tmp_path, whole)


def test_second_ctrl_c_is_as_usual(pair_list, tmp_path):
    """Whoever presses twice does not want to wait, and loses nothing but the tables."""

    def press(progress):
        if progress.finished >= 3:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as caught:
        in_one_go(pair_list, tmp_path, workers=2, progress=press)
    assert not isinstance(caught.value, RunInterrupted)
    assert 2 <= len(finished(tmp_path)) < BLOCKS
    assert not (tmp_path / "pairs.csv").exists()


@pytest.mark.parametrize("pause", [0.0, 0.03, 0.3])
def test_five_ctrl_c_are_one_sentence(pair_list, tmp_path, pause):
    with running(pair_list, "--out", tmp_path, "--block", BLOCK, *WITH_MATCHES) as process:
        wait_for(process, tmp_path, 3)
        for _ in range(5):
            process.send_signal(signal.SIGINT)
            time.sleep(pause)
        _, errors = process.communicate(timeout=HANGS_S)
    assert process.returncode == 130
    said = [line for line in errors.splitlines() if "pairs: " not in line]
    assert len(said) == 1, errors
    assert said[0].startswith("manymatch: stopped")
