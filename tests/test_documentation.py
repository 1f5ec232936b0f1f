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

import numpy as np
import pytest
import typer
import yaml

import manymatch
from manymatch.cli.app import app
from manymatch_lab.datasets.synthetic import EASY, make_scene

ROOT = Path(__file__).resolve().parents[1]
# Made from the code and from benchmarks/results when the site is built.
GENERATED = {"docs/reference/commands.md", "docs/reference/settings.md"}
DOCS = [
    page
    for page in ROOT.glob("docs/**/*.md")
    if page.relative_to(ROOT).parts[1] not in {"results", "_build"}
    and page.relative_to(ROOT).as_posix() not in GENERATED
]
RESULTS = sorted(ROOT.glob("benchmarks/results/*.md"))
PAGES = sorted([*ROOT.glob("*.md"), *DOCS])
README = (ROOT / "README.md").read_text(encoding="utf-8")
INSTALL = (ROOT / "docs" / "start" / "install.md").read_text(encoding="utf-8")

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
    for page in (page for page in [*PAGES, *RESULTS] if page.stem != "CHANGELOG"):
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
    with pytest.raises((_WRONG, ValueError, AssertionError)):
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


def anchors(text):
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads]


def name_of(page):
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", [*PAGES, *RESULTS], ids=name_of)
def test_links_lead_somewhere(page):
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if target.is_relative_to(ROOT / "docs" / "results") and target.stem != "index":
            target = ROOT / "benchmarks" / "results" / target.name
        if name_of(target) in {*GENERATED, "docs/results/index.md"}:
            continue  # `make docs` checks these
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target.read_text(encoding="utf-8")), link


def test_no_page_names_a_page_that_is_gone():
    files = [
        path
        for folder in ("src", "lab", "cpp", "benchmarks", "tools", "examples")
        for kind in ("py", "h", "cpp", "md", "toml")
        for path in (ROOT / folder).rglob(f"*.{kind}")
    ]
    for path in files:
        for name in re.findall(r"\bdocs/[\w/]+\.md", path.read_text(encoding="utf-8")):
            made = name in GENERATED or name.startswith("docs/results/")
            assert made or (ROOT / name).exists(), f"{path} names {name}"


def test_documentation_is_short():
    words = sum(len(page.read_text(encoding="utf-8").split()) for page in DOCS)
    assert words <= 25_000
    assert len(README.splitlines()) <= 120


def test_every_page_is_in_the_navigation():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    entries = set(re.findall(r"^([\w/]+)$", index, re.MULTILINE))
    pages = {page.relative_to(ROOT / "docs").with_suffix("").as_posix() for page in DOCS}
    assert pages - {"index"} <= entries


def test_reference_has_every_public_name():
    text = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    described = set(
        re.findall(r"^\.\. (?:auto\w+|py:data):: manymatch\.(\S+)$", text, re.MULTILINE)
    )
    modules = {"features", "io", "viz"}
    names = set(manymatch.__all__) - modules - {"compat", "__version__"}
    for module in modules:
        names |= {f"{module}.{name}" for name in getattr(manymatch, module).__all__}
    assert described - modules == names


def test_install_lines_and_table_name_the_extras():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    lines = re.findall(r"pip install \"?\.\[?([\w,]*)\]?\"?", INSTALL)
    assert len(lines) >= 3
    assert set(re.findall(r"pip install \"?\.\[?([\w,]*)\]?\"?", README)) <= set(lines)
    assert "" in lines
    assert {extra for line in lines for extra in line.split(",") if extra} <= set(extras)
    for name in project["dependencies"]:
        package = re.match(r"[\w-]+", name)[0]
        assert package in INSTALL.lower(), f"the page does not say that {package} is installed"
    table = INSTALL.split("| extra | brings | for |\n|---|---|---|\n")[1].split("\n\n")[0]
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


def test_images_brings_the_packages_of_the_small_formats():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = extras["optional-dependencies"]
    names = {re.match(r"[\w-]+", requirement)[0] for requirement in extras["images"]}
    for narrow in ("io", "tables"):
        assert {re.match(r"[\w-]+", requirement)[0] for requirement in extras[narrow]} <= names


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [*PAGES, *RESULTS], ids=name_of)
def test_code_of_a_page_parses(page):
    text = page.read_text(encoding="utf-8")
    for block in blocks(text, "python"):
        ast.parse(block)
    for block in blocks(text, "toml"):
        tomllib.loads(block)
    for block in blocks(text, "yaml"):
        assert yaml.safe_load(block)
    for block in [*blocks(text, "sh"), *blocks(text, "bash")]:
        for line in block.replace("\\\n", " ").splitlines():
            shlex.split(line, comments=True)
    # Every block says its language, so that none escapes the checks.
    known = {"python", "sh", "bash", "toml", "yaml", "text", "bibtex", ""}
    for language in re.findall(r"^```(.+)$", text, re.MULTILINE):
        assert language in known or language.startswith("{"), language


def scene_names():
    """Return what the code of the pages takes as given, from synthetic data."""
    scene = make_scene(EASY, seed=1)
    graph = scene.graph
    rng = np.random.default_rng(0)
    desc0 = rng.normal(size=(len(graph.points0), 32)).astype(np.float32)
    desc1 = rng.normal(size=(len(graph.points1), 32)).astype(np.float32)
    desc1[graph.edges[:, 1]] = desc0[graph.edges[:, 0]]
    width, height = scene.camera0.width, scene.camera0.height
    return {
        "mm": manymatch, "manymatch": manymatch, "np": np, "graph": graph,
        "points0": graph.points0, "points1": graph.points1, "edges": graph.edges,
        "rank": graph.rank, "similarity": graph.similarity, "desc0": desc0, "desc1": desc1,
        "camera0": scene.camera0, "camera1": scene.camera1, "K0": scene.camera0.K,
        "K1": scene.camera1.K, "width": width, "height": height,
        "size0": (width, height), "size1": (width, height),
        "sift": graph, "superpoint": graph, "effnet": graph,
    }  # fmt: skip


def matched_names():
    """Return one-to-one points."""
    names = scene_names()
    first, second = names["edges"].T
    return names | {"points0": names["points0"][first], "points1": names["points1"][second]}


def map_names():
    """Return pixels and points of a map, and a camera."""
    rng = np.random.default_rng(0)
    points = rng.uniform([-2, -2, 4], [2, 2, 8], size=(60, 3))
    camera = manymatch.Camera.from_matrix([[800, 0, 400], [0, 800, 300], [0, 0, 1]], 801, 601)
    image = points @ camera.K.T
    edges = np.column_stack([np.arange(60)] * 2)
    names = {"pixels": image[:, :2] / image[:, 2:], "points": points, "camera": camera}
    ranks = {"edges": edges, "similarity": np.ones(60, np.float32), "rank": np.ones(60, np.int32)}
    return {"mm": manymatch, **names, **ranks}


def cloud_names():
    """Return two clouds, the second one turned and moved."""
    rng = np.random.default_rng(0)
    points0 = rng.uniform(-1, 1, size=(80, 3))
    points1 = points0 @ np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]]).T + [1, 2, 3]
    names = map_names() | {"points0": points0, "points1": points1}
    names["edges"] = np.column_stack([np.arange(80)] * 2)
    names |= {"similarity": np.ones(80, np.float32), "rank": np.ones(80, np.int32)}
    return names | {"graph": manymatch.AssociationGraph(points0, points1, names["edges"])}


# Blocks that run with synthetic data: page, place of the block in it, what is given, and a check.
RUN = [
    ("docs/start/python.md", 1, scene_names, "plane.homography.shape == (3, 3)"),
    ("docs/guides/own_descriptors.md", 0, scene_names, "estimate.success"),
    ("docs/guides/own_descriptors.md", 2, scene_names, "graph.num_edges == len(edges)"),
    ("docs/guides/own_matcher.md", 1, matched_names, "graph.num_edges == len(points0)"),
    ("docs/guides/sources.md", 1, scene_names, "estimate.source_trust.shape == (3,)"),
    ("docs/guides/unknown_cameras.md", 0, scene_names, "estimate.camera0.focal > 0"),
    ("docs/guides/unknown_cameras.md", 1, scene_names, "estimate.fundamental.shape == (3, 3)"),
    ("docs/guides/planes.md", 1, scene_names, "estimate.homography[2, 2] == 1"),
    ("docs/guides/localisation.md", 1, map_names, "abs(estimate.pose.center).max() < 0.01"),
    ("docs/guides/clouds.md", 0, cloud_names, "abs(estimate.scale - 1) < 1e-3"),
    ("docs/guides/clouds.md", 1, cloud_names, "estimate.success"),
    ("docs/understand/confidence.md", 0, scene_names, "confidence.verdict == 'solved'"),
]


@pytest.mark.parametrize(("page", "place", "given", "check"), RUN)
def test_code_of_a_page_runs(page, place, given, check, capsys):
    names = given()
    block = blocks((ROOT / page).read_text(encoding="utf-8"), "python")[place]
    exec(block, names)  # noqa: S102 - what the page tells readers to run
    assert eval(check, names), capsys.readouterr().out  # noqa: S307


def test_estimator_lines_of_readme_run():
    names = scene_names()
    exec(blocks(README, "python")[1], names)  # noqa: S102 - what README tells readers to run
    scene = make_scene(EASY, seed=1)
    pose = names["estimate"].pose
    assert manymatch.pose_error_deg(pose, scene.pose.R, scene.pose.t) < 1.0
    assert names["plane"].homography.shape == (3, 3)


def test_evaluation_in_python_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "guides" / "evaluation.md").read_text(encoding="utf-8")
    exec(blocks(page, "python")[0], {})  # noqa: S102
    assert "(2, 10)" in capsys.readouterr().out
