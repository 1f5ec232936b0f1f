"""The documentation: its commands, code, links and words.

Every command exists, with the flags and arguments that it is shown with; README's Python runs after
every install line; links lead somewhere; abbreviations are spelled out where they first occur.
"""

import ast
import inspect
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import typer

import manymatch
from manymatch.cli.app import app
from manymatch_lab.datasets.synthetic import EASY, make_scene

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
README = (ROOT / "README.md").read_text(encoding="utf-8")

ABBREVIATIONS = {
    "HCM": "harmonic consensus maximization",
    "MCM": "matching cardinality maximization",
    "CM": "consensus maximization",
    "GMS": "grid-based motion statistics",
}
# Each says something else than it seems to, or is not the usual word for it.
BANNED = (
    r"go(es)? on\b(?! the)", r"at hand", r"doors?\b", r"houses?\b", r"hop by hop",
    r"so many words", r"nothing but time", r"made (scene|pair|graph|image|street)s?\b",
    r"whoever", r"whatever holds", r"thinks? it may",
)  # fmt: skip
# What every wrong use raises; Typer names only one of its children.
_WRONG = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "UsageError")
# Words of a shell behind which another command begins.
_ENDS = {"|", "||", "&&", ";", ">", ">>", "2>&1"}


def commands(text):
    """Commands of a page, each as its words: lines of code blocks, and code within sentences."""
    blocks = re.findall(r"^```.*?\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    outside = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"`(manymatch(?:-lab)? [^`]+)`", outside)
    lines += [" ".join(code.split()) for code in found]
    for line in lines:
        # Wherever it is installed.
        match = re.match(r"(?:\$ )?(?:\S*/)?(manymatch(?:-lab)?) (.+)", line)
        if match:
            words = shlex.split(match[2], comments=True)
            end = next((i for i, word in enumerate(words) if word in _ENDS), len(words))
            yield [match[1], *words[:end]]


def shown():
    # The changelog also names commands of earlier versions.
    for page in (page for page in PAGES if page.stem != "CHANGELOG"):
        for words in commands(page.read_text(encoding="utf-8")):
            # NAME stands for any command, and "..." for any words.
            if not words[1].isupper():
                text = re.sub(r"(--\S+ )?\.\.\.", "", shlex.join(words))
                yield pytest.param(shlex.split(text), id=f"{page.stem}: {' '.join(words)}")


def parse(words):
    name, *rest = words
    group = app
    if name == "manymatch-lab":
        group = pytest.importorskip("manymatch_lab.command").app
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
        "manymatch-lab q2 synthetic:easy --iterations 5",
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


def texts():
    """Yield what a reader of the documentation sees, by name: pages, help texts and docstrings."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        # Released sections of the changelog stay as they are.
        yield page.name, "\n## ".join(text.split("\n## ")[:2]) if page.stem == "CHANGELOG" else text
    groups = {"manymatch": app}
    with_lab = pytest.importorskip("manymatch_lab.command", reason="lab/ is not installed")
    groups["manymatch-lab"] = with_lab.app
    for program, group in groups.items():
        command = typer.main.get_command(group)
        with command.make_context(program, ["--version"], resilient_parsing=True) as context:
            for name in command.list_commands(context):
                one = command.get_command(context, name)
                one = one.get_command(context, name) if hasattr(one, "get_command") else one
                parts = [one.help or "", *(getattr(p, "help", None) or "" for p in one.params)]
                yield f"{program} {name} --help", "\n\n".join(parts)
    for name in manymatch.__all__:
        thing = getattr(manymatch, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            yield f"docstring of {name}", inspect.getdoc(thing) or ""


def prose(text):
    text = re.sub(r"^```.*?^```|^#.*?$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^( *)>>>.*?$", "", text, flags=re.MULTILINE)
    return re.sub(r"``.*?``|`[^`]*`|\"[a-z-]+\"", "", text)


def unexplained(text):
    """Abbreviations that are not spelled out in or before the paragraph of their first use."""
    text = prose(text)
    missing = []
    for short, meaning in ABBREVIATIONS.items():
        first = re.search(rf"(?<![\w-]){short}(?![\w-])", text)
        if first is None:
            continue
        end = text.find("\n\n", first.start())
        seen = " ".join(text[: end if end >= 0 else len(text)].split()).lower()
        if not re.search(rf"(?<!harmonic ){meaning}", seen):
            missing.append(short)
    return missing


def strange(text):
    """Words and phrases that plain English would not use."""
    return [found[0] for word in BANNED for found in re.finditer(rf"(?i)\b{word}", prose(text))]


def test_abbreviations_are_spelled_out_where_they_first_occur():
    missing = {name: unexplained(text) for name, text in texts()}
    assert {name: found for name, found in missing.items() if found} == {}


def test_words_are_plain():
    found = {name: strange(text) for name, text in texts()}
    assert {name: words for name, words in found.items() if words} == {}


def test_an_unexplained_abbreviation_and_a_strange_word_are_found():
    late = "The CM score.\n\nCM is consensus maximization.\n"
    assert unexplained(late) == ["CM"]
    assert unexplained("Harmonic consensus maximization (HCM), not CM.") == ["CM"]
    assert unexplained("# CM\n\n`GMS` and consensus maximization (CM) are\nhere. CM.") == []
    assert strange("A run goes on at\nthe door. `goes on`") == ["goes on", "door"]


def links(page):
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"\]\((?!https?:)([^)\s]+)\)", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        if anchor:
            heads = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            names = [re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads]
            assert anchor in names, link


def test_install_lines_and_table_name_the_extras():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    lines = re.findall(r"pip install \"?\.\[?([\w,]*)\]?\"?", README)
    assert len(lines) >= 3
    assert "" in lines
    assert {extra for line in lines for extra in line.split(",") if extra} <= set(extras)
    for name in project["dependencies"]:
        package = re.match(r"[\w-]+", name)[0]
        assert package in README.lower(), f"README does not say that {package} is installed"
    table = README.split("| extra | brings | for |\n|---|---|---|\n")[1].split("\n\n")[0]
    rows = {}
    for line in table.splitlines():
        names, brings, _ = line.strip("|").split("|")[:3]
        rows |= dict.fromkeys(re.findall(r"`(\w+)`", names), brings.lower())
    assert set(rows) == set(extras)
    for extra in set(extras) - {"all"}:
        for requirement in extras[extra]:
            name = re.match(r"manymatch\[(.*)\]|(?:opencv)?[a-z-]*", requirement)
            known = "weights" if "==" in requirement and extra == "features" else None
            assert (known or name[1] or name[0].removesuffix("-python-headless")) in rows[extra]


def test_images_brings_the_packages_of_every_format():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = extras["optional-dependencies"]
    names = {re.match(r"[\w-]+", requirement)[0] for requirement in extras["images"]}
    for narrow in ("io", "tables", "colmap"):
        assert {re.match(r"[\w-]+", requirement)[0] for requirement in extras[narrow]} <= names


def python_blocks(text):
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_of_a_page_parses(page):
    for block in python_blocks(page.read_text(encoding="utf-8")):
        ast.parse(block)


def test_estimator_lines_of_readme_run():
    scene = make_scene(EASY, seed=1)
    names = {
        "mm": manymatch, "points0": scene.graph.points0, "points1": scene.graph.points1,
        "edges": scene.graph.edges, "rank": scene.graph.rank,
        "K0": scene.camera0.K, "K1": scene.camera1.K,
    }  # fmt: skip
    exec(python_blocks(README)[1], names)  # noqa: S102 - what README tells readers to run
    pose = names["estimate"].pose
    assert manymatch.pose_error_deg(pose, scene.pose.R, scene.pose.t) < 1.0
    assert names["plane"].homography.shape == (3, 3)
