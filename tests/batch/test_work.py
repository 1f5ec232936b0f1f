"""The work on one pair: in this process or another, from files or from features."""

import errno
import pickle

import numpy as np
import pytest

from manymatch.batch.focals import FirstPass
from manymatch.batch.rows import AGAIN, PACKED
from manymatch.batch.views import ViewError
from manymatch.batch.work import PairWork
from manymatch.io.match_log import unpack_matches
from tests.support.small_batch import CONFIG, TIMING_COLUMNS

pytest.importorskip("cv2")


def again(value):
    """What another process would get."""
    return pickle.loads(pickle.dumps(value))  # noqa: S301


def untimed(row):
    return {name: value for name, value in row.items() if name not in TIMING_COLUMNS}


@pytest.mark.parametrize("keep", [False, True])
def test_everything_can_be_sent_to_other_processes(pairs, keep):
    here = PairWork(CONFIG, keep_matches=keep, with_rank_one=True)
    expected = here(3, pairs[3])
    assert (PACKED in expected) == keep
    there, elsewhere = again(here), again(here)
    assert "_matcher" in vars(here)
    assert "_matcher" not in vars(there)
    views = [
        again(there.extract(path, turns))
        for path, turns in ((pairs[3].path0, pairs[3].rot0), (pairs[3].path1, pairs[3].rot1))
    ]
    row = again(elsewhere.match(3, pairs[3], *views))
    assert untimed(row) == untimed(expected)


def test_threads_do_not_matter(pairs):
    one, two = (PairWork(CONFIG, threads=number) for number in (1, 2))
    assert untimed(one(0, pairs[0])) == untimed(two(0, pairs[0]))


def test_matches_come_with_the_row(pairs):
    row = PairWork(CONFIG, keep_matches=True)(0, pairs[0])
    found = unpack_matches(row[PACKED])
    assert len(found.matches) == row["matches"]
    assert len(found.keypoints0) == row["keypoints0"]
    assert found.confidence.mean() == pytest.approx(row["mean_probability"], rel=1e-6)
    np.testing.assert_array_equal(found.pose.t, [row["t0"], row["t1"], row["t2"]])


def test_a_second_pass_needs_little(pairs):
    work = PairWork(CONFIG, camera_per="all")
    rows = [work(index, pair) for index, pair in enumerate(pairs[:6])]
    first = FirstPass.of(enumerate(rows))
    part = again(first.only(4))
    assert list(part.rows) == [4]
    assert untimed(work(4, pairs[4], part)) == untimed(work(4, pairs[4], first))


@pytest.mark.parametrize(
    ("fault", "says", "repeated"),
    [
        (ValueError("path must be an image"), "path must be an image", False),
        (KeyError("x"), "KeyError: 'x'", False),
        (OSError(errno.EMFILE, "Too many open files"), "OSError: .*Too many open files", True),
        (MemoryError(), "MemoryError", True),
    ],
)
def test_an_image_without_features_is_said_in_the_rows_of_its_pairs(
    pairs, monkeypatch, fault, says, repeated
):
    def fail(*_):
        try:
            raise fault
        except OSError as error:
            raise ValueError(f"OSError: {error}") from error

    work = PairWork(CONFIG)
    whole = work.extract(pairs[0].path0, 0)
    monkeypatch.setattr("manymatch.batch.views.load_image", fail)
    view = work.extract(pairs[0].path1, 0)
    assert isinstance(view, ViewError)
    row = work.match(0, pairs[0], whole, again(view))
    assert row["verdict"] == "error"
    assert row.get(AGAIN, False) == repeated
    assert untimed(row) == untimed(work(0, pairs[0]))
    with pytest.raises(ValueError, match=f"^{says}$"):
        raise again(view)


def test_a_missing_package_ends_the_run(pairs, monkeypatch):
    def missing(*_):
        raise ModuleNotFoundError("no package")

    monkeypatch.setattr("manymatch.batch.views.load_image", missing)
    work = PairWork(CONFIG)
    for call in (lambda: work(0, pairs[0]), lambda: work.extract(pairs[0].path0, 0)):
        with pytest.raises(ModuleNotFoundError):
            call()
