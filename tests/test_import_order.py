"""Data flows one way through the package: a folder imports only from those before it."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "manymatch"

# Private modules first: they are tools of all others. `viz` stands before `matcher`, whose results
# draw themselves with it; it draws graphs and estimates and knows of no matcher.
ORDER = (
    *(
        "_core",
        "_validate",
        "_settings",
        "_pickles",
        "options",
    ),
    *("graph", "geometry", "io", "features", "associate", "estimate", "compat", "viz", "matcher"),
    *("batch", "cli"),
)


def part(module):
    """First name of a module below the package; empty for the package itself."""
    return [*module.split("."), ""][1]


def imports(source):
    """Modules of the package that a source text imports, with their lines, at any depth."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from ((node.lineno, name) for name in names if name.split(".")[0] == "manymatch")


def against_the_order(module, source):
    """Imports that point to the right, as texts."""
    own = part(module)
    return [
        f"{module}:{line} imports {name}"
        for line, name in imports(source)
        if part(name) in ORDER and ORDER.index(part(name)) > ORDER.index(own)
    ]


def modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        yield ".".join(p for p in parts if p != "__init__"), path


def test_every_part_of_the_package_has_a_place():
    parts = {part(module) for module, _ in modules()} - {""}
    assert parts <= set(ORDER), f"not in the order: {sorted(parts - set(ORDER))}"


@pytest.mark.parametrize(("module", "path"), list(modules()), ids=[m for m, _ in modules()])
def test_imports_point_to_what_stands_before(module, path):
    if part(module):  # the package's own __init__ collects the public names
        assert against_the_order(module, path.read_text(encoding="utf-8")) == []


def test_the_library_knows_neither_the_paper_nor_the_tools():
    for _, path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [a.name for a in node.names] if isinstance(node, ast.Import) else []
            assert not {n.split(".")[0] for n in names} & {"manymatch_lab", "tools", "tests"}, path


def test_an_import_against_the_order_is_found():
    source = "def f():\n    from manymatch import cli\n    import manymatch.graph\n"
    assert against_the_order("manymatch.io.image", source) == [
        "manymatch.io.image:2 imports manymatch.cli"
    ]
