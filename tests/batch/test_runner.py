"""The runner: what is missing, order, several journals, errors, interruption, progress."""

import contextlib
import os
import signal
import threading

import pytest
import threadpoolctl

from manymatch.associate import neighbours
from manymatch.batch.journal import Journal
from manymatch.batch.runner import Run, RunInterrupted, error_sentence, num_pairs, num_workers
from manymatch.options import num_threads, usable_cores


@pytest.fixture
def journals(tmp_path):
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(Journal(tmp_path / name, {"name": name})) for name in "ab"}


def square(index, names):
    return {name: {"index": index, "value": f"{name}{index * index}"} for name in names}


def values(journal):
    return {record["index"]: record["value"] for record in journal.records()}


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_every_journal_gets_every_pair(journals, workers):
    run = Run(journals, 20)
    run.execute(square, workers=workers)
    assert run.computed == run.finished == 20
    for name, journal in journals.items():
        assert values(journal) == {i: f"{name}{i * i}" for i in range(20)}


@pytest.mark.parametrize(("workers", "share"), [(1, 8), (3, 2), (20, 1)])
def test_workers_share_the_cores(journals, monkeypatch, workers, share):
    """Threads that a worker starts itself: of the association, of an estimator with threads=0."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8), raising=False)
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    started = set()

    def work(index, names):
        started.update((neighbours._num_threads(), num_threads(0)))
        return square(index, names)

    Run(journals, 30).execute(work, workers=workers)
    assert started == {share}
    assert num_threads(0) == 8


def test_only_what_is_missing_is_computed(journals):
    journals["a"].append([{"index": i, "value": "old"} for i in (0, 2, 9)])
    journals["b"].append([{"index": i, "value": "old"} for i in (1, 2)])
    asked = []

    def work(index, names):
        asked.append((index, tuple(names)))
        return square(index, names)

    run = Run(journals, 4)
    assert run.missing.tolist() == [0, 1, 3]
    assert run.finished == 1
    run.execute(work)
    assert asked == [(0, ("b",)), (1, ("a",)), (3, ("a", "b"))]
    assert values(journals["a"]) == {0: "old", 1: "a1", 2: "old", 3: "a9", 9: "old"}
    assert Run(journals, 4).missing.size == 0


def test_order_and_repetition(journals):
    one = {"a": journals["a"]}
    one["a"].append([{"index": 0, "value": "bad"}, {"index": 1, "value": "good"}])
    asked = []
    run = Run(one, 4, repeat=lambda record: record["value"] == "bad")
    run.execute(
        lambda index, names: asked.append(index) or square(index, names),
        order=lambda: range(9, -1, -1),
    )
    assert asked == [3, 2, 0]
    assert values(one["a"]) == {0: "a0", 1: "good", 2: "a4", 3: "a9"}


def test_progress_counts_the_first_journal(journals):
    journals["a"].append([{"index": 3, "value": "even"}])
    seen = []
    run = Run(
        journals,
        4,
        category=lambda record: record["value"],
        categories=("even", "odd", "none"),
        label="label",
    )
    run.execute(
        lambda index, names: {
            name: {"index": index, "value": "odd" if index % 2 else "even"} for name in names
        },
        progress=seen.append,
    )
    assert (seen[0].finished, seen[0].seconds_left, seen[0].label) == (0, None, "label")
    assert seen[0].counts == {"even": 1, "odd": 0, "none": 0}
    assert (seen[-1].finished, seen[-1].total) == (4, 4)
    assert seen[-1].counts == run.counts == {"even": 3, "odd": 1, "none": 0}
    assert seen[-1].seconds_left == 0


def test_an_error_ends_the_run_after_what_was_finished(journals):
    def work(index, names):
        if index == 3:
            raise OSError(28, "No space left on device")
        return square(index, names)

    with pytest.raises(OSError, match="No space left"):
        Run(journals, 100).execute(work)
    assert sorted(values(journals["a"])) == [0, 1, 2]


def test_interruption_keeps_what_is_finished(journals):
    before = signal.getsignal(signal.SIGINT)
    release = threading.Event()

    def work(index, names):
        if index >= 2:
            release.wait()
        return square(index, names)

    def press(progress):
        if progress.finished == 2:
            signal.raise_signal(signal.SIGINT)

    run = Run(journals, 50)
    run.execute(work, progress=press)
    assert run.interrupted
    assert run.busy
    release.set()
    with pytest.raises(RunInterrupted) as caught:
        run.deliver("result")
    stop = caught.value
    assert (stop.finished, stop.total, stop.busy, stop.result) == (2, 50, True, "result")
    assert sorted(values(journals["a"])) == [0, 1]
    assert signal.getsignal(signal.SIGINT) is before


def test_settings():
    assert num_pairs(5, None) == num_pairs(5, 9) == 5
    assert num_pairs(5, 2) == 2
    assert num_workers(3) == 3
    assert num_workers(0) >= 1
    with pytest.raises(ValueError, match="limit must be"):
        num_pairs(5, 0)
    with pytest.raises(ValueError, match="workers must be"):
        num_workers(-1)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ValueError("a\n  b"), "a b"),
        (ValueError(), "ValueError"),
        (KeyError("k"), "KeyError: 'k'"),
        (ZeroDivisionError(), "ZeroDivisionError"),
    ],
)
def test_errors_of_a_pair_are_one_line(error, says):
    assert error_sentence(error) == says


def test_a_journal_that_cannot_be_written_ends_the_run(journals, monkeypatch):
    before = signal.getsignal(signal.SIGINT)

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(journals["b"], "append", full)
    with pytest.raises(OSError, match="No space left"):
        Run(journals, 30).execute(square, workers=3)
    assert signal.getsignal(signal.SIGINT) is before
    # What only one journal has is computed again for the other.
    monkeypatch.undo()
    run = Run(journals, 30)
    assert len(run.missing) == 30
    run.execute(square)
    assert sorted(values(journals["b"])) == list(range(30))


def test_products_share_the_cores_with_other_workers(tmp_path):
    """And have all threads back afterwards."""

    def threads():
        return [pool["num_threads"] for pool in threadpoolctl.threadpool_info() if blas(pool)]

    def blas(pool):
        return pool["user_api"] == "blas"

    before, during = threads(), []

    def work(index, _):
        during.append(threads())
        return {"a": {"index": index}}

    with Journal(tmp_path, {}) as journal:
        Run({"a": journal}, 3).execute(work, workers=2)
    share = max(1, usable_cores() // 2)
    assert before
    assert during == 3 * [[min(share, most) for most in before]]
    assert threads() == before
