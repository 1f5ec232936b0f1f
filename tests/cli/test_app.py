"""The group of commands: listing, help, version, what it imports and how it ends."""

import importlib
import itertools
import subprocess
import sys

import numpy as np
import pytest

from manymatch import _core
from manymatch.cli.app import COMMANDS
from tests.support.command import run

MAIN = "from manymatch.cli.app import main; main()"


def test_version_and_what_it_runs_on():
    plain, verbose = run("--version"), run("--version", "--verbose")
    assert plain.exit_code == verbose.exit_code == 0
    assert len(plain.stdout.splitlines()) == 1
    assert plain.stdout.startswith("manymatch ")
    for part in (np.__version__, _core.instruction_set(), "cores "):
        assert part in verbose.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command(command):
    result = run(command, "--help")
    assert result.exit_code == 0
    # The listing is made without importing the module.
    module = importlib.import_module(f"manymatch.cli.{command}")
    assert module.run.__doc__.splitlines()[0] == COMMANDS[command]
    # Paragraphs are filled: a line ends where the next word would not fit.
    lines = result.stdout.partition("╭")[0].splitlines()
    for line, after in itertools.pairwise(map(str.strip, lines)):
        if line and after and not line.startswith("Usage"):
            assert len(f"{line} {after.split()[0]}") > 78


def imported(*arguments):
    code = (
        f"import sys; sys.argv[1:] = {list(arguments)}\n"
        f"try:\n    {MAIN}\nexcept SystemExit:\n    print('loaded', *sys.modules)"
    )
    done = subprocess.run(  # noqa: S603 - fixed arguments
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert all(name in done.stdout for name in COMMANDS) or arguments != ("--help",)
    return set(done.stdout.split("loaded ")[-1].split())


def test_no_command_is_imported_for_the_listing():
    names = imported("--help")
    assert not {f"manymatch.cli.{command}" for command in COMMANDS} & names
    assert not {"torch", "cv2", "matplotlib", "PIL"} & names


def test_a_command_imports_itself_only():
    names = imported("solve", "--help")
    others = {f"manymatch.cli.{command}" for command in COMMANDS if command != "solve"}
    assert not others & names
    assert not {"manymatch.runs", "manymatch.viz", "torch", "cv2"} & names


def test_an_unknown_command_or_flag_is_bad_input():
    assert run("mach").exit_code == 2
    result = run("solve", "--no-such-flag")
    assert result.exit_code == 2
    assert "no-such-flag" in result.stderr


def test_the_installed_entry_point_runs():
    result = subprocess.run(  # noqa: S603 - fixed arguments
        [sys.executable, "-c", MAIN, "solve", "x.npz", "--camera0", "1,1,1,1", "--camera1", "x"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert "camera1 must be" in result.stderr
    assert "Traceback" not in result.stderr
