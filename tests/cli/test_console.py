"""How commands end and how they show progress."""

import pytest
import typer

from manymatch.batch.parts import RunInterrupted, RunProgress
from manymatch.cli.console import Tracker, clean_exit, deliver, print_plain


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (ValueError("k must be\n  3"), 2, "manymatch: k must be 3\n"),
        (FileNotFoundError("a.jpg"), 2, "a.jpg"),
        (ModuleNotFoundError("torch is missing"), 2, "torch is missing"),
        (KeyboardInterrupt(), 130, "stopped."),
        (RunInterrupted(3, 9), 130, "3 of 9 pairs"),
    ],
)
def test_errors_are_one_line_and_an_exit_code(capsys, error, code, says):
    with pytest.raises(typer.Exit) as end, clean_exit():
        raise error
    assert end.value.exit_code == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert says in captured.err
    assert captured.err.count("\n") == 1


def test_hidden_memory_error_is_one_line(capsys):
    with pytest.raises(typer.Exit) as end, clean_exit():
        raise SystemError("a result with an exception set") from MemoryError()
    assert end.value.exit_code == 2
    assert capsys.readouterr().err.startswith("manymatch: there is not enough memory")


@pytest.mark.parametrize("error", [RuntimeError, TypeError, KeyError, SystemError])
def test_programming_error_is_not_hidden(error):
    with pytest.raises(error), clean_exit():
        raise error("broken")


def test_progress_without_a_terminal(capsys):
    with Tracker() as tracker:
        for finished in (0, 1, 2, 3):
            left = 3700.0 * (3 - finished) or None
            tracker(RunProgress(finished, 3, {"solved": finished, "failed": 0}, left, "set"))
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "0 of 3 pairs (set): 3 h 05 min left",
        "3 of 3 pairs (set): 3 solved, done",
    ]


@pytest.mark.parametrize("record", [None, {"verdict": "solved"}])
def test_people_see_a_result_before_its_files_are_written(capsys, tmp_path, record):
    seen = []

    def write():
        seen.append(capsys.readouterr().out)
        return {"report": tmp_path / "report.html"}

    with pytest.raises(typer.Exit) as end:
        deliver(write, lambda: print_plain("solved"), record, success=True)
    assert end.value.exit_code == 0
    assert seen == ["solved\n" if record is None else ""]
    assert str(tmp_path / "report.html") in capsys.readouterr().out
