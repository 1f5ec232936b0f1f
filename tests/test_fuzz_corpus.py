"""Inputs that the fuzzers keep, run again; those of the core are run by the core's tests."""

import pytest

from fuzz import targets


@pytest.mark.parametrize("name", targets.TARGETS)
def test_the_kept_inputs_of(name):
    files = sorted((targets.CORPUS / name).iterdir())
    assert files
    for file in files:
        targets.run(name, file.read_bytes())


@pytest.mark.parametrize("name", targets.FUNCTIONS)
def test_sound_arguments_are_accepted_by(name):
    """Otherwise a fuzzer would see nothing but refusals."""
    targets.FUNCTIONS[name](b"")


def test_a_target_that_crashes_or_speaks_in_two_lines_is_told(monkeypatch):
    def crash(_):
        raise KeyError("a")

    def two_lines(_):
        raise ValueError("a\nb")

    monkeypatch.setitem(targets.TARGETS, "crash", crash)
    monkeypatch.setitem(targets.TARGETS, "two lines", two_lines)
    with pytest.raises(KeyError):
        targets.run("crash", b"")
    with pytest.raises(AssertionError, match="one sentence"):
        targets.run("two lines", b"")
