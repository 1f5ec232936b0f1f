"""Every command in the documentation exists, with the flags and arguments that it is shown with."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from manymatch.cli.app import app

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md")])
# What every wrong use raises; Typer names only one of its children.
_WRONG = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "UsageError")
# Words of a shell behind which another command begins.
_ENDS = {"|", "||", "&&", ";", ">", ">>", "2>&1"}


def commands(text):
    """Commands of a page, each as its words: lines of code blocks, and code within sentences."""
    blocks = re.findall(r"^```.*?\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    outside = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"`(manymatch(?:-paper)? [^`]+)`", outside)
    lines += [" ".join(code.split()) for code in found]
    for line in lines:
        # Wherever it is installed.
        match = re.match(r"(?:\$ )?(?:\S*/)?(manymatch(?:-paper)?) (.+)", line)
        if match:
            words = shlex.split(match[2], comments=True)
            end = next((i for i, word in enumerate(words) if word in _ENDS), len(words))
            yield [match[1], *words[:end]]


def shown():
    for page in PAGES:
        for words in commands(page.read_text(encoding="utf-8")):
            # NAME stands for any command, and "..." for any words.
            if not words[1].isupper():
                text = re.sub(r"(--\S+ )?\.\.\.", "", shlex.join(words))
                yield pytest.param(shlex.split(text), id=f"{page.stem}: {' '.join(words)}")


def parse(words):
    """Parse a command without running it."""
    name, *rest = words
    group = app
    if name == "manymatch-paper":
        group = pytest.importorskip("manymatch_paper.command").app
    command = typer.main.get_command(group)
    with command.make_context(name, ["--version"], resilient_parsing=True) as context:
        if rest[0].startswith("-"):
            command.parse_args(context, list(rest))
            return
        word, chosen, arguments = command.resolve_command(context, rest)
        assert chosen is not None, f"there is no command {rest[0]}"
        try:
            chosen.make_context(word, list(arguments))
        except typer.BadParameter:
            # The name of a command alone, within a sentence, lacks its arguments.
            if arguments:
                raise
        except typer.Exit:
            # --help
            pass


@pytest.mark.parametrize("words", list(shown()))
def test_a_command_exists_with_its_flags(words):
    parse(words)


@pytest.mark.parametrize(
    "line",
    [
        "manymatch evaluate synthetic:easy",
        "manymatch eval synthetic:easy --no-such-flag",
        "manymatch eval synthetic:easy --seeds many",
        "manymatch compare one two three",
        "manymatch-paper q2 synthetic:easy --iterations 5",
    ],
)
def test_a_wrong_command_is_found(line):
    (words,) = commands(f"text\n```sh\n$ {line}   # why\n```\n")
    with pytest.raises((_WRONG, AssertionError)):
        parse(words)


def test_commands_are_found_in_blocks_and_sentences():
    text = "See `manymatch demo` and:\n```sh\nenv/bin/manymatch match a b \\\n  --k 3 | less\n```\n"
    assert list(commands(text)) == [
        ["manymatch", "match", "a", "b", "--k", "3"],
        ["manymatch", "demo"],
    ]
