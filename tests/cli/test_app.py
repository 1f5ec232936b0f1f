"""The group of commands: listing, help, version, what it imports and how it ends."""

import importlib
import itertools
import os
import shutil
import subprocess
import sys
from importlib import metadata

import numpy as np
import pytest

from manymatch import _core
from manymatch.cli.app import COMMANDS, LAB_COMMANDS, SHELLS, module_name
from tests.support.command import one_sentence, run

MAIN = "from manymatch.cli.app import main; main()"


def test_version_and_libraries():
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
    module = importlib.import_module(module_name(command))
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


def test_listing_imports_no_command():
    names = imported("--help")
    assert not {module_name(command) for command in COMMANDS} & names
    assert not {"torch", "cv2", "matplotlib", "PIL"} & names


def test_command_imports_itself_only():
    names = imported("solve", "--help")
    others = {module_name(command) for command in COMMANDS if command != "solve"}
    assert not others & names
    assert not {"manymatch.batch", "manymatch.viz", "torch", "cv2"} & names


@pytest.mark.parametrize("start", [["-c", MAIN], ["-m", "manymatch"]])
def test_installed_entry_points_run(start):
    result = subprocess.run(  # noqa: S603 - fixed arguments
        [sys.executable, *start, "solve", "x.npz", "--camera0", "1,1,1,1", "--camera1", "x"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert "graph must be a file of candidates, got 'x.npz'" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["ma"], ["match"]),
        (["match", "--pre"], ["--preset"]),
        (["match", "a.jpg", "--preset", "em"], ["embedded"]),
        (["solve", "--method", "hcm"], ["hcm-mcm", "hcm"]),
        (["eval", "--roo"], ["--root"]),
        (["nonsense", "--x"], []),
    ],
)
def test_shell_completes_commands_options_and_values(words, expected):
    question = {
        "_MANYMATCH_COMPLETE": "complete_bash",
        "COMP_WORDS": "\n".join(["manymatch", *words]),
        "COMP_CWORD": str(len(words)),
    }
    done = subprocess.run(  # noqa: S603 - fixed arguments
        [sys.executable, "-c", MAIN],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **question},
    )
    assert (done.stdout.split(), done.stderr) == (expected, "")


@pytest.mark.parametrize("shell", SHELLS)
def test_script_of_a_shell(shell):
    script = run("--completion", shell).stdout
    assert f"_MANYMATCH_COMPLETE=complete_{shell}" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)  # noqa: S603


PHOTOS = ("a.jpg", "b.jpg", "c.jpg")
# What somebody may type in a folder with three photographs, a video and a list, and what they read.
TRIES = {
    "--completion tcsh": "--completion must be one of 'bash', 'zsh', 'fish', got 'tcsh'",
    "version": "got 'version', did you mean '--version'",
    "mach a.jpg b.jpg": "got 'mach', did you mean 'match'",
    "Match a.jpg b.jpg": "got 'Match', did you mean 'match'",
    "frobnicate": "got 'frobnicate'; see: manymatch --help",
    "help mach": "did you mean 'match'",
    "a.jpg b.jpg": "did you mean: manymatch match a.jpg b.jpg",
    "match": "image0 is missing: manymatch match IMAGE0 IMAGE1",
    "match a.jpg": "image1 is missing: manymatch match IMAGE0 IMAGE1",
    "match a.jpg b.jpg c.jpg": "got 'c.jpg' as well; all pairs of a folder",
    "match a.jpg B.JPG": "got 'B.JPG' (there is no such file), did you mean 'b.jpg'",
    "match aa.jpg b.jpg": "got 'aa.jpg' (there is no such file), did you mean 'a.jpg'",
    "match nowhere/a.jpg b.jpg": "image0 must be an image file, got 'nowhere/a.jpg' (there is no",
    "match . .": "image0 must be an image file, got the folder '.'",
    "match clip.mp4 a.jpg": "of a video, give two of its frames",
    "match photo.HEIC a.jpg": "HEIC needs another package: pip install pillow-heif; or ",
    "match list.txt a.jpg": "it is in no format that Pillow reads",
    "match a.jpg b.jpg --outt x": "match has no option --outt, did you mean '--out'",
    "match a.jpg b.jpg -o x": "match has no option -o; see: manymatch match --help",
    "match a.jpg b.jpg --formats h5": "did you mean '--format'",
    "match a.jpg b.jpg --format hdf5": "formats must be among npz, h5",
    "match a.jpg b.jpg --out": "'--out' requires an argument",
    "match a.jpg b.jpg --preset clasic": "got 'clasic', did you mean 'classic'",
    "match a.jpg b.jpg --max-keypoints many": "--max-keypoints must be a whole number, got 'many'",
    "align a.jpg b.jpg --k 1e3": "--k must be a whole number, got '1e3'",
    "match link.jpg b.jpg": "got 'link.jpg' (a link to nothing)",
    "match a.jpg b.jpg --set keypoints=3": "got 'keypoints=3', did you mean 'max_keypoints'",
    "batch": "pairs is missing: manymatch batch PAIRS",
    "batch a.jpg b.jpg": "several images are matched by their folder",
    "batch a.jpg": "got 'a.jpg'",
    "batch lists.txt": "did you mean 'list.txt'",
    "batch list.txt --images nowhere": "'nowhere'",
    "solve a.jpg b.jpg": "two images are matched by: manymatch match IMAGE0 IMAGE1",
    "solve lust.txt": "(there is no such file), did you mean 'list.txt'",
    "solve list.txt": "(it is something else)",
    "solve list.txt --problem homografy": "did you mean 'homography'",
    "demo a.jpg": "demo takes no argument, got 'a.jpg' as well",
    "demo --preset clasic": "did you mean 'classic'",
    "models get": "name is missing: manymatch models get NAME",
    "models embeded": "got 'embeded', did you mean 'embedded'",
}  # fmt: skip


@pytest.mark.parametrize("line", TRIES)
def test_mistake_is_one_sentence_with_a_suggestion(tmp_path, monkeypatch, line):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link.jpg").symlink_to("nowhere.jpg")
    monkeypatch.setattr(sys, "argv", ["manymatch", *line.split()])
    for name in PHOTOS:
        (tmp_path / name).write_bytes(b"\xff\xd8\xff not all of a photograph")
    for name in ("clip.mp4", "photo.HEIC"):
        (tmp_path / name).write_bytes(b"\0\0\0\x18ftyp")
    (tmp_path / "list.txt").write_text("a.jpg b.jpg\n")
    result = run(*line.split())
    sentence = one_sentence(result)
    assert TRIES[line] in sentence
    assert "manymatch: manymatch match" not in sentence
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("line", ["help", "help help", "--help", "-h"])
def test_ways_to_the_listing(line):
    result = run(*line.split())
    assert result.exit_code == 0
    assert all(name in result.stdout for name in COMMANDS)


@pytest.mark.parametrize("line", ["help match", "match --help", "match -h"])
def test_ways_to_the_help_of_a_command(line):
    result = run(*line.split())
    assert result.exit_code == 0
    assert "Example: manymatch match" in result.stdout
    assert "Exit codes: 0" in result.stdout


def test_listing_without_a_command():
    result = run()
    assert all(name in result.output for name in COMMANDS)
    assert "manymatch demo" in result.output
    assert run("-V").stdout == run("--version").stdout


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_are_no_error(closed):
    line = f'"$0" -c "{MAIN}" models --json {closed}'
    done = subprocess.run(["/bin/sh", "-c", line, sys.executable], capture_output=True, check=False)  # noqa: S603
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_warning_is_one_line_without_code():
    code = """
import warnings
from manymatch.cli import app
app.app = lambda **_: warnings.warn("the cache is full", stacklevel=1)
app.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stderr == "manymatch: the cache is full\n"


def test_name_that_is_not_utf8_can_be_printed(tmp_path):
    name = os.fsdecode(b"\xff.jpg")
    done = subprocess.run(  # noqa: S603 - fixed arguments
        [sys.executable, "-c", MAIN, "match", name, name],
        capture_output=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert done.stderr.startswith(b"manymatch: image0 must be an image file, got '\\udcff.jpg'")
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("name", LAB_COMMANDS)
def test_commands_of_the_lab_need_its_package(name, monkeypatch):
    assert run(name, "--help").exit_code == 0
    monkeypatch.setattr(metadata, "entry_points", lambda **_: ())
    sentence = one_sentence(run(name, "--help"))
    assert f"manymatch {name} needs the package manymatch-lab" in sentence
    assert "pip install ./lab" in sentence
    assert name in run("--help").stdout
